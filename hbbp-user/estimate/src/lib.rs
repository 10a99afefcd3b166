//! Estimates of how often each basic block ran (paper sections III and IV).
//!
//! ```text
//! snapshot, located counts, blocks
//!    |
//!  assignment   which events are EBS, which are LBR, and the unit of the result
//!    |
//!  sources      samples by block (ebs); valid streams (streams); branches in the oldest slot (oldest_slot)
//!    |  Counted, Stream, Branches
//!  landing      without stacks: samples traced back along the code to what triggered them
//!    |  Counted
//!  late         imprecise stacks: streams weighed for the time until stacks were read
//!    |  FlowGraph, Stream
//!  totals       retired instructions for each taken branch, as both were counted, less what streams never show (unseen)
//!    |  Totals
//!  flow         one graph of streams and branches (graph), and the phases of the run (phases); from what the graph leads to each
//!    |          branch target (conservation), from samples that skid (skid) and land by the times of instructions (landed), and
//!    |          from what streams are long in the mean (per_branch), how often each stream ran by least squares (balance):
//!    |          streams to reweighted streams
//!    |  FlowGraph, Phases, Stream
//!  rings        streams of each ring that agree with its taken branches, where these were counted by ring
//!    |  Stream
//!  classes      streams that agree with what was counted of classes of instructions
//!    |  Stream
//!  error        bootstrap replicates of stacks (bootstrap), variances within phases (strata), what a balance takes off them (effective),
//!    |          and what the corrections above may have left (correction)
//!    |  Chance
//!  rule         for each block the method that the rule file names (choose), with the other beside it (join)
//!    |
//!  classes      the same of blocks, where something is left
//!    |
//! BlockCounts   executions with standard errors, by block and process image
//! ```
//!
//! [`timing`] is what is assumed of a processor where samples are traced. [`stages`] names the stages that can be left out, so that what each is worth can be measured.

mod assignment;
mod bias;
mod chance;
mod classes;
pub mod error;
mod figure;
mod flow;
mod kinds_of_forms;
mod landing;
mod near;
mod rings;
pub mod rule;
mod sources;
pub mod stages;
mod sums;
mod timing;
mod totals;
mod unseen;
mod weighed;

use std::collections::BTreeMap;

pub use assignment::{EventAssignment, assign, disjoint};
pub use bias::Bias;
use chance::Chance;
pub use classes::{ClassEstimate, TiedSum, Ties, units};
pub use error::{BlockRun, Correction, Corrections, Dispersion, Replicate, Strata, Sum, strata};
pub use figure::Figure;
pub use flow::branches::TakenBranch;
use flow::branches::taken_branches;
use flow::graph::FlowGraph;
pub use flow::late::Late;
pub use flow::passages::{Flows, Passed, summed};
use hbbp_code::blocks::{BlockId, BlockMap};
use hbbp_code::locate::{Discard, Located, Tally, Unresolved};
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::{ModuleIdx, ProcessIdx, Snapshot};
pub use landing::Skid;
pub use near::{ends_near, near_only};
use rings::Ran;
pub use rule::{Reason, Rule};
use sources::ebs::Sampled;
pub use sources::lbr::{ExecutionCounts, execution_counts};
use sources::oldest_slot::Branches;
pub use sources::oldest_slot::Occurrences;
use sources::processes::with_others;
pub use sources::ring;
use sources::streams::Judged;
pub use sources::streams::{Line, Stream, judge};
use sources::{SeenBlocks, ebs, lbr, streams};
use stages::{Stage, Stages};
use totals::Totals;
pub use totals::Untied;
use weighed::weighed;

/// The unit of estimates.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// Estimated executions of instructions.
    Executions,
    /// Samples of a clock or of cycles: they say where time passed, not what was executed.
    TimeWeightedSamples,
    /// Samples of an event that counts neither executions nor time, such as micro-operations: they weigh an instruction by
    /// that event.
    EventWeightedSamples,
    /// Executions on a scale of its own: of streams in branch stacks that another event than taken branches triggered. As
    /// many as streams were seen.
    RelativeExecutions,
}

/// How the executions of a block are estimated.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Method {
    /// Eventing IPs (paper section III.A).
    Ebs,
    /// Streams between the entries of branch stacks (paper section III.B).
    Lbr,
}

