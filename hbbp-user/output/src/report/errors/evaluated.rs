//! The errors that are shown.

use hbbp_analysis::eval::{Evaluation, Group, Level, Sampling, Served, Unserved};

/// A sampling method, and what of the profile serves it.
pub(crate) type SamplingMethod<'a> = (Sampling, Result<Served<'a>, Unserved>);

/// The errors of all groups of a level.
#[derive(Debug)]
pub struct Errors<'a> {
    pub(super) evaluation: &'a Evaluation,
    pub(super) level: Level,
    pub(super) whole: Group,
    pub(super) groups: Vec<Group>,
    pub(super) top: Option<usize>,
    pub(super) sampling: &'a [SamplingMethod<'a>],
}
