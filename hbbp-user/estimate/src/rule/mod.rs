//! The hybrid rule as data: a classification tree, written as lines. The first line whose conditions hold decides.
//!
//! ```text
//! # a comment
//! name paper
//! lbr if instructions <= 18
//! ebs
//! ```
//!
//! A line names a method and the conditions for it, joined by `and`; the last line has none.
//! A condition compares a feature of the block with a number, by `<=` or `>`, as a tree does at each node.
//! `streams balanced` balances the streams ([`super::flow::balance`]), `streams on_time` weighs them for
//! stacks that were read late ([`super::flow::late`]), and both scale them to what was counted ([`super::totals`]); without either they count as recorded. `without STAGE` leaves a stage of the estimate out ([`super::stages::Stage`]), to see what it is worth.

mod choose;
mod join;
mod parse;
mod tree;

pub(super) use choose::saw_nothing;
pub(super) use join::{Evidence, join};
pub use parse::BadRule;
pub use tree::{Condition, Feature, Features, Line, Rule, Side};

/// The default: balanced streams.
pub const DEFAULT: &str = include_str!("balanced.rule");

/// The rule of the paper, section IV.B: block length decides.
pub const PAPER: &str = include_str!("paper.rule");

/// A rule with the bias flag and sample counts as further features, which the paper found to matter less.
pub(crate) const BIAS: &str = include_str!("bias.rule");

/// Streams weighed for stacks that were read late.
pub(crate) const LATE: &str = include_str!("late.rule");

/// Samples alone.
pub(crate) const TIME: &str = include_str!("time.rule");

/// The rules that can be asked for by name.
pub const NAMED: [(&str, &str); 5] = [
    ("balanced", DEFAULT),
    ("paper", PAPER),
    ("bias", BIAS),
    ("late", LATE),
    ("time", TIME),
];
