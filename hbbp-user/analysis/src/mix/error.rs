//! The figures of a cell as a sum over blocks.

use super::Cell;
use super::keys::Addend;
use crate::time::{Amount, Spent, Time};
use hbbp_code::blocks::BlockId;
use hbbp_estimate::{BlockCount, BlockCounts, Part, Sum as Executions};

/// A sum of amounts from both methods.
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    executions: Executions,
    samples: f64,
    flops: f64,
    time: Amount,
    bytes: u64,
    blocks: u64,
    /// The last block that added to it; parts are sorted by block.
    last: Option<BlockId>,
}

impl Sum {
    /// Adds the count of a block for each of its instructions that belong here.
    pub(super) fn add(&mut self, part: &Part, block: &BlockCount, addend: &Addend, counts: &BlockCounts) {
        self.executions.add(part, block, addend.instructions, counts);
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
        self.executions.add_stack(phase, instructions);
    }

    /// Adds the time at one of its instructions.
    pub(super) fn add_time(&mut self, spent: &Spent) {
        self.time.add(spent);
    }

    /// The sum, in the unit of the counts.
    pub(super) fn cell(&self, counts: &BlockCounts, time: Option<&Time>) -> Cell {
        let amount = self.executions.amount();
        let root = |variance: fn(&Executions, &BlockCounts) -> f64| {
            (0.0 < amount).then(|| variance(&self.executions, counts).sqrt())
        };
        Cell {
            amount,
            std_error: root(Executions::variance),
            by_chance: root(Executions::by_chance),
            samples: self.samples,
            flops: self.flops,
            time: time.map(|time| time.figure(self.time)),
            bytes: self.bytes,
            blocks: self.blocks,
        }
    }
}
