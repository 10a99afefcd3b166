//! Evaluation against exact counts: the papers' errors of EBS, LBR and hybrid.
//!
//! Both sides are reduced to executed instructions, by location (ring, module, function) and mnemonic for the paper's
//! error (HBBP, ISPASS 2018, section VI.B), by block of the reference for the accuracy error of "Establishing a Base of Trust"
//! (ATC 2015, section 3.3), and by address for the distance of two distributions.
//! Instructions that only one side has count as errors too. What the reference does not count at all, such as the kernel in
//! that of a tool for programs, is left out of the profile and stated.

mod block;
mod calibration;
mod exact;
mod group;
mod pairs;
mod sampling;
mod sums;
mod truth;

use std::collections::BTreeMap;

use crate::mix::{Dimension, Estimated, Query};
pub use calibration::{Calibration, LEAST, SAMPLES};
pub use exact::{AddressCounts, Exact, MnemonicCounts, Names, NoCounts};
pub use group::{Group, Level};
use hbbp_estimate::{Rule, Unit};
use hbbp_model::addr::Ring;
use hbbp_model::advice::{Advice, Advised};
use hbbp_model::snapshot::{Snapshot, SourceLocations};
pub use pairs::{Pair, Pairs};
pub use sampling::{Sampling, Served, Unserved};
use sums::Sums;

/// A method of estimation, as in the columns of the paper's Figure 2.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Method {
    /// Eventing IPs alone.
    Ebs,
    /// Streams of branch stacks alone.
    Lbr,
    /// For each block the method that the rule chooses.
    Hybrid,
}

/// Executed instructions: exact, and by each method.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amounts {
    /// Exact.
    pub reference: f64,
    /// By [`Method::Ebs`].
    pub ebs: f64,
    /// By [`Method::Lbr`].
    pub lbr: f64,
    /// By [`Method::Hybrid`].
    pub hybrid: f64,
}

/// A function: the finest location that groups distinguish.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FunctionKey {
    /// Their ring.
    pub ring: Ring,
    /// Name of the module; [`UNKNOWN`] if it is not in the profile, or the reference does not say it.
    pub module: String,
    /// Name of the function; the module name in brackets if no symbol covers it.
    pub function: String,
}

/// Module of instructions that are in no mapping of the profile.
pub const UNKNOWN: &str = "[unknown]";

/// Mnemonic of instructions whose code is in no text of the profile.
pub const NO_TEXT: &str = "[no text]";

/// A profile and its reference.
#[derive(Clone, Debug, Default)]
pub struct Evaluation {
    locations: Vec<FunctionKey>,
    /// By location and mnemonic.
    mnemonics: BTreeMap<(usize, String), Amounts>,
    /// By block of the reference, with its location, in instructions.
    blocks: Vec<(usize, Amounts)>,
    /// By address; empty where the reference has none.
    addresses: Vec<Amounts>,
    /// The blocks of the profile, for rules to be learnt from; `None` where the reference has no addresses.
    pub pairs: Option<Pairs>,
    /// Near taken branches of the reference, user code and kernel; `None` where it does not count them.
    pub taken: Option<f64>,
    /// Instructions of the profile that the reference does not count, by the hybrid.
    pub left_out: f64,
    /// Whether the reference counts iterations of string instructions one by one.
    pub iterates: bool,
    /// Samples of instruction pointers, and stacks, that the estimates come from.
    pub samples: f64,
    /// As `samples`.
    pub stacks: f64,
    /// How near the estimates of executions are for their standard errors; `None` where that can't be said.
    pub calibration: Option<Calibration>,
}

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
    if unit == Unit::Executions {
        evaluation.calibration = Calibration::of(&analysis.mix, &functions, &evaluation);
    }
    Ok(evaluation)
}

/// A count as an amount; beyond 2^53 it is rounded.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of branches and instructions of a run stay far below 2^53"
)]
pub fn amount(count: u64) -> f64 {
    count as f64
}

impl Evaluation {
    /// The function of a training pair.
    pub fn function(&self, pair: &Pair) -> Option<&FunctionKey> {
        self.locations.get(pair.location)
    }

    /// Half the sum of the absolute differences of the shares of all addresses, as a fraction: the part of the executions that
    /// a method has at the wrong address. `None` where the reference has no addresses, or a side no executions.
    pub fn distance(&self, method: Method) -> Option<f64> {
        let mut all = Amounts::default();
        self.addresses.iter().for_each(|one| all.add(one));
        let (reference, measured) = (all.reference, all.by(method));
        if reference <= 0.0 || measured <= 0.0 {
            return None;
        }
        let off = self
            .addresses
            .iter()
            .map(|one| (one.reference / reference - one.by(method) / measured).abs());
        Some(off.sum::<f64>() / 2.0)
    }
}

impl Method {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 3] = [Self::Hybrid, Self::Lbr, Self::Ebs];

    /// Name of its column.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ebs => "EBS",
            Self::Lbr => "LBR",
            Self::Hybrid => "hybrid",
        }
    }
}

impl Amounts {
    /// The estimate of a method.
    pub const fn by(&self, method: Method) -> f64 {
        match method {
            Method::Ebs => self.ebs,
            Method::Lbr => self.lbr,
            Method::Hybrid => self.hybrid,
        }
    }

    /// The shares of these in totals, as fractions; 0 of nothing.
    #[must_use]
    pub fn shares(&self, totals: &Self) -> Self {
        let share = |of: f64, all: f64| if 0.0 < all { of / all } else { 0.0 };
        Self {
            reference: share(self.reference, totals.reference),
            ebs: share(self.ebs, totals.ebs),
            lbr: share(self.lbr, totals.lbr),
            hybrid: share(self.hybrid, totals.hybrid),
        }
    }

    fn add(&mut self, other: &Self) {
        self.reference += other.reference;
        self.ebs += other.ebs;
        self.lbr += other.lbr;
        self.hybrid += other.hybrid;
    }

    fn scale(&mut self, by: &Self) {
        self.reference *= by.reference;
        self.ebs *= by.ebs;
        self.lbr *= by.lbr;
        self.hybrid *= by.hybrid;
    }
}
