//! A profile compared with its reference: the executions of both, by location, mnemonic, block and address.

use std::collections::BTreeMap;

use serde::Serialize;

use super::amounts::{Amounts, FunctionKey, Method};
use super::pairs::{Pair, Pairs};

/// A profile and its reference.
#[derive(Clone, Debug, Default)]
pub struct Evaluation {
    pub(super) locations: Vec<FunctionKey>,
    /// By location and mnemonic.
    pub(super) mnemonics: BTreeMap<(usize, String), Amounts>,
    /// By block of the reference, with its location, in instructions.
    pub(super) blocks: Vec<(usize, Amounts)>,
    /// By address; empty if the reference has none.
    pub(super) addresses: Vec<Amounts>,
    /// The blocks of the profile, for rules to be learnt from; `None` if the reference has no addresses.
    pub pairs: Option<Pairs>,
    /// Near taken branches of the reference, user code and kernel; `None` if it does not count them.
    pub taken: Option<f64>,
    /// Instructions of the profile that the reference does not count, by the hybrid.
    pub left_out: f64,
    /// Whether the reference counts iterations of string instructions one by one.
    pub iterates: bool,
    /// Samples of instruction pointers, and stacks, that the estimates come from.
    pub samples: f64,
    /// As `samples`.
    pub stacks: f64,
    /// How near the estimates of executions are for their standard errors; `None` if that can't be said.
    pub calibration: Option<Calibration>,
    /// The hottest functions of the reference; none if it has no addresses.
    pub hottest: HottestFunctions,
}

/// Share of the reference from which on a mnemonic is looked at, as a fraction: the errors of rarer ones are those of chance.
pub const LEAST: f64 = 0.001;

/// Samples that a function is looked at from: the error of the error is small then.
pub const SAMPLES: f64 = 100.0;

/// What is near the reference of the estimates by the rule.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Calibration {
    /// Mnemonics with [`LEAST`] of the reference or more.
    pub mnemonics: u64,
    /// Those of them that are within two standard errors.
    pub within: u64,
    /// Functions of known modules that the reference has [`SAMPLES`] of; none if it has no addresses.
    pub functions: u64,
    /// Those of them that are within two standard errors.
    pub functions_within: u64,
}

/// The hottest functions of the reference.
#[derive(Clone, Debug, Default)]
pub struct HottestFunctions {
    /// At most ten, with their instructions, by falling reference; each was executed.
    pub functions: Vec<(FunctionKey, Amounts)>,
    /// The instructions of all functions, by falling reference.
    pub(super) all: Vec<Amounts>,
}

/// How a method orders the hottest functions.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// The rank of each among all functions, from 1; `None` if the method has not seen it. Functions of one amount share a
    /// rank.
    pub places: Vec<Option<usize>>,
    /// Spearman's rank correlation of these functions, from -1 to 1; `None` if either side has one amount for all.
    pub rank_correlation: Option<f64>,
    /// Whether the hottest functions by the method are these, in this order; functions of one amount may change ranks.
    pub is_right: bool,
}

impl Evaluation {
    /// The function of a training pair.
    pub fn function(&self, pair: &Pair) -> Option<&FunctionKey> {
        self.locations.get(pair.location)
    }

    /// Half the sum of the absolute differences of the shares of all addresses, as a fraction: the part of the executions that
    /// a method has at the wrong address. `None` if the reference has no addresses, or a side no executions.
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
