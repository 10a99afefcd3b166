//! The answer to a query: the rows, columns and cells of a mix.

use super::apportion::apportion;
use super::axis::Axis;
use super::filter::Filter;
use super::query::{Query, Value};
use crate::time::cpi;
use hbbp_estimate::{Figure, Unit};
use hbbp_model::snapshot::EventUnit;

/// The figures of one cell of a mix.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// The estimate, in the unit of [`Mix::unit`].
    pub amount: f64,
    /// Its standard error, in the same unit; `None` for an amount of 0.
    pub std_error: Option<f64>,
    /// The part of it that is chance, and independent of that in other runs.
    pub by_chance: Option<f64>,
    /// Samples or streams that it rests on.
    pub samples: f64,
    /// Floating-point operations, for an estimate of executions.
    pub flops: f64,
    /// Time that passed at the instructions, in [`Mix::time_unit`], if it is requested and was sampled.
    pub time: Option<Figure>,
    /// Bytes of distinct executed instructions.
    pub bytes: u64,
    /// Distinct executed blocks.
    pub blocks: u64,
}

/// One line of a mix.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// One value for each axis of [`Mix::rows_by`].
    pub key: Vec<String>,
    /// One for each of [`Mix::columns`].
    pub cells: Vec<Cell>,
    /// All columns together. Its error is not that of independent figures: all samples share one total.
    pub total: Cell,
}

/// A column of a mix.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// One value for each axis of [`Mix::columns_by`].
    pub key: Vec<String>,
    /// The sum over all lines.
    pub total: Cell,
    /// The same without filters.
    pub all: f64,
}

/// An instruction mix: the answer to a [`Query`].
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// The axes of the rows.
    pub rows_by: Vec<Axis>,
    /// The axes of the columns.
    pub columns_by: Vec<Axis>,
    /// What the instructions of the table passed.
    pub filters: Vec<Filter>,
    /// The figures that are requested.
    pub values: Vec<Value>,
    /// What the amounts are.
    pub unit: Unit,
    /// What time is counted in, if it is requested and was sampled.
    pub time_unit: Option<EventUnit>,
    /// The columns: kernel and user where they are the rings, others by falling total.
    pub columns: Vec<Column>,
    /// The lines, in the order that was requested.
    pub rows: Vec<Row>,
    /// The sum over all lines.
    pub total: Cell,
    /// The same without filters.
    pub all: Cell,
}

/// Whole samples of a mix: rows, and in each its columns.
pub(crate) type WholeSamples = Vec<Vec<u64>>;

impl Cell {
    /// A figure as a number to sort by; cells without it come last.
    pub(crate) fn figure(&self, value: Value) -> f64 {
        let figure = match value {
            Value::Executions | Value::Share | Value::Rate => self.amount,
            Value::Samples => self.samples,
            Value::Bytes => self.bytes as f64,
            Value::Blocks => self.blocks as f64,
            Value::Flops => self.flops,
            Value::Time | Value::TimeShare => self.time.map_or(0.0, |time| time.value),
            Value::Cpi => self.cpi().map_or(f64::INFINITY, |cpi| cpi.value),
            Value::Ipc => self.cpi().map_or(f64::INFINITY, |cpi| 1.0 / cpi.value),
        };
        // Executions without any time have no quotient.
        if figure.is_finite() {
            figure
        } else {
            f64::NEG_INFINITY
        }
    }
}

impl Cell {
    /// Time for each execution; `None` if executions are too few to divide by.
    pub fn cpi(&self) -> Option<Figure> {
        let executions = Figure {
            value: self.amount,
            std_error: self.std_error?,
        };
        cpi(self.time?, executions)
    }
}

impl Column {
    /// Its values as one name.
    pub fn name(&self) -> String {
        self.key.join(", ")
    }
}

impl Mix {
    /// The samples of each cell as whole numbers, in the order of the rows: over all rows and columns they add up exactly
    /// to the samples of the mix. Only for figures that are samples; executions have no whole number to add up to.
    pub fn whole_samples(&self) -> Option<WholeSamples> {
        if !self.unit.is_samples() {
            return None;
        }
        let totals: Vec<f64> = self.columns.iter().map(|column| column.total.amount).collect();
        let totals = apportion(&totals, whole(self.total.amount));
        let mut samples = vec![Vec::with_capacity(totals.len()); self.rows.len()];
        for (column, total) in totals.into_iter().enumerate() {
            let cells = self
                .rows
                .iter()
                .map(|row| row.cells.get(column).map_or(0.0, |cell| cell.amount));
            let parts = apportion(&cells.collect::<Vec<f64>>(), total);
            for (row, part) in samples.iter_mut().zip(parts) {
                row.push(part);
            }
        }
        Some(samples)
    }
}

impl Mix {
    /// The answer to a query of nothing.
    pub(super) fn empty(query: &Query) -> Self {
        Self {
            rows_by: query.rows.clone(),
            columns_by: query.columns.clone(),
            filters: query.filters.clone(),
            values: query.values.clone(),
            unit: Unit::TimeWeightedSamples,
            time_unit: None,
            columns: Vec::new(),
            rows: Vec::new(),
            total: Cell::default(),
            all: Cell::default(),
        }
    }
}

/// The whole number of samples whose fractions were spread over instructions.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of samples, from 0 to 2^53"
)]
const fn whole(samples: f64) -> u64 {
    samples.round() as u64
}
