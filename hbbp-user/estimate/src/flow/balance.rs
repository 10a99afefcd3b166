//! Reweights streams so that flow is conserved at every branch target, regional totals agree with the EBS samples, and the mean length of
//! streams is as counted ([`super::per_branch`]).
//!
//! Were branch stacks taken at any moment alike, each branch would be found in the oldest slot as often as in any other.
//! Where a branch sits there out of proportion (paper section III.C), the stacks show what runs within one stack's depth
//! after it too often and the remainder too rarely; all blocks near it suffer, not only the one that it ends.
//! But how branches follow each other is recorded truly: each stack shows it, whatever moment it was taken at.
//! So there are two measurements of the inflow of a branch target: the streams that start there, and the branches that
//! lead there, times the inflow before them ([`super::conservation`]). Both have errors, and weighted least squares reconciles
//! them.
//! Where successions are certain, in a block or in a chain of calls, they decide; where they are a matter of chance, the
//! streams do. Without a bias there is nothing to reconcile but chance: blocks of one chain then have one count, where each has its own
//! by the streams. On the emulated machine, the error over blocks falls by a fifth (kernel-tests/results/landed.txt).
//!
//! Successions by chance are not quite free of the bias. Of a loop that a biased branch leads to, the stacks after that branch show the
//! first rounds and never the exit. So the loop seems to be left less often than it is. How often regions run, against each other, then
//! depends on too little, and streams and branches are wrong together. So shares are unknown as well, and streams run as often as the
//! shares that are found say, not those recorded. By those, of two loops one after the other, the second was entered half as often
//! as it was left. And EBS samples have no part in that bias; they are the third measurement. They are good for regions where the other two are
//! good within them ([`super::skid`]). They are good for blocks as far as the times of instructions say where a sample lands
//! ([`super::landed`]). They count instructions of streams, as what was counted of the run does, and so they tell shares too.

use super::super::sources::stream::Stream;
use super::conservation::Conservation;
use super::errors::Errors;
use super::graph::{Edge, FlowGraph};
use super::least_squares::{Equation, Solver};
use super::per_branch::PerBranch;
use super::return_sites;
use super::skid::SampledBlocks;
use crate::sums::{add, at};
use hbbp_code::blocks::BlockMap;

/// Rounds in which the variances are taken from the last result. They are proportional to the true inflow, and with the
/// measured one instead, small ones would weigh too much. The skid is settled to a twentieth in the third.
const ROUNDS: usize = 3;

/// Edges from branches to the starts that they lead to, with their probabilities.
pub(crate) struct Targets(Vec<Edge>);

impl Targets {
    /// As recorded.
    pub(crate) fn recorded(graph: &FlowGraph) -> Self {
        let mut all = vec![0.0; graph.sources.len()];
        for branch in &graph.branches {
            add(&mut all, branch.from, branch.amount);
        }
        let probability = |branch: &Edge| Edge {
            amount: branch.amount / at(&all, branch.from),
            ..*branch
        };
        Self(graph.branches.iter().map(probability).collect())
    }

    /// As recorded, but with return sites reached from their calls.
    pub(crate) fn with_return_sites(graph: &FlowGraph, map: &BlockMap) -> Self {
        Self(return_sites::from_calls(map, graph, Self::recorded(graph).0))
    }
}

/// The balanced weights of the streams, which are as much in all as before. `runs` is what [`balance`] found.
pub(crate) fn reweighted(streams: &[Stream], graph: &FlowGraph, runs: &[f64]) -> Vec<f64> {
    let weight = |((stream, recorded), runs): ((&Stream, f64), &f64)| match 0.0 < recorded {
        true => stream.weight * runs / recorded,
        false => stream.weight,
    };
    streams.iter().zip(graph.runs()).zip(runs).map(weight).collect()
}

/// What is known of a run beside its streams.
pub(crate) struct Known<'a> {
    pub(crate) samples: SampledBlocks,
    /// How long streams are in the mean, where that was counted.
    pub(crate) per_branch: Option<&'a PerBranch>,
    /// How streams are shared out to the rings, where that was counted.
    pub(crate) of_rings: Option<&'a Equation>,
}

/// How often each stream ran; in all as much as was measured.
pub(crate) fn balance(
    graph: &FlowGraph,
    targets: &Targets,
    known: &Known<'_>,
    errors: Errors<'_>,
) -> Vec<f64> {
    let samples = &known.samples;
    let n_starts = graph.inflow.len();
    let all: f64 = graph.inflow.iter().sum();
    let mut inflow = graph.inflow.clone();
    let mut skids = vec![0.0; samples.n_skids()];
    let n_before = n_starts + skids.len();
    let mut conservation = Conservation::new(graph, &targets.0, errors, n_before);
    let mut solver = Solver::default();
    for _ in 0..ROUNDS {
        let mut first = [inflow.as_slice(), &skids].concat();
        first.resize(n_before + conservation.n_deviations(), 0.0);
        conservation.weigh(&inflow);
        let runs = conservation.runs(&inflow);
        let mut equations = errors.measured(graph, &inflow);
        conservation.equations(&inflow, &mut equations);
        let terms = |of_streams: &[_]| conservation.terms(of_streams);
        samples.equations(&samples.expected(&runs), terms, n_starts, &mut equations);
        let of_streams = [
            known.of_rings.cloned(),
            known.per_branch.and_then(|it| it.equation(&runs)),
        ];
        equations.extend(of_streams.into_iter().flatten().map(|equation| Equation {
            terms: terms(&equation.terms),
            ..equation
        }));
        let mut solved = solver.solve(&equations, &first);
        conservation.found(&solved);
        solved.truncate(n_before);
        skids = solved.split_off(n_starts);
        let sum: f64 = solved.iter().map(|a| a.max(0.0)).sum();
        if !sum.is_finite() || sum <= 0.0 {
            return graph.runs().collect();
        }
        inflow = solved.iter().map(|a| a.max(0.0) * all / sum).collect();
    }
    conservation.runs(&inflow)
}

#[cfg(test)]
mod tests;