/// One method's estimate for a block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Samples in the block, or streams that executed it; a stream that executed half of it counts one half.
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
    pub ebs: Option<Estimate>,
    /// By streams; `None` where this ring has none.
    pub lbr: Option<Estimate>,
    /// How often the branch that ends it was recorded; `None` where it was not.
    pub branch: Option<Occurrences>,
    /// Whether that branch sits in the oldest slot out of proportion, so that `lbr` is suspect.
    pub biased: bool,
    /// Which of the two counts.
    pub method: Method,
    /// Why.
    pub reason: Reason,
    /// The estimate of that method, tied by the counts of classes of instructions; `None` where it was not.
    pub tied: Option<Estimate>,
}

/// The part of one process image in the count of a block, by the block's method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Index in [`BlockCounts::blocks`].
    pub block: usize,
    /// The process image.
    pub process: ProcessIdx,
    /// As [`Estimate::hits`].
    pub hits: f64,
    /// As [`Estimate::count`].
    pub count: f64,
}

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
    /// Their counts by process image, sorted by (block, process).
    pub parts: Vec<Part>,
    /// The streams that were used, sorted by (text, process); [`execution_counts`] makes counts of instructions of them.
    pub streams: Vec<Stream>,
    /// Taken branches that one of these streams ended with and another one began after, sorted by (target, source).
    pub branches: Vec<TakenBranch>,
    /// Where they were balanced, what for.
    pub bias: Option<Bias>,
    /// Where eventing IPs served alone and were traced back, what was found of their skid.
    pub skid: Option<Skid>,
    /// Where branch stacks were read late, and streams weighed for it, when.
    pub late: Option<Late>,
    /// Where streams were tied to what was counted, how far they were from it.
    pub untied: Option<Untied>,
    /// What both corrections changed, or would have.
    pub corrections: Corrections,
    /// Streams in one branch stack, on average.
    pub streams_per_stack: f64,
    /// Branch stacks that the streams came from.
    pub n_stacks: f64,
    /// As many stacks would tell as much without a balance, where it took out chance alone; else as many as there were.
    pub effective_stacks: f64,
    /// Bootstrap replicates of stacks, for the errors of what is computed from the streams.
    pub replicates: Vec<Replicate>,
    /// The phases of the run, for the errors.
    pub strata: Strata,
    /// Where stacks do not count alike, how much counts vary beside those of stacks that do.
    pub dispersion: Dispersion,
    /// Samples of the EBS events in the run, those without a block included.
    pub samples: f64,
    /// Process images that are counted together, as [`ProcessIdx::OTHERS`].
    pub n_together: u64,
    /// Classes of instructions that were counted, by (class, ring); none where figures are no executions.
    pub classes: Vec<ClassEstimate>,
    /// What their counts take off the variances of sums.
    pub ties: Ties,
    /// What became of the samples and streams.
    pub outcome: Outcome,
}

/// Estimates how often each block ran. The streams are taken out of `located`: they become those of the result.
pub fn estimate(snapshot: &Snapshot, located: &mut Located, map: &BlockMap, rule: &Rule) -> BlockCounts {
    let stages = rule.stages;
    let (mut with_others, n_together) = with_others(located, map);
    let located = leave_out(stages, with_others.as_mut().unwrap_or(located));
    let sampled = ebs::sampled(snapshot, located, map);
    let mut judged = streams::judged(snapshot, located, map);
    let assignment = assign(snapshot, &sampled.resolved, &judged.accepted);
    let hits = sampled.counts(&assignment);
    let (samples, skid) = landing::traced((snapshot, map), located, &assignment, hits, stages);
    let counted = counted(snapshot, &assignment, (&sampled, &judged, located));
    let (recorded, amounts, units) = judged.take_streams((snapshot, map), &assignment, stages);
    let branches = Branches::new(located, map, &assignment, &amounts);
    let depth = error::streams_per_stack(&recorded, branches.stacks, &assignment.lbr, &snapshot.run.events);

    let seen = SeenBlocks::of(map, &samples, &recorded);
    let graph = FlowGraph::new(located, map, &assignment, (&recorded, &amounts));
    let dispersion = Dispersion::new(map, &seen, &recorded, &amounts);
    let n_stacks = recorded.iter().map(|s| s.hits as f64).sum::<f64>() / depth;
    let (of, by) = ((recorded, graph), (&seen, samples.as_slice()));
    let n_samples = error::samples(snapshot, &assignment);
    let of_run = (period(units, n_stacks, n_samples), depth);
    let known = (&assignment, &branches, of_run, counted);
    let weighed = weighed((snapshot, map), of, (by.0, by.1, located), known, stages);
    let of = (&weighed, dispersion);
    let chance = Chance::new(map, of, by, (n_stacks, depth, n_samples), stages);

    let evidence = rule::Evidence {
        seen: &seen,
        ebs: &samples,
        lbr: &lbr::by_block(map, &execution_counts(&weighed.streams)),
        branches: &branches.of_blocks,
        oldest_share: branches.share,
        lbr_errors: &chance.of_blocks(),
        streams_per_stack: depth,
        corrections: &weighed.corrections,
        skid,
    };
    let (mut blocks, mut parts) = rule::join(snapshot, map, rule, &evidence);
    let (run, of_blocks) = ((&snapshot.run, map), (&mut blocks[..], &mut parts[..]));
    let (classes, ties) = weighed.tied(run, &assignment, stages, of_blocks);
    BlockCounts {
        assignment,
        blocks,
        parts,
        branches: taken_branches(&weighed.graph, &weighed.streams),
        streams: weighed.streams,
        bias: weighed.bias,
        skid,
        late: weighed.late,
        untied: weighed.untied,
        corrections: weighed.corrections,
        streams_per_stack: depth,
        n_stacks,
        effective_stacks: chance.effective_stacks,
        replicates: chance.replicates,
        strata: chance.strata,
        dispersion: chance.dispersion,
        samples: n_samples,
        n_together,
        classes,
        ties,
        outcome: outcome(sampled, judged),
    }
}

