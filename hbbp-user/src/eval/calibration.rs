//! Whether estimates are as near the reference as their standard errors say.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Evaluation, Level};
use crate::mix::{Cell, Mix};

/// Share of the reference from which on a mnemonic is looked at, as a fraction: the errors of rarer ones are those of chance.
pub const LEAST: f64 = 0.001;

/// Standard errors: 95 % of what is off by chance alone is within.
const ERRORS: f64 = 2.0;

/// Mnemonics whose estimate by the rule is near the reference.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Calibration {
    /// Mnemonics with [`LEAST`] of the reference or more.
    pub mnemonics: u64,
    /// Those of them that are within two standard errors.
    pub within: u64,
}

impl Calibration {
    /// That of a mix by mnemonic. `None` where the reference leaves code out or counts otherwise, or nothing ran.
    pub(super) fn of(mix: &Mix, evaluation: &Evaluation) -> Option<Self> {
        if 0.0 < evaluation.left_out || evaluation.iterates {
            return None;
        }
        let whole = evaluation.groups(Level::Whole).into_iter().next()?;
        let least = LEAST * whole.total().reference;
        let rows = mix
            .rows
            .iter()
            .filter_map(|row| Some((row.key.first()?.as_str(), &row.total)));
        let rows: BTreeMap<&str, &Cell> = rows.collect();
        let mut calibration = Self {
            mnemonics: 0,
            within: 0,
        };
        for (mnemonic, amounts) in whole
            .mnemonics
            .iter()
            .filter(|(_, amounts)| least <= amounts.reference)
        {
            let is_within = rows.get(mnemonic.as_str()).is_some_and(|cell| {
                let std_error = cell.std_error.unwrap_or_default();
                (cell.amount - amounts.reference).abs() <= ERRORS * std_error
            });
            calibration.mnemonics += 1;
            calibration.within += u64::from(is_within);
        }
        (0 < calibration.mnemonics).then_some(calibration)
    }
}
