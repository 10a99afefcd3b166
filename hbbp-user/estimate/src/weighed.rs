//! The weights of streams: for the moment at which stacks were taken, for the flow, and by what was counted of rings and of classes.
//!
//! Each stage changes the weights that the one before left. What the first two change, or would, is kept beside them, as it says how far
//! off the counts may be ([`Corrections`]).

use super::basis::Basis;
use super::bias::balanced;
use super::classes::{self, Shift};
use super::error::Moved;
use super::flow::balance::{Known, reweighted};
use super::flow::graph::{Edge, FlowGraph};
use super::flow::landed::landed;
use super::flow::late;
use super::flow::phases::Phases;
use super::flow::skid::SampledBlocks;
use super::sampling::Sampling;
use super::sources::Observed;
use super::sources::ebs::by_instruction;
use super::sources::stream::Stream;
use super::stages::Stage;
use super::whole_run::WholeRun;
use super::{Biases, BlockCount, Classes, Part, Unit};
use crate::sums::over;

/// What branch stacks showed, with the weights that all stages leave.
pub(super) struct Weighed {
    pub(super) streams: Vec<Stream>,
    pub(super) graph: FlowGraph,
    /// The phases of the run; none if their stage is left out.
    pub(super) phases: Phases,
    pub(super) biases: Biases,
    /// What a balance moved, where it took out chance alone.
    pub(super) moved: Option<Moved>,
    pub(super) shifts: Vec<Shift>,
}

/// Weighs the streams for the moment at which stacks were taken, for the flow, and by what was counted.
pub(super) fn weighed(
    basis: Basis<'_>,
    mut streams: Vec<Stream>,
    mut graph: FlowGraph,
    observed: Observed<'_>,
    sampling: Sampling,
    counted: WholeRun,
) -> Weighed {
    let (map, depth) = (basis.map, sampling.streams_per_stack);
    let Observed { seen, samples, .. } = observed;
    let (mut biases, mut moved) = (modelled(basis, &streams), None);
    let late = (basis.assignment.unit == Unit::Executions)
        .then(|| late::weighed(&graph, &late::durations(map, &streams), depth))
        .flatten();
    let is_late = late.is_some();
    biases.late = late.and_then(|(on_time, late)| {
        let weights = weights(&streams, &graph, &on_time);
        biases.corrections.late(seen, changes(&streams, &weights));
        basis.runs(Stage::Late).then(|| {
            set_weights(&mut streams, &weights);
            graph = on_time;
            late
        })
    });
    let ring_of = |text| basis.ring(text);
    let counted = counted.of_stages(basis.stages);
    let per_branch = counted.per_branch(&streams, map, &graph, depth);
    let totals = counted.totals.zip(per_branch.as_ref());
    biases.untied = totals.map(|(totals, per_branch)| per_branch.untied(totals, &streams, &graph));
    let find = || Phases::find(&graph, sampling.period);
    let phases = basis.runs(Stage::Phases).then(find).unwrap_or_default();
    let counted = match basis.runs(Stage::Fallback) {
        true => counted.without_unseen(seen, samples, &streams, ring_of),
        false => counted,
    };
    let rings = counted.rings;
    let of_rings = rings.map(|ran| ran.equation(&streams, map, &graph, ring_of));
    let known = Known {
        samples: SampledBlocks::new(basis.snapshot, map, &graph, seen, samples),
        per_branch: per_branch.as_ref(),
        of_rings: of_rings.as_ref(),
    };
    let hits = || by_instruction(map, observed.located, basis.assignment, 1.0);
    let landed = || landed(map, &streams, &graph, seen, &hits());
    let balanced = balanced(basis, &graph, observed.branches, known, landed, depth);
    biases.flow = balanced.and_then(|(runs, bias)| {
        let weights = reweighted(&streams, &graph, &runs);
        match bias {
            Some(_) => biases.corrections.balanced(seen, changes(&streams, &weights)),
            // What late stacks change is not chance.
            None if is_late => {}
            None => moved = Some(Moved::new(seen, &weights, changes(&streams, &weights))),
        }
        set_weights(&mut streams, &weights);
        bias
    });
    counted.set_right(&mut streams, map, ring_of);
    let shifts = classes::streams_tied(basis, &mut streams, depth);
    Weighed {
        streams,
        graph,
        phases,
        biases,
        moved,
        shifts,
    }
}

/// What is known to be off before weights change: streams of bursts have the scale of a model.
fn modelled(basis: Basis<'_>, streams: &[Stream]) -> Biases {
    let mut biases = Biases::default();
    if basis.assignment.is_of_bursts(&basis.snapshot.run.events) {
        let instructions =
            |stream: &Stream| stream.weight * f64::from(stream.end.saturating_sub(stream.first));
        let all = streams.iter().map(instructions).sum();
        biases.corrections.modelled(all);
    }
    biases
}

impl Weighed {
    /// Ties the blocks and their parts by process image to the counts of classes, where something is left of them.
    pub(super) fn tied(&self, basis: Basis<'_>, blocks: &mut [BlockCount], parts: &mut [Part]) -> Classes {
        classes::tied(basis, &self.streams, &self.shifts, blocks, parts)
    }
}

/// The weights of streams where a graph has other amounts of them than the one that it was made of.
fn weights(streams: &[Stream], before: &FlowGraph, after: &FlowGraph) -> Vec<f64> {
    let edges = after.streams.iter().zip(&before.streams);
    let weight = |(stream, (after, before)): (&Stream, (&Edge, &Edge))| {
        stream.weight * over(after.amount, before.amount)
    };
    streams.iter().zip(edges).map(weight).collect()
}

/// What the weights of streams change by.
fn changes(streams: &[Stream], weights: &[f64]) -> impl Iterator<Item = f64> {
    let weighed = streams.iter().zip(weights);
    weighed.map(|(stream, weight)| weight - stream.weight)
}

fn set_weights(streams: &mut [Stream], weights: &[f64]) {
    for (stream, weight) in streams.iter_mut().zip(weights) {
        stream.weight = *weight;
    }
}
