//! The weights of streams: for the moment at which stacks were taken, for the flow, and by what was counted of rings and of classes.
//!
//! Each stage changes the weights that the one before left. What the first two change, or would, is kept beside them, as it says how far
//! off the counts may be ([`Corrections`]).

use super::bias::balanced;
use super::classes::{self, Shift};
use super::error::Moved;
use super::flow::balance::{Known, reweighted};
use super::flow::graph::{Edge, FlowGraph};
use super::flow::landed::landed;
use super::flow::late::{self, Late};
use super::flow::per_branch::{PerBranch, Untied};
use super::flow::phases::Phases;
use super::flow::skid::SampledBlocks;
use super::rings::Ran;
use super::sources::ebs::by_instruction;
use super::sources::oldest_slot::Branches;
use super::sources::streams::Stream;
use super::sources::{self, SeenBlocks, ring};
use super::stages::{Stage, Stages};
use super::totals::Totals;
use super::{Bias, BlockCount, ClassEstimate, Corrections, EventAssignment, Part, Ties, Unit, unseen};
use crate::sums::over;
use hbbp_code::blocks::BlockMap;
use hbbp_code::locate::{Located, TextIdx};
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::{Run, Snapshot};

/// What branch stacks showed, with the weights that all stages leave.
pub(super) struct Weighed {
    pub(super) streams: Vec<Stream>,
    pub(super) graph: FlowGraph,
    /// The phases of the run; none where their stage is left out.
    pub(super) phases: Phases,
    pub(super) bias: Option<Bias>,
    pub(super) late: Option<Late>,
    pub(super) untied: Option<Untied>,
    pub(super) corrections: Corrections,
    /// What a balance moved, where it took out chance alone.
    pub(super) moved: Option<Moved>,
    pub(super) shifts: Vec<Shift>,
}

/// What events counted of all of the run, and of each ring.
type Counted = (Option<Totals>, Option<Ran>);

/// Weighs the streams for the moment at which stacks were taken, for the flow, and by what was counted.
pub(super) fn weighed(
    (snapshot, map): (&Snapshot, &BlockMap),
    (mut streams, mut graph): (Vec<Stream>, FlowGraph),
    (seen, samples, located): (&SeenBlocks, &[sources::Counted], &Located),
    (assignment, branches, (period, depth), (totals, ran)): (
        &EventAssignment,
        &Branches,
        (f64, f64),
        Counted,
    ),
    stages: Stages,
) -> Weighed {
    let (mut corrections, mut moved) = (Corrections::default(), None);
    let late = (assignment.unit == Unit::Executions)
        .then(|| late::weighed(&graph, &late::durations(map, &streams), depth))
        .flatten();
    let is_late = late.is_some();
    let late = late.and_then(|(on_time, late)| {
        let weights = weights(&streams, (&graph, &on_time));
        corrections.late(seen, changes(&streams, &weights));
        stages.run(Stage::Late).then(|| {
            set_weights(&mut streams, &weights);
            graph = on_time;
            late
        })
    });
    let ring_of = |text| ring(snapshot, map, text);
    let totals = totals.filter(|_| stages.run(Stage::Totals));
    let per_branch = totals.map(|totals| PerBranch::new(totals, (&streams, map), &graph, depth));
    let both = totals.zip(per_branch.as_ref());
    let untied = both.map(|(totals, per_branch)| per_branch.untied(totals, &streams, &graph));
    let phases = stages.run(Stage::Phases).then(|| Phases::find(&graph, period));
    let phases = phases.unwrap_or_default();
    let ran = ran.filter(|_| stages.run(Stage::Rings));
    let (totals, ran) = match stages.run(Stage::Fallback) {
        true => without_unseen((totals, ran), (seen, samples, &streams), ring_of),
        false => (totals, ran),
    };
    let of_rings = ran.map(|ran| ran.equation((&streams, map), &graph, ring_of));
    let known = Known {
        samples: SampledBlocks::new(snapshot, map, &graph, seen, samples),
        per_branch: per_branch.as_ref(),
        of_rings: of_rings.as_ref(),
    };
    let hits = || by_instruction(map, located, assignment, 1.0);
    let landed = || landed(map, (&streams, &graph), seen, &hits());
    let run = (assignment, depth, stages);
    let bias = balanced((&graph, map), (branches, known), landed, run).and_then(|(runs, bias)| {
        let weights = reweighted(&streams, &graph, &runs);
        match bias {
            Some(_) => corrections.balanced(seen, changes(&streams, &weights)),
            // What late stacks change is not chance.
            None if is_late => {}
            None => moved = Some(Moved::new(seen, &weights, changes(&streams, &weights))),
        }
        set_weights(&mut streams, &weights);
        bias
    });
    set_right(&mut streams, map, (totals, ran), ring_of);
    let of_streams = (streams.as_mut_slice(), depth);
    let shifts = classes::streams_tied((&snapshot.run, map), assignment, ring_of, of_streams, stages);
    Weighed {
        streams,
        graph,
        phases,
        bias,
        late,
        untied,
        corrections,
        moved,
        shifts,
    }
}

impl Weighed {
    /// Ties the blocks and their parts by process image to the counts of classes, where something is left of them.
    pub(super) fn tied(
        &self,
        of_run: (&Run, &BlockMap),
        assignment: &EventAssignment,
        stages: Stages,
        of_blocks: (&mut [BlockCount], &mut [Part]),
    ) -> (Vec<ClassEstimate>, Ties) {
        let shifts = (stages, self.shifts.as_slice());
        classes::tied(of_run, assignment, &self.streams, shifts, of_blocks)
    }
}

/// What was counted, less the code that samples show and streams never do.
fn without_unseen(
    (totals, ran): Counted,
    (seen, samples, streams): (&SeenBlocks, &[sources::Counted], &[Stream]),
    ring_of: impl Fn(TextIdx) -> Ring,
) -> Counted {
    let of_ring = |ring| unseen::share(seen, samples, streams, |text| ring_of(text) == ring);
    (
        totals.map(|totals| totals.without(unseen::share(seen, samples, streams, |_| true))),
        ran.map(|ran| ran.without(of_ring)),
    )
}

/// Scales streams to what was counted, of each ring where that is known.
fn set_right(streams: &mut [Stream], map: &BlockMap, counted: Counted, ring_of: impl Fn(TextIdx) -> Ring) {
    match counted {
        (_, Some(ran)) => ran.set_right(streams, map, ring_of),
        (Some(totals), None) => totals.set_right(streams, map),
        (None, None) => {}
    }
}

/// The weights of streams where a graph has other amounts of them than the one that it was made of.
fn weights(streams: &[Stream], (before, after): (&FlowGraph, &FlowGraph)) -> Vec<f64> {
    let edges = after.streams.iter().zip(&before.streams);
    let weight = |(stream, (after, before)): (&Stream, (&Edge, &Edge))| {
        stream.weight * over(after.amount, before.amount)
    };
    streams.iter().zip(edges).map(weight).collect()
}

/// What the weights of streams change by.
fn changes(streams: &[Stream], weights: &[f64]) -> impl Iterator<Item = f64> {
    let both = streams.iter().zip(weights);
    both.map(|(stream, weight)| weight - stream.weight)
}

fn set_weights(streams: &mut [Stream], weights: &[f64]) {
    for (stream, weight) in streams.iter_mut().zip(weights) {
        stream.weight = *weight;
    }
}
