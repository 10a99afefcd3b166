//! Estimates of how often each basic block ran (paper sections III and IV).
//!
//! Two sources count the same blocks, eventing IPs (`ebs`) and streams of branch stacks (`stream`, `lbr`, `bias`), and a
//! rule chooses between them for each block (`rule`, `hybrid`, `join`).
//! Each figure comes with its standard error and says what it is: executions, or samples of a clock.

mod balance;
mod bias;
mod calls;
mod chain;
mod ebs;
pub mod error;
mod far;
mod hybrid;
mod join;
mod lbr;
mod phase;
mod resample;
mod roles;
pub mod rule;
mod skid;
mod solve;
pub mod strata;
mod stream;

use crate::addr::Ring;
use crate::blocks::{BlockId, BlockMap};
use crate::locate::{Discard, Located, Tally, TextIdx, Unresolved};
use crate::snapshot::{ProcessIdx, Snapshot};
use balance::Known;
pub use bias::Occurrences;
pub use far::{ends_near, near_only};
pub use hybrid::Reason;
pub use lbr::{Passes, passes};
use phase::Phases;
pub use resample::{Drawn, Ran, Stacks};
pub use roles::{Roles, roles};
pub use rule::{Rule, Weighing};
pub use strata::Strata;
pub use stream::{Line, Stream, judge};

/// What the figures of an estimate are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// Estimated executions of instructions.
    Executions,
    /// Samples of a clock or of cycles: they say where time passed, not what was executed.
    TimeWeightedSamples,
    /// Samples of an event that counts neither executions nor time, such as micro-operations, or streams of branch
    /// stacks that another event than taken branches triggered: they weigh an instruction by that event.
    EventWeightedSamples,
}

/// Where the figure of a block comes from.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Source {
    /// Eventing IPs (paper section III.A).
    Ebs,
    /// Streams between the entries of branch stacks (paper section III.B).
    Lbr,
}

/// One source's figure for a block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figure {
    /// Samples in the block, or streams that passed it; a stream that passed half of it counts one half.
    pub hits: f64,
    /// How often the block ran, in the unit of the estimate: the amount of each of its instructions.
    pub count: f64,
    /// Standard error of `count`.
    pub std_error: f64,
}

/// The result for one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockCount {
    /// The block.
    pub block: BlockId,
    /// Its ring.
    pub ring: Ring,
    /// Its length in instructions.
    pub instructions: u32,
    /// By eventing IPs; `None` where this ring has none.
    pub ebs: Option<Figure>,
    /// By streams; `None` where this ring has none.
    pub lbr: Option<Figure>,
    /// How often the branch that ends it was recorded; `None` where it was not.
    pub branch: Option<Occurrences>,
    /// Whether that branch sits in the oldest slot out of proportion, so that `lbr` is suspect.
    pub biased: bool,
    /// Which of the two counts.
    pub source: Source,
    /// Why.
    pub reason: Reason,
}

/// The part of one process image in the count of a block, from the block's source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Index in [`BlockCounts::blocks`].
    pub block: usize,
    /// The process image.
    pub process: ProcessIdx,
    /// As [`Figure::hits`].
    pub hits: f64,
    /// As [`Figure::count`].
    pub count: f64,
}

/// What became of every sample and stream that was located, over all events, also those that the estimate does not use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Samples on an instruction.
    pub resolved: Tally<()>,
    /// Samples that are set aside.
    pub unresolved: Tally<Unresolved>,
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
    /// The events that were used, and the unit of all figures.
    pub roles: Roles,
    /// Every block that a source saw, sorted by block.
    pub blocks: Vec<BlockCount>,
    /// Their counts by process image, sorted by (block, process).
    pub parts: Vec<Part>,
    /// The streams that were used, sorted by (text, process); [`passes`] makes counts of instructions of them.
    pub streams: Vec<Stream>,
    /// Where they were balanced, the share of the oldest slots that branches hold beyond what is due to them.
    pub bias: Option<f64>,
    /// Streams in one branch stack, on average.
    pub streams_per_stack: f64,
    /// Branch stacks that the streams came from.
    pub n_stacks: f64,
    /// Stacks drawn anew, for the errors of what is computed from the streams.
    pub resampled: Stacks,
    /// The phases of the run, for the errors.
    pub strata: Strata,
    /// Samples of the EBS events in the run, those without a block included.
    pub samples: f64,
    /// What became of the samples and streams.
    pub outcome: Outcome,
}

/// Counts of one source in one block by one process image.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counted {
    block: BlockId,
    process: ProcessIdx,
    hits: f64,
    /// In units of the event.
    weight: f64,
}

/// Share of the oldest slots that branches must hold beyond their due before streams are balanced: a hundredth of the stacks
/// in the wrong place is less than the sampling error of most counts.
const BIAS: f64 = 0.01;

