//! Whether estimates are as near the reference as their standard errors say.

use std::collections::BTreeMap;

use super::amounts::UNKNOWN;
use super::evaluation::{Calibration, Evaluation, LEAST, SAMPLES};
use super::group::Level;
use crate::mix::{Cell, Dimension, Mix};

/// Standard errors: 95 % of what is off by chance alone is within.
const ERRORS: f64 = 2.0;

/// The mix by function: the dimensions of its rows are the names of [`Level::Function`].
pub(super) const FUNCTIONS: [Dimension; 3] = [Dimension::Ring, Dimension::Module, Dimension::Function];

impl Calibration {
    /// That of a mix by mnemonic, and of one by [`FUNCTIONS`]. `None` if the reference leaves code out or counts
    /// otherwise, or nothing was executed.
    pub(super) fn of(mix: &Mix, functions: &Mix, evaluation: &Evaluation) -> Option<Self> {
        if 0.0 < evaluation.left_out || evaluation.iterates {
            return None;
        }
        let whole = evaluation.groups(Level::Whole).into_iter().next()?;
        let all = whole.total().reference;
        let of_mnemonics = whole
            .mnemonics
            .iter()
            .map(|(mnemonic, amounts)| (vec![mnemonic.clone()], amounts.reference));
        let [mnemonics, within] = near(mix, of_mnemonics.filter(|(_, exact)| LEAST * all <= *exact));
        let groups = match evaluation.addresses.is_empty() {
            true => Vec::new(),
            false => evaluation.groups(Level::Function),
        };
        let is_known = |key: &[String]| key.get(1).is_some_and(|module| module != UNKNOWN);
        let of_functions = groups
            .iter()
            .map(|group| (group.key.clone(), group.total().reference));
        let is_sampled =
            |(key, exact): &(Vec<String>, f64)| is_known(key) && SAMPLES * all <= exact * evaluation.samples;
        let [functions, functions_within] = near(functions, of_functions.filter(is_sampled));
        let calibration = Self {
            mnemonics,
            within,
            functions,
            functions_within,
        };
        (0 < mnemonics).then_some(calibration)
    }
}

/// How many figures there are, and how many rows of the mix are within two standard errors of them.
fn near(mix: &Mix, exact: impl Iterator<Item = (Vec<String>, f64)>) -> [u64; 2] {
    let rows: BTreeMap<&[String], &Cell> = mix
        .rows
        .iter()
        .map(|row| (row.key.as_slice(), &row.total))
        .collect();
    let is_near = |(key, exact): (Vec<String>, f64)| {
        rows.get(key.as_slice()).is_some_and(|cell| {
            let std_error = cell.std_error.unwrap_or_default();
            (cell.amount - exact).abs() <= ERRORS * std_error
        })
    };
    exact.map(is_near).fold([0, 0], |[all, within], is_near| {
        [all + 1, within + u64::from(is_near)]
    })
}
