//! Sums of instructions with their standard errors.
//!
//! A row is a weighted sum of the counts of many blocks, and all counts come from one number of samples.
//! Had the run taken its n samples again, each would again have fallen into some block, so the row is a sum over n draws
//! and has the variance of a multinomial: with h samples in a block that add m to the row,
//!
//! ```text
//! Var(row) = sum of m^2 / h  -  (sum of m)^2 / n
//! ```
//!
//! For counts from branch stacks the variance is the one between stacks drawn anew, over the number of stacks.
//! Where too few of these show the row, the formula above holds with the number of stacks for n, and for h what is left
//! of the streams if all streams of a stack were the same.

use super::Cell;
use crate::estimate::{BlockCounts, Part, Source, error::Spread};

/// A sum of amounts from both sources.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    ebs: Moments,
    lbr: Moments,
    spread: Spread,
}

#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    sum: f64,
    squares: f64,
}

impl Sum {
    /// Adds the count of a block for each of `instructions` of its instructions.
    pub(super) fn add(&mut self, part: &Part, source: Source, instructions: f64, design_effect: f64) {
        let moments = match source {
            Source::Ebs => &mut self.ebs,
            Source::Lbr => &mut self.lbr,
        };
        let amount = part.count * instructions;
        moments.sum += amount;
        if 0.0 < part.hits {
            moments.squares += amount * amount * design_effect / part.hits;
        }
    }

    /// Adds what one of the drawn stacks shows of the part from branch stacks, in instructions.
    pub(super) fn add_stack(&mut self, instructions: f64) {
        self.spread.add(instructions);
    }

    /// The sum, in the unit of the counts.
    pub(super) fn cell(&self, counts: &BlockCounts) -> Cell {
        let amount = self.ebs.sum + self.lbr.sum;
        let between_stacks = self
            .spread
            .relative_variance(counts.resampled.stacks.len() as f64);
        let of_stacks = match between_stacks {
            Some(relative) => self.lbr.sum * self.lbr.sum * relative / counts.n_stacks.max(1.0),
            None => self.lbr.variance(counts.n_stacks),
        };
        let variance = self.ebs.variance(counts.samples) + of_stacks;
        let std_error = (0.0 < amount).then(|| variance.sqrt());
        Cell { amount, std_error }
    }
}

impl Moments {
    fn variance(&self, n: f64) -> f64 {
        let fixed_total = if 0.0 < n { self.sum * self.sum / n } else { 0.0 };
        (self.squares - fixed_total).max(0.0)
    }
}