/// What the events counted of all of the run, and of each ring.
fn counted(
    snapshot: &Snapshot,
    assignment: &EventAssignment,
    (sampled, judged, located): (&Sampled, &Judged, &Located),
) -> (Option<Totals>, Option<Ran>) {
    let events = &snapshot.run.events;
    let totals = Totals::new(events, assignment, (sampled, judged, located));
    (totals, Ran::new(events, assignment, judged, located))
}

/// What became of what was located.
fn outcome(sampled: Sampled, judged: Judged) -> Outcome {
    Outcome {
        resolved: sampled.resolved,
        unresolved: sampled.unresolved,
        inside: sampled.inside,
        accepted: judged.accepted,
        interrupted: judged.interrupted,
        discarded: judged.discarded,
        made_up: judged.made_up,
    }
}

/// Leaves out what does not serve.
fn leave_out(stages: Stages, located: &mut Located) -> &mut Located {
    if !stages.run(Stage::Stacks) {
        located.streams = Vec::new();
        located.branches = Vec::new();
    }
    located
}

/// Taken branches between two stacks, or two samples if these are rarer. Every taken branch ends a stream. Where another
/// event took the stacks, these are its units, of which there are more: phases then are too few rather than too many.
fn period(units: f64, n_stacks: f64, n_samples: f64) -> f64 {
    let rarer = if 0.0 < n_samples { n_samples } else { n_stacks };
    units / rarer.min(n_stacks).max(1.0)
}

impl BlockCounts {
    /// How many hits of a method tell as much as one that is independent of all others.
    pub const fn design_effect(&self, method: Method) -> f64 {
        match method {
            Method::Ebs => match &self.skid {
                Some(skid) => skid.dispersion,
                None => 1.0,
            },
            Method::Lbr => self.streams_per_stack,
        }
    }
}

impl BlockCount {
    /// The estimate of the chosen method, tied by counts of classes where there were any.
    pub fn chosen(&self) -> Estimate {
        self.tied.or(self.of(self.method)).unwrap_or_default()
    }

    /// A block that no method saw: nothing of it was executed, as far as that is known.
    pub const fn unseen(block: BlockId, ring: Ring, instructions: u32) -> Self {
        Self {
            block,
            ring,
            instructions,
            ebs: None,
            lbr: None,
            branch: None,
            biased: false,
            method: Method::Lbr,
            reason: Reason::OnlyMethod,
            tied: None,
        }
    }

    /// The estimate of one method, where it has data of the ring.
    pub const fn of(&self, method: Method) -> Option<Estimate> {
        match method {
            Method::Ebs => self.ebs,
            Method::Lbr => self.lbr,
        }
    }
}

impl Unit {
    /// Whether amounts are numbers of samples, which are whole in sum.
    pub const fn is_samples(self) -> bool {
        matches!(self, Self::TimeWeightedSamples | Self::EventWeightedSamples)
    }

    /// Stable name, used in JSON.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Executions => "executions",
            Self::TimeWeightedSamples => "time_weighted_samples",
            Self::EventWeightedSamples => "event_weighted_samples",
            Self::RelativeExecutions => "relative_executions",
        }
    }

    /// What a column of such estimates is called.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Executions => "estimated executions",
            Self::TimeWeightedSamples => "time-weighted samples",
            Self::EventWeightedSamples => "event-weighted samples",
            Self::RelativeExecutions => "relative executions",
        }
    }
}

impl Method {
    /// Stable name, used in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ebs => "EBS",
            Self::Lbr => "LBR",
        }
    }
}
