//! Evaluation against exact counts: the papers' errors of EBS, LBR and hybrid.
//!
//! Both sides are reduced to executed instructions:
//! - by location (ring, module, function) and mnemonic for the paper's error (HBBP, ISPASS 2018, section VI.B),
//! - by block of the reference for the accuracy error of "Establishing a Base of Trust" (ATC 2015, section 3.3),
//! - by address for the distance of two distributions.
//!
//! Instructions that only one side has count as errors too. What the reference does not count at all, such as the kernel in
//! that of a tool for programs, is left out of the profile and stated.

mod amounts;
mod block;
mod calibration;
mod evaluation;
mod exact;
mod group;
mod order;
mod pairs;
mod sampling;
mod sums;
mod truth;

use crate::mix::{Dimension, Estimated, Query};
pub use amounts::{Amounts, FunctionKey, Method, UNKNOWN, amount};
pub use evaluation::{Calibration, Evaluation, HottestFunctions, LEAST, Order, SAMPLES};
pub use exact::Exact;
pub use group::{Group, Level};
use hbbp_estimate::{Rule, Unit};
use hbbp_model::advice::{Advice, Advised};
use hbbp_model::snapshot::{Snapshot, SourceLocations};
pub use sampling::{Sampling, Served, Unserved};
use sums::Sums;

/// A profile that cannot be compared with execution counts.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the profile holds {}, which cannot be compared with executions", .0.noun())]
pub struct NoExecutions(pub Unit);

impl From<NoExecutions> for Advised {
    fn from(why: NoExecutions) -> Self {
        Self::new(why.to_string(), Advice::RecordExecutions)
    }
}

/// Compares a snapshot, whose hybrid follows `rule`, with the exact counts of the same run; relative executions by their
/// shares.
pub fn evaluate(snapshot: &Snapshot, exact: &Exact, rule: &Rule) -> Result<Evaluation, NoExecutions> {
    let estimated = Estimated::new(snapshot, rule);
    let mix = |by: &[Dimension]| estimated.mix(&Query::by(by.iter().copied()), &SourceLocations::new());
    let (mnemonics, functions) = (mix(&[Dimension::Mnemonic]), mix(&calibration::FUNCTIONS));
    let analysis = estimated.analysis(mnemonics);
    let unit = analysis.counts.assignment.unit;
    if matches!(unit, Unit::TimeWeightedSamples | Unit::EventWeightedSamples) {
        return Err(NoExecutions(unit));
    }
    let mut sums = Sums::new(snapshot, &analysis.map, exact);
    sums.add_measured(&analysis);
    sums.add_reference(exact);
    if unit == Unit::RelativeExecutions {
        sums.scale_to_reference();
    }
    let mut evaluation = sums.close(&analysis.counts, exact);
    evaluation.hottest = HottestFunctions::new(&evaluation);
    if unit == Unit::Executions {
        evaluation.calibration = Calibration::of(&analysis.mix, &functions, &evaluation);
    }
    Ok(evaluation)
}
