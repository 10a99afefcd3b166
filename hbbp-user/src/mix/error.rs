//! Sums of instructions with their standard errors.
//!
//! A row is a weighted sum of the counts of many blocks, and all counts come from the same n samples.
//! Each sample falls into one block, so the row is a sum over n draws with the variance of a multinomial: with h samples
//! in a block that add m to the row,
//!
//! ```text
//! Var(row) = sum of m^2 / h  -  (sum of m)^2 / n
//! ```
//!
//! Samples have a fixed period, so this applies within each phase of the run ([`crate::estimate::strata`]).
//! For counts from branch stacks, the variance is that between bootstrap replicates of the stacks, divided by the number
//! of stacks.
//! If too few replicates contain the row, the formula above applies with n = the number of stacks, and h = the number of
//! streams divided by the design effect (as if all streams of a stack were equal).

use super::Cell;
use super::keys::Addend;
use crate::blocks::BlockId;
use crate::estimate::strata::ByPhase;
use crate::estimate::{BlockCount, BlockCounts, Method, Part, error::Spread};

/// A sum of amounts from both methods.
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    ebs: ByPhase,
    lbr: ByPhase,
    spread: Spread,
    samples: f64,
    flops: f64,
    bytes: u64,
    blocks: u64,
    /// The last block that added to it; parts are sorted by block.
    last: Option<BlockId>,
}

impl Sum {
    /// Adds the count of a block for each of its instructions that belong here.
    pub(super) fn add(&mut self, part: &Part, block: &BlockCount, addend: &Addend, counts: &BlockCounts) {
        let sums = match block.method {
            Method::Ebs => &mut self.ebs,
            Method::Lbr => &mut self.lbr,
        };
        let amount = part.count * addend.instructions;
        let squares = if 0.0 < part.hits {
            amount * amount * counts.design_effect(block.method) / part.hits
        } else {
            0.0
        };
        sums.add(counts.strata.of_block(part.block), amount, squares);
        self.samples += part.hits * addend.instructions / f64::from(block.instructions.max(1));
        self.flops += part.count * addend.flops;
        // All processes that run a block add the same instructions of it to a sum, or none.
        if 0.0 < part.count && self.last != Some(block.block) {
            self.last = Some(block.block);
            self.bytes += addend.bytes;
            self.blocks += 1;
        }
    }

    /// Adds the contribution of one resampled stack of a phase, in instructions.
    pub(super) fn add_stack(&mut self, phase: usize, instructions: f64) {
        self.spread.add(phase, instructions);
    }

    /// The sum, in the unit of the counts.
    pub(super) fn cell(&self, counts: &BlockCounts) -> Cell {
        let strata = &counts.strata;
        let lbr = self.lbr.sum();
        let amount = self.ebs.sum() + lbr;
        let of_stacks = match self.spread.relative_variance(strata) {
            Some(relative) => lbr * lbr * relative / counts.n_stacks.max(1.0),
            None => self.lbr.variance_of(counts.n_stacks),
        };
        let variance = self.ebs.variance(&strata.samples) + of_stacks;
        let std_error = (0.0 < amount).then(|| variance.sqrt());
        Cell {
            amount,
            std_error,
            samples: self.samples,
            flops: self.flops,
            bytes: self.bytes,
            blocks: self.blocks,
        }
    }
}
