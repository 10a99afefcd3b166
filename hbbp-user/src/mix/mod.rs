//! The instruction mix: executions of blocks, pivoted by what their instructions are and where they stand.
//!
//! Paper sections I and V.B: an instruction mix follows from block execution counts and the text of the blocks.

pub mod dimension;

pub use crate::estimate::Unit;
pub use dimension::{Dimension, UnknownDimension};

/// One figure of a mix, in the unit of [`Mix::unit`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// The estimate.
    pub amount: f64,
    /// Its standard error, in the same unit; `None` where there is no amount to have one.
    pub std_error: Option<f64>,
}

/// One line of a mix.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// One value for each dimension of [`Mix::by`].
    pub key: Vec<String>,
    /// What ring 0 executed.
    pub kernel: Cell,
    /// What ring 3 executed.
    pub user: Cell,
}

/// An instruction mix.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// The dimensions of the keys.
    pub by: Vec<Dimension>,
    /// What the amounts are.
    pub unit: Unit,
    /// The lines, by falling total, then by key.
    pub rows: Vec<Row>,
    /// The sum over all lines, ring 0.
    pub kernel: Cell,
    /// The sum over all lines, ring 3.
    pub user: Cell,
}

impl Cell {
    /// Sum of two figures whose errors are independent.
    ///
    /// Samples of kernel and user code share one total, so that their errors rather cancel than add:
    /// the error of the sum is never larger than given here.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let std_error = match (self.std_error, other.std_error) {
            (Some(a), Some(b)) => Some(a.hypot(b)),
            (a, b) => a.or(b),
        };
        Self {
            amount: self.amount + other.amount,
            std_error,
        }
    }
}

impl Row {
    /// Both rings together.
    pub fn total(&self) -> Cell {
        self.kernel.plus(self.user)
    }
}

impl Mix {
    /// Both rings together.
    pub fn total(&self) -> Cell {
        self.kernel.plus(self.user)
    }
}
