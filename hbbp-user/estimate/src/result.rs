//! The result of an estimate: how often each block ran, what its errors follow from, and what became of all samples and streams.

use std::collections::BTreeMap;

use super::assignment::EventAssignment;
use super::biases::Biases;
use super::block_count::{BlockCount, Method, Part};
use super::chance::Chance;
use super::classes::Classes;
use super::flow::branches::TakenBranch;
use super::sampling::Sampling;
use super::sources::stream::Stream;
use super::waited::Waited;
use hbbp_code::locate::{Discard, Tally, Unresolved};
use hbbp_model::snapshot::ModuleIdx;

/// What became of every sample and stream that was located, over all events, also those that the estimate does not use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Samples on an instruction.
    pub resolved: Tally<()>,
    /// Samples that are set aside.
    pub unresolved: Tally<Unresolved>,
    /// Those of them that lie inside an instruction, by module: there other text ran than is known.
    pub inside: BTreeMap<ModuleIdx, u64>,
    /// Streams that can have been executed.
    pub accepted: Tally<()>,
    /// Those of them that an interrupt or exception ended.
    pub interrupted: Tally<()>,
    /// Streams that are set aside.
    pub discarded: Tally<Discard>,
    /// Streams that are set aside because they cannot have been executed, and whose weight the accepted ones bear.
    pub made_up: u64,
}

/// How often each block ran.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockCounts {
    /// The events that were used, and the unit of all estimates.
    pub assignment: EventAssignment,
    /// Every block that a method saw, sorted by block.
    pub blocks: Vec<BlockCount>,
    /// Their counts by process image, sorted by (block, process), and of samples by (block, instruction, process).
    pub parts: Vec<Part>,
    /// The streams that were used, sorted by (text, process); [`crate::execution_counts`] makes counts of instructions of them.
    pub streams: Vec<Stream>,
    /// Taken branches that one of these streams ended with and another one began after, sorted by (target, source).
    pub branches: Vec<TakenBranch>,
    /// What the methods err by beside chance.
    pub biases: Biases,
    /// How much was sampled.
    pub sampling: Sampling,
    /// What is left to chance.
    pub chance: Chance,
    /// Process images that are counted together, as [`hbbp_model::snapshot::ProcessIdx::OTHERS`].
    pub n_together: u64,
    /// What classes of instructions that were counted tell.
    pub classes: Classes,
    /// Where figures are samples, what they follow from.
    pub waited: Option<Waited>,
    /// What became of the samples and streams.
    pub outcome: Outcome,
}

impl BlockCounts {
    /// The parts of a block, by its index.
    pub fn parts_of(&self, block: usize) -> &[Part] {
        let from = self.parts.partition_point(|part| part.block < block);
        let to = self.parts.partition_point(|part| part.block <= block);
        self.parts.get(from..to).unwrap_or(&[])
    }

    /// The samples of each time slice, of figures that are samples.
    pub(crate) fn slice_totals(&self) -> &[f64] {
        self.waited.as_ref().map_or(&[], |waited| &waited.totals)
    }

    /// How many hits of a method tell as much as one that is independent of all others.
    pub(crate) const fn design_effect(&self, method: Method) -> f64 {
        match method {
            Method::Ebs => match &self.biases.skid {
                Some(skid) => skid.dispersion,
                None => 1.0,
            },
            Method::Lbr => self.sampling.streams_per_stack,
        }
    }
}
