//! The printed rows of the mix, the same in every format: shares, the limit of `--top`, whole samples.
//!
//! Samples are whole numbers, and each column adds up exactly to the samples in the mix.
//! Estimated executions are not rounded.

use serde::Serialize;

use crate::locate::PerRing;
use crate::mix::{Cell, Dimension, Mix, Row, Unit};

/// The printed mix.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Body {
    /// The dimensions of the keys.
    pub(super) by: Vec<Dimension>,
    /// What the amounts are.
    pub(super) unit: Unit,
    /// The rows within the limit.
    pub(super) rows: Vec<BodyRow>,
    /// The remainder, as one row.
    pub(super) more: Option<More>,
    /// The sum of all rows, including the remainder.
    pub(super) total: Figures,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BodyRow {
    /// One value for each dimension.
    pub(super) key: Vec<String>,
    /// Its figures.
    pub(super) figures: Figures,
}

/// The rows after the limit, summed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct More {
    /// Number of lines.
    pub(super) n_rows: u64,
    /// Their sum, without errors.
    pub(super) figures: Figures,
}

/// The figures of one line: by ring, and both together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Figures {
    pub(super) kernel: Figure,
    pub(super) user: Figure,
    pub(super) total: Figure,
}

/// One figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Figure {
    /// The amount.
    pub(super) amount: Amount,
    /// Its standard error in the same unit, where there is one.
    pub(super) std_error: Option<f64>,
    /// Its share of the column, 0 to 1; 0 in an empty column.
    pub(super) share: f64,
}

/// An amount in the unit of the mix.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Amount {
    /// Whole samples.
    Samples(u64),
    /// An estimate: executions, or the weight of an event.
    Estimate(f64),
}

/// One ring's part of a line: the estimate, and its whole samples where samples are the unit.
#[derive(Clone, Copy, Debug)]
struct Part {
    cell: Cell,
    samples: Option<u64>,
}

/// Both rings' parts of a line, and both together.
#[derive(Clone, Copy, Debug)]
struct Parts {
    kernel: Part,
    user: Part,
    both: Part,
}

impl Body {
    /// The first `top` rows of a mix (all if `None`), and the sum of the remainder.
    pub(super) fn new(mix: &Mix, top: Option<usize>) -> Self {
        let rows = rows(mix);
        let sum = |rows: &[Parts]| rows.iter().copied().fold(Parts::nothing(mix.unit), Parts::plus);
        let mut total = sum(&rows);
        total.kernel.cell.std_error = mix.kernel.std_error;
        total.user.cell.std_error = mix.user.std_error;
        total.both.cell.std_error = mix.both.std_error;
        let figures = |parts: Parts| Figures {
            kernel: figure(parts.kernel, total.kernel),
            user: figure(parts.user, total.user),
            total: figure(parts.both, total.both),
        };
        let (first, remainder) = rows.split_at(top.unwrap_or(usize::MAX).min(rows.len()));
        let keys = mix.rows.iter().map(|row| row.key.clone());
        let shown = keys.zip(first).map(|(key, parts)| BodyRow {
            key,
            figures: figures(*parts),
        });
        let more = Some(remainder).filter(|rows| !rows.is_empty());
        let more = more.map(|rows| More {
            n_rows: rows.len() as u64,
            figures: figures(sum(rows)),
        });
        Self {
            by: mix.by.clone(),
            unit: mix.unit,
            rows: shown.collect(),
            more,
            total: figures(total),
        }
    }

    /// Whether any line has a standard error.
    pub(super) fn has_errors(&self) -> bool {
        self.rows.iter().any(|row| row.figures.total.std_error.is_some())
    }
}

/// All lines of a mix, with whole samples where these are its unit.
fn rows(mix: &Mix) -> Vec<Parts> {
    let parts = |row: &Row, samples: Option<PerRing>| Parts {
        kernel: Part {
            cell: row.kernel,
            samples: samples.map(|n| n.kernel),
        },
        user: Part {
            cell: row.user,
            samples: samples.map(|n| n.user),
        },
        both: Part {
            cell: row.both,
            samples: samples.map(|n| n.total()),
        },
    };
    match mix.whole_samples() {
        Some(samples) => mix
            .rows
            .iter()
            .zip(samples)
            .map(|(row, samples)| parts(row, Some(samples)))
            .collect(),
        None => mix.rows.iter().map(|row| parts(row, None)).collect(),
    }
}

/// An error to four digits: more are not significant, and the last ones depend on the machine.
fn significant(error: f64) -> f64 {
    format!("{error:.3e}").parse().unwrap_or(error)
}

/// A figure with its share of the column.
fn figure(part: Part, column: Part) -> Figure {
    let whole = column.amount().value();
    let share = if 0.0 < whole {
        part.amount().value() / whole
    } else {
        0.0
    };
    Figure {
        amount: part.amount(),
        std_error: part.cell.std_error.map(significant),
        share,
    }
}

impl Part {
    fn plus(self, other: Self) -> Self {
        let samples = self.samples.zip(other.samples).map(|(a, b)| a.saturating_add(b));
        let cell = Cell {
            amount: self.cell.amount + other.cell.amount,
            // Rows can share blocks, so their errors are not independent; only the mix can compute that of a sum.
            std_error: None,
        };
        Self { cell, samples }
    }

    fn amount(self) -> Amount {
        self.samples
            .map_or(Amount::Estimate(self.cell.amount), Amount::Samples)
    }
}

impl Parts {
    /// Nothing of either ring, in whole samples where these are the unit.
    fn nothing(unit: Unit) -> Self {
        let samples = match unit {
            Unit::Executions | Unit::RelativeExecutions => None,
            Unit::TimeWeightedSamples | Unit::EventWeightedSamples => Some(0),
        };
        let nothing = Part {
            cell: Cell::default(),
            samples,
        };
        Self {
            kernel: nothing,
            user: nothing,
            both: nothing,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            kernel: self.kernel.plus(other.kernel),
            user: self.user.plus(other.user),
            both: self.both.plus(other.both),
        }
    }
}

impl Amount {
    /// The amount as a number to compute with.
    pub(super) const fn value(self) -> f64 {
        match self {
            Self::Samples(n) => n as f64,
            Self::Estimate(n) => n,
        }
    }
}
