//! What changed against another profile, as the page shows it.

use serde::Serialize;

use super::super::measured::Comparison;
use super::super::named::shown_names;
use hbbp_analysis::diff::{Change, Diff, Figure, LEVEL};
use hbbp_model::names::Demangle;
use hbbp_model::printable::harmless;

/// Most rows of a table; the greatest changes come first.
const MOST_ROWS: usize = 500;

/// The comparison for the script.
#[derive(Serialize)]
pub(super) struct Changes {
    /// Both profiles, in words.
    sides: Vec<String>,
    notes: Vec<String>,
    /// Changes with an adjusted p at most this large are more than chance.
    level: f64,
    tables: Vec<Table>,
}

/// The changes by some axes.
#[derive(Serialize)]
struct Table {
    by: Vec<String>,
    /// Keys that were compared, and those of them that differ more than by chance.
    compared: usize,
    significant: usize,
    /// Changes beyond the last row.
    more: usize,
    rows: Vec<Row>,
}

/// One change: shares of all from 0 to 1, each with its standard error.
#[derive(Serialize)]
struct Row {
    key: Vec<String>,
    a: [f32; 2],
    b: [f32; 2],
    change: [f32; 2],
    p: f32,
    significant: bool,
}

impl Changes {
    /// The tables of a comparison, with names as they are shown.
    pub(super) fn new(comparison: &Comparison, demangle: Demangle) -> Self {
        Self {
            sides: comparison.sides.iter().map(|side| harmless(side)).collect(),
            notes: comparison.notes.iter().map(|note| harmless(note)).collect(),
            level: LEVEL,
            tables: comparison
                .diffs
                .iter()
                .map(|diff| Table::new(diff, demangle))
                .collect(),
        }
    }
}

impl Table {
    fn new(diff: &Diff, demangle: Demangle) -> Self {
        let shown = diff.changes.get(..MOST_ROWS).unwrap_or(&diff.changes);
        let by: Vec<&str> = diff.by.iter().map(|axis| axis.name()).collect();
        let keys: Vec<&[String]> = shown.iter().map(|change| change.key.as_slice()).collect();
        let names = shown_names(&by, &keys, demangle);
        let changes = &diff.changes;
        Self {
            compared: diff.compared,
            significant: changes.iter().filter(|change| change.is_significant()).count(),
            more: changes.len() - shown.len(),
            rows: shown
                .iter()
                .zip(names)
                .map(|(change, key)| Row::new(change, key))
                .collect(),
            by: by.into_iter().map(str::to_owned).collect(),
        }
    }
}

impl Row {
    fn new(change: &Change, key: Vec<String>) -> Self {
        let [a, b] = change.shares.map(digits);
        Self {
            key,
            a,
            b,
            change: digits(change.change),
            p: single(change.adjusted_p),
            significant: change.is_significant(),
        }
    }
}

fn digits(figure: Figure) -> [f32; 2] {
    [single(figure.value), single(figure.std_error)]
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "seven digits are enough to be shown"
)]
const fn single(value: f64) -> f32 {
    value as f32
}
