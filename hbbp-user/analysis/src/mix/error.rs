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
    /// The last part of a block that added to it; parts are sorted by block and instruction.
    last: Option<(BlockId, Option<u32>)>,
}

impl Sum {
    /// Adds the count of a block for each of its instructions that belong here.
    pub(super) fn add(&mut self, part: &Part, block: &BlockCount, addend: &Addend, counts: &BlockCounts) {
        self.executions.add(part, block, addend.instructions, counts);
        // Samples that are figures belong to other instructions than they lie at ([`Self::add_landed`]).
        if part.instruction.is_none() {
            self.samples += part.hits * addend.instructions / f64::from(block.instructions.max(1));
        }
        self.flops += part.count * addend.flops;
        // All processes that run a block add the same instructions of it to a sum, or none.
        let here = Some((block.block, part.instruction));
        if 0.0 < part.count && self.last != here {
            self.bytes += addend.bytes;
            self.blocks += u64::from(self.last.map(|(block, _)| block) != Some(block.block));
            self.last = here;
        }
    }

    /// Adds the samples at one of its instructions.
    pub(super) fn add_landed(&mut self, hits: u64) {
        self.samples += hits as f64;
    }

    /// Adds the samples of the next time slice that has some.
    pub(super) fn add_slice(&mut self, counts: &BlockCounts, slice: usize, samples: f64) {
        self.executions.add_slice(counts, slice, samples);
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
