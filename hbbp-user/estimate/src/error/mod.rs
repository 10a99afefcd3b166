//! Standard errors from the sample counts.
//!
//! Samples of eventing IPs are far apart in time and independent: the count of a block is a Poisson number. The streams
//! of one branch stack are not: a loop fills a stack with the same stream, so that N-1 occurrences tell no more than
//! one. In terms of survey sampling a stack is a cluster of m = N-1 streams. The variance of a count is that of m
//! independent streams times the design effect 1 + (m-1) rho (Kish, Survey Sampling, 1965, section 5.4). Here rho is
//! the correlation of the streams of one stack. How alike they are is seen from bootstrap replicates ([`Replicate`]): a
//! count that is x in one stack has over n stacks the relative variance Var(x) / Mean(x)^2 / n. Where too few of the
//! replicates show the count, rho is taken as 1, which is never too small an error. The stacks themselves come at a
//! fixed period, so that phases of the run have their share of them without chance ([`super::flow::phases`]): what
//! counts is how much stacks of one phase differ.
//!
//! Where each ring has stacks of its own, they do not count alike ([`dispersion`]).
//! Where stacks are biased, what was corrected adds to the errors ([`correction`]); where they are not, what the balance moved takes off
//! them ([`effective`]).
//!
//! Two things are left out, and both make the errors too large for most runs. The walks go round a loop as often as chance
//! has it, while many loops have a fixed number of rounds. And of a load that repeats itself, samples at a fixed period
//! find all parts more evenly than chance would. The rare period that keeps step with it is the exception: over many
//! periods both together have the variance of independent samples (Cochran, chapter 8, on periodic variation). Nothing in
//! a snapshot tells which period is which.

mod bootstrap;
mod clusters;
mod correction;
pub(crate) mod dispersion;
mod effective;
mod spread;
pub(crate) mod strata;
mod sum;

pub(crate) use bootstrap::Replicate;
pub(super) use bootstrap::replicates;
pub(super) use clusters::streams_per_stack;
pub(crate) use clusters::{clustered, independent};
pub use correction::Corrections;
pub use dispersion::Dispersion;
pub(super) use effective::Moved;
pub(crate) use spread::Spread;
pub(super) use spread::of_blocks;
pub(crate) use strata::Strata;
pub use sum::Sum;
