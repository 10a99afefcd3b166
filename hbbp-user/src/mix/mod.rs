//! The instruction mix: executions of blocks, pivoted by properties and locations of their instructions.
//!
//! Paper sections I and V.B: an instruction mix follows from block execution counts and the text of the blocks.

mod accuracy;
mod analysis;
mod apportion;
mod category;
mod class;
#[cfg(test)]
mod cost;
mod dimension;
mod error;
mod extension;
mod keys;
mod pivot;

pub use crate::estimate::{Method, Unit};
use crate::locate::PerRing;
pub use accuracy::{Accuracy, KeyError, block_error};
pub use analysis::{Analysis, Estimated, MethodShare, analyse};
pub use apportion::apportion;
pub use category::Category;
pub use class::{Class, Latency, Lock, Memory, Packing};
pub use dimension::{Dimension, UnknownDimension};
pub use keys::{function, mnemonics, symbol_at};

/// One figure of a mix, in the unit of [`Mix::unit`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// The estimate.
    pub amount: f64,
    /// Its standard error, in the same unit; `None` for an amount of 0.
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
    /// Both together. Its error is not that of two independent figures: samples of kernel and user code share one total.
    pub both: Cell,
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
    /// The sum over all lines, both together.
    pub both: Cell,
}

impl Mix {
    /// Each row's share of the samples as whole numbers, in the order of the rows: in each ring they add up exactly to
    /// the samples of the mix. Only for figures that are samples; executions have no whole number to add up to.
    pub fn whole_samples(&self) -> Option<Vec<PerRing>> {
        match self.unit {
            Unit::Executions | Unit::RelativeExecutions => None,
            Unit::TimeWeightedSamples | Unit::EventWeightedSamples => {
                let column = |cell: fn(&Row) -> f64, total: f64| {
                    apportion(&self.rows.iter().map(cell).collect::<Vec<f64>>(), whole(total))
                };
                let kernel = column(|row| row.kernel.amount, self.kernel.amount);
                let user = column(|row| row.user.amount, self.user.amount);
                Some(
                    kernel
                        .into_iter()
                        .zip(user)
                        .map(|(kernel, user)| PerRing { kernel, user })
                        .collect(),
                )
            }
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