/// Estimates how often each block ran.
pub fn estimate(snapshot: &Snapshot, located: &Located, map: &BlockMap, rule: &Rule) -> BlockCounts {
    let roles = roles(snapshot);
    let sampled = ebs::sampled(snapshot, located, map, &roles);
    let mut judged = stream::judged(snapshot, located, map, &roles);
    let streams_per_stack = error::streams_per_stack(&judged.streams, located, &roles, &snapshot.run.events);
    let ways = resample::branches(located, map, &roles);
    let branches = bias::occurrences(located, map, &roles.lbr);
    let due_share = bias::due_share(located, &roles.lbr);
    let excess = bias::excess(&branches, due_share);
    let known = Known {
        ebs: &sampled.counts,
        streams_per_stack,
        excess,
    };
    let balanced = rule.streams == Weighing::Balanced
        && BIAS < excess
        && balance::balance(snapshot, located, map, &roles, &known, &mut judged.streams);
    let passed = lbr::counts(map, &passes(&judged.streams));
    let scale = join::Scale {
        unit: roles.unit,
        streams_per_stack,
    };
    let seen = join::Seen {
        ebs: &sampled.counts,
        lbr: &passed,
        branches: &branches,
        due_share,
    };
    let (mut blocks, parts) = join::join(snapshot, map, rule, scale, &seen);
    let index = |block: BlockId| blocks.binary_search_by_key(&block, |b| b.block).ok();
    let n_streams: f64 = judged.streams.iter().map(|s| s.hits as f64).sum();
    let n_stacks = n_streams / streams_per_stack;
    let samples = error::samples(snapshot, &roles);
    let phases = Phases::find(&judged.streams, &ways, streams_per_stack, n_stacks, samples);
    let resampled = resample::resample(&judged.streams, &ways, map, &phases, streams_per_stack, index);
    let mut strata = Strata::new(&phases, blocks.len());
    strata.place_blocks(&judged.streams, map, &phases, index);
    strata.count_stacks(&resampled);
    strata.count_samples(&blocks, samples);
    error::refine(&mut blocks, &resampled, &strata, n_stacks);
    let outcome = Outcome {
        resolved: sampled.resolved,
        unresolved: sampled.unresolved,
        accepted: judged.accepted,
        interrupted: judged.interrupted,
        discarded: judged.discarded,
        made_up: judged.made_up,
    };
    BlockCounts {
        roles,
        blocks,
        parts,
        streams: judged.streams,
        bias: balanced.then_some(excess),
        streams_per_stack,
        n_stacks,
        resampled,
        strata,
        samples,
        outcome,
    }
}

/// Sums counts of the same block and process; the result is sorted by (block, process).
/// The sort is stable, so that sums of fractions are always made in the same order.
fn summed(mut counts: Vec<Counted>) -> Vec<Counted> {
    let key = |c: &Counted| (c.block, c.process);
    counts.sort_by_key(key);
    counts.dedup_by(|next, kept| {
        let equal = key(next) == key(kept);
        if equal {
            kept.hits += next.hits;
            kept.weight += next.weight;
        }
        equal
    });
    counts
}

/// The ring of a stretch of text, by its module.
fn ring(snapshot: &Snapshot, map: &BlockMap, text: TextIdx) -> Ring {
    let module = map
        .text(text)
        .and_then(|t| snapshot.modules.get(t.module.0 as usize));
    if module.is_some_and(|m| m.kind.is_kernel()) {
        Ring::Kernel
    } else {
        Ring::User
    }
}

impl BlockCounts {
    /// How many hits of a source tell as much as one that is independent of all others.
    pub const fn design_effect(&self, source: Source) -> f64 {
        match source {
            Source::Ebs => 1.0,
            Source::Lbr => self.streams_per_stack,
        }
    }
}

impl BlockCount {
    /// The figure of the chosen source.
    pub fn chosen(&self) -> Figure {
        self.of(self.source).unwrap_or_default()
    }

    /// The figure of one source, where it has data of the ring.
    pub const fn of(&self, source: Source) -> Option<Figure> {
        match source {
            Source::Ebs => self.ebs,
            Source::Lbr => self.lbr,
        }
    }
}

impl Unit {
    /// Stable name, used in JSON.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Executions => "executions",
            Self::TimeWeightedSamples => "time_weighted_samples",
            Self::EventWeightedSamples => "event_weighted_samples",
        }
    }

    /// What a column of such figures is called.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Executions => "estimated executions",
            Self::TimeWeightedSamples => "time-weighted samples",
            Self::EventWeightedSamples => "event-weighted samples",
        }
    }
}

impl Source {
    /// Stable name, used in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ebs => "EBS",
            Self::Lbr => "LBR",
        }
    }
}
