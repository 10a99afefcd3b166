//! Estimates of how often each basic block ran (paper sections III and IV).
//!
//! ```text
//! snapshot, located counts, blocks
//!    |
//!  assignment   which events are EBS, which are LBR, and the unit of the result
//!    |
//!  sources      samples by block (ebs); valid streams (streams), those of the kernel once for the system, and what each process
//!    |          image has of them (kernel_processes); branches in the oldest slot (oldest_slot)
//!    |  Counted, Stream, Branches
//!  waited       where figures are samples: each at the instruction that was waited for
//!    |  Counted, Waited
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
mod basis;
mod bias;
mod biases;
mod block_count;
mod chance;
mod classes;
pub mod error;
mod figure;
mod flow;
mod kinds_of_forms;
mod landing;
mod near;
mod passages;
mod result;
mod rings;
pub mod rule;
mod sampling;
mod sources;
pub mod stages;
mod sums;
mod timing;
mod totals;
mod unseen;
mod waited;
mod weighed;
mod whole_run;

pub use assignment::{EventAssignment, Unit, assign, disjoint};
use basis::Basis;
pub(crate) use bias::Bias;
pub(crate) use biases::Biases;
pub use block_count::{BlockCount, Estimate, Method, Part, Reason};
pub(crate) use chance::Chance;
pub use classes::{ClassEstimate, Classes, TiedSum, Ties, units};
pub use error::{Corrections, Dispersion, Sum};
pub use figure::Figure;
pub use flow::branches::TakenBranch;
use flow::branches::taken_branches;
use flow::graph::FlowGraph;
pub use flow::per_branch::Untied;

use hbbp_code::blocks::BlockMap;
use hbbp_code::locate::Located;
use hbbp_model::snapshot::Snapshot;
pub(crate) use landing::Skid;
pub use near::{ends_near, near_only};
pub use passages::{Flows, Passed, summed};
pub use result::{BlockCounts, Outcome};
pub use rule::Rule;
pub(crate) use sampling::Sampling;
use sources::ebs::Sampled;
pub use sources::lbr::{ExecutionCounts, execution_counts};
use sources::oldest_slot::Branches;
pub use sources::oldest_slot::Occurrences;
use sources::processes::with_others;
pub use sources::ring;
pub use sources::stream::Stream;
use sources::streams::Judged;
pub use sources::streams::{Line, judge};
use sources::{KernelProcesses, Observed, SeenBlocks, ebs, streams};
use stages::{Stage, Stages};
use waited::Attributed;
pub use waited::{Waited, Waits, time_slices};
use weighed::{Weighed, weighed};
use whole_run::WholeRun;

/// Estimates how often each block ran. The streams are taken out of `located`: they become those of the result.
pub fn estimate(snapshot: &Snapshot, located: &mut Located, map: &BlockMap, rule: &Rule) -> BlockCounts {
    let stages = rule.stages;
    let (mut with_others, n_together) = with_others(located, map);
    let located = leave_out(stages, with_others.as_mut().unwrap_or(located));
    let sampled = ebs::sampled(snapshot, located, map);
    let mut judged = streams::judged(snapshot, located, map);
    let assignment = assign(snapshot, &sampled.resolved, &judged.accepted);
    let basis = Basis::new(snapshot, map, &assignment, stages);
    let attributed = Attributed::new(basis, located, &sampled);
    let serving = || sampled.counts(&assignment);
    let hits = attributed.as_ref().map_or_else(serving, Attributed::by_block);
    let (samples, skid) = landing::traced(snapshot, map, located, &assignment, hits, stages);
    let counted = WholeRun::new(&snapshot.run.events, &assignment, &sampled, &judged, located);
    let (recorded, amounts, units) = judged.take_streams(snapshot, map, &assignment, stages);
    let branches = Branches::new(located, map, &assignment, &amounts);
    let depth = error::streams_per_stack(&recorded, branches.stacks, &assignment.lbr, &snapshot.run.events);

    let seen = SeenBlocks::of(map, &samples, &recorded);
    let kernel = KernelProcesses::new(basis, &mut judged, &seen, &samples);
    let graph = FlowGraph::new(located, map, &assignment, &recorded, &amounts);
    let dispersion = Dispersion::new(map, &seen, &recorded, &amounts);
    let n_stacks = recorded.iter().map(|s| s.hits as f64).sum::<f64>() / depth;
    let sampling = Sampling {
        kernel_samples: kernel.samples(),
        ..Sampling::new(units, n_stacks, depth, ebs::samples(snapshot, &assignment))
    };
    let observed = Observed {
        seen: &seen,
        samples: &samples,
        branches: &branches,
        kernel: &kernel,
        located,
    };
    let weighed = weighed(basis, recorded, graph, observed, sampling, counted);
    let chance = Chance::new(basis, &weighed, dispersion, observed, sampling);

    let (mut blocks, mut parts) = joined(basis, rule, observed, sampling, &weighed, &chance, skid);
    let waited = attributed.map(|attributed| attributed.divide(map, &blocks, &mut parts));
    let classes = weighed.tied(basis, &mut blocks, &mut parts);
    BlockCounts {
        assignment,
        blocks,
        parts,
        branches: taken_branches(&weighed.graph, &weighed.streams),
        streams: weighed.streams,
        biases: Biases {
            skid,
            ..weighed.biases
        },
        sampling,
        chance,
        n_together,
        classes,
        waited,
        outcome: outcome(sampled, judged),
    }
}

/// Both methods side by side, as chosen by the rule ([`rule::join`]).
fn joined(
    basis: Basis<'_>,
    rule: &Rule,
    observed: Observed<'_>,
    sampling: Sampling,
    weighed: &Weighed,
    chance: &Chance,
    skid: Option<Skid>,
) -> (Vec<BlockCount>, Vec<Part>) {
    let (seen, map) = (observed.seen, basis.map);
    let evidence = rule::Evidence {
        seen,
        ebs: observed.samples,
        lbr: &observed.kernel.counted(map, seen, &weighed.streams),
        branches: &observed.branches.of_blocks,
        oldest_share: observed.branches.share,
        lbr_errors: &chance.of_blocks(),
        streams_per_stack: sampling.streams_per_stack,
        corrections: &weighed.biases.corrections,
        skid,
    };
    rule::join(basis.snapshot, map, rule, &evidence)
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
