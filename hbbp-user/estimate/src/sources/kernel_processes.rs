//! Which process images ran the kernel's code: by their own stacks, where these were kept apart, else by samples of addresses.

use std::ops::Range;

use super::kernel_samples::KernelSamples;
use super::kernel_shares::KernelShares;
use super::lbr::{by_block, execution_counts};
use super::stream::Stream;
use super::streams::Judged;
use super::{Counted, SeenBlocks};
use crate::basis::Basis;
use hbbp_code::blocks::BlockMap;
use hbbp_model::snapshot::ProcessIdx;

/// How the kernel's executions are divided between process images.
#[derive(Debug)]
pub(crate) enum KernelProcesses {
    /// By the streams that each has in its stacks.
    ByStreams(KernelShares),
    /// By the samples that each has in a function.
    BySamples(KernelSamples),
}

impl Default for KernelProcesses {
    fn default() -> Self {
        Self::BySamples(KernelSamples::default())
    }
}

impl KernelProcesses {
    /// By what was recorded of the events that serve.
    pub(crate) fn new(basis: Basis<'_>, judged: &mut Judged, seen: &SeenBlocks, samples: &[Counted]) -> Self {
        let shares = judged.take_kernel(basis.assignment);
        if shares.is_empty() {
            Self::BySamples(KernelSamples::new(basis.snapshot, basis.map, seen, samples))
        } else {
            Self::ByStreams(shares)
        }
    }

    /// The blocks that streams executed, sorted by (block, process).
    pub(crate) fn counted(&self, map: &BlockMap, seen: &SeenBlocks, streams: &[Stream]) -> Vec<Counted> {
        match self {
            Self::ByStreams(shares) => by_block(map, &execution_counts(&shares.divided(streams))),
            Self::BySamples(samples) => samples.divided(seen, by_block(map, &execution_counts(streams))),
        }
    }

    /// Blocks that a resampled stack executed in a stream, each range with its process image. It is `own`, which ran the stack's
    /// user code, if that ran such kernel code. Otherwise it is the one at a `fraction` of all.
    pub(crate) fn drawn(
        &self,
        stream: &Stream,
        blocks: Range<usize>,
        own: Option<ProcessIdx>,
        fraction: f64,
    ) -> impl Iterator<Item = (Range<usize>, ProcessIdx)> {
        let is_whole = matches!(self, Self::ByStreams(_)) || stream.process != ProcessIdx::KERNEL;
        // A stream may run from one function into the next.
        let step = if is_whole { blocks.len().max(1) } else { 1 };
        let end = blocks.end;
        blocks.step_by(step).map(move |from| {
            let process = match self {
                Self::ByStreams(shares) => shares.drawn(stream, own, fraction),
                Self::BySamples(_) if is_whole => stream.process,
                Self::BySamples(samples) => samples.drawn(from, own, fraction),
            };
            (from..end.min(from + step), process)
        })
    }

    /// Samples that divide what stacks count once for the system; 0 where none do.
    pub(crate) const fn samples(&self) -> f64 {
        match self {
            Self::ByStreams(_) => 0.0,
            Self::BySamples(samples) => samples.n,
        }
    }
}
