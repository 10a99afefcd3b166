//! Reweights streams so that flow is conserved at every branch target, regional totals agree with the EBS samples, and streams are as long
//! in the mean as was counted ([`super::per_branch`]).
//!
//! Were branch stacks taken at any moment alike, each branch would be found in the oldest slot as often as in any other.
//! Where a branch sits there out of proportion (paper section III.C), the stacks show what runs within one stack's depth
//! after it too often and the remainder too seldom; all blocks near it suffer, not only the one that it ends.
//! But how branches follow each other is recorded truly: each stack shows it, whatever moment it was taken at.
//! So there are two measurements of the inflow of a branch target: the streams that start there, and the branches that
//! lead there, times the inflow before them ([`super::graph`]). Both have errors, and weighted least squares reconciles
//! them.
//! Where successions are certain, in a block or in a chain of calls, they decide; where they are a matter of chance, the
//! streams do. Without a bias there is nothing to reconcile but chance: blocks of one chain then have one count, where each has its own
//! by the streams, and on the emulated machine the error over blocks falls by a fifth (kernel-tests/results/landed.txt).
//!
//! Successions by chance are not quite free of the bias: of a loop that a biased branch leads to, the stacks after that
//! branch show the first rounds and never the exit, so that it seems to be left less often than it is. How often regions
//! run, against each other, then depends on too little, and streams and branches are wrong together. EBS samples have no
//! part in that bias; they are the third measurement, good for regions where the other two are good within them
//! ([`super::skid`]), and for blocks as far as the times of instructions say where a sample lands ([`super::landed`]). And how
//! much of the run its phases have is known from stacks at a fixed period alone ([`super::by_phase`]).

use super::super::sources::streams::Stream;
use super::by_phase;
use super::graph::{Edge, FlowGraph, add, at};
use super::least_squares::{Equation, LONG, solve};
use super::per_branch::PerBranch;
use super::phases::Phases;
use super::return_sites;
use super::skid::SampledBlocks;
use crate::blocks::BlockMap;

/// Variance of a certain succession, as a share of the variance of a Poisson count. With a stack's 15 streams as the
/// variance of what is measured, it is carried on over the root of 15 / 0.01, some 40 branches, either way. Tried from 1e-4
/// to 1e-1 on the emulated machine: less lets rare successions outweigh what was measured, more leaves long loops uneven.
const CERTAIN: f64 = 1e-2;

/// Variance of any succession, in squared occurrences: a way that no stack showed may have been taken once all the same, as one that
/// was seen none of n times has one chance in n+2 by Laplace's rule of succession. Without it, code of few stacks held too little of
/// a run: 2.6 % in the mean of kernels that run less than a tenth of their load, with it 1.7 %. From 0.1 to 4 the mix differs by
/// 0.01 points (kernel-tests/results/by-phase.txt).
const UNSEEN: f64 = 1.0;

/// Rounds in which the variances are taken from the last result. They are proportional to the true inflow, and with the
/// measured one instead, small ones would weigh too much. The skid is settled to a twentieth in the third.
const ROUNDS: usize = 3;

/// Fewest streams that a variance is taken for: no inflow is known to less than half a stream.
const FEWEST: f64 = 0.5;

/// How wrong streams and their successions can be.
///
/// By chance, and by the bias: a share of the streams of each start is of stacks that were taken at the wrong moment
/// ([`super::excess`]). Of what is measured that is this share; of a succession with probability p, whose odds can be off by
/// this share, it is p (1-p) times as much.
#[derive(Clone, Copy, Debug)]
pub(in crate::estimate) struct Errors<'a> {
    /// Streams of a stack: together they tell as much as one alone.
    pub(in crate::estimate) streams_per_stack: f64,
    /// By start; nothing is off where there is none.
    pub(in crate::estimate) excess: &'a [f64],
    /// By start, the variance of its streams over that of as many that count one each; 1 where there is none.
    pub(in crate::estimate) dispersion: &'a [f64],
}

/// Edges from branches to the starts that they lead to, with their probabilities.
pub(in crate::estimate) struct Targets(Vec<Edge>);

impl Targets {
    /// As recorded.
    pub(in crate::estimate) fn recorded(graph: &FlowGraph) -> Self {
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
    pub(in crate::estimate) fn with_return_sites(graph: &FlowGraph, map: &BlockMap) -> Self {
        Self(return_sites::from_calls(map, graph, Self::recorded(graph).0))
    }
}

/// The balanced weights of the streams, which are as much in all as before. `inflow` is what [`balance`] found.
pub(in crate::estimate) fn reweighted(streams: &[Stream], graph: &FlowGraph, inflow: &[f64]) -> Vec<f64> {
    let weight = |(stream, edge): (&Stream, &Edge)| {
        let (balanced, measured) = (at(inflow, edge.from), at(&graph.inflow, edge.from));
        match 0.0 < measured {
            true => stream.weight * balanced / measured,
            false => stream.weight,
        }
    };
    streams.iter().zip(&graph.streams).map(weight).collect()
}

/// What is known of a run beside its streams.
pub(in crate::estimate) struct Known<'a> {
    pub(in crate::estimate) samples: SampledBlocks,
    pub(in crate::estimate) phases: &'a Phases,
    /// How long streams are in the mean, where that was counted.
    pub(in crate::estimate) per_branch: Option<&'a PerBranch>,
    /// How the inflow is shared out to the rings, where that was counted.
    pub(in crate::estimate) of_rings: Option<&'a Equation>,
}

/// What [`balance`] found.
#[derive(Clone, Debug, Default)]
pub(in crate::estimate) struct Balanced {
    /// The inflow of each start; in all as much as was measured.
    pub(in crate::estimate) inflow: Vec<f64>,
    /// Standard deviation of the skid of samples over an edge, in instructions.
    pub(in crate::estimate) skid: f64,
}

/// Reconciles the inflow of all starts.
pub(in crate::estimate) fn balance(
    graph: &FlowGraph,
    targets: &Targets,
    known: &Known<'_>,
    errors: Errors<'_>,
) -> Balanced {
    let samples = &known.samples;
    let n_starts = graph.inflow.len();
    let all: f64 = graph.inflow.iter().sum();
    let mut inflow = graph.inflow.clone();
    let mut skids = vec![0.0; samples.n_skids()];
    for _ in 0..ROUNDS {
        let mut equations = errors.measured(graph, &inflow);
        equations.extend(errors.conservation(graph, targets, &inflow));
        samples.equations(&samples.expected(&inflow), n_starts, &mut equations);
        equations.extend(by_phase::equations(known.phases, graph, &inflow, errors));
        equations.extend(known.of_rings.cloned());
        equations.extend(known.per_branch.and_then(|it| it.equation(&inflow)));
        let mut solved = solve(&equations, &[inflow.as_slice(), &skids].concat());
        skids = solved.split_off(n_starts);
        let sum: f64 = solved.iter().map(|a| a.max(0.0)).sum();
        if !sum.is_finite() || sum <= 0.0 {
            inflow.clone_from(&graph.inflow);
            break;
        }
        inflow = solved.iter().map(|a| a.max(0.0) * all / sum).collect();
    }
    let skid = samples.skid(&inflow);
    Balanced { inflow, skid }
}

impl Errors<'_> {
    /// Inflow is what was measured.
    fn measured(self, graph: &FlowGraph, inflow: &[f64]) -> Vec<Equation> {
        let equation = |((start, measured), inflow): ((usize, &f64), &f64)| {
            let bias = at(self.excess, start) * inflow;
            Equation {
                terms: vec![(start, 1.0)],
                value: *measured,
                weight: 1.0 / (self.of_stacks(start) * inflow.max(FEWEST) + bias * bias),
            }
        };
        let measured = graph.inflow.iter().enumerate().zip(inflow);
        measured.map(equation).collect()
    }

    /// Inflow is what branches lead to a start, and what comes from outside the recorded branches.
    fn conservation(self, graph: &FlowGraph, targets: &Targets, inflow: &[f64]) -> Vec<Equation> {
        let mut ended: Vec<Vec<(usize, f64)>> = vec![Vec::new(); graph.sources.len()];
        let mut outflow = vec![0.0; graph.sources.len()];
        let mut variance = vec![0.0; graph.sources.len()];
        for stream in &graph.streams {
            let probability = stream.amount / at(&graph.inflow, stream.from);
            let starts = at(inflow, stream.from);
            add(&mut outflow, stream.to, starts * probability);
            add(
                &mut variance,
                stream.to,
                self.of_choice(starts, probability, stream.from),
            );
            if let Some(ended) = ended.get_mut(stream.to) {
                ended.push((stream.from, probability));
            }
        }
        let mut n_targets = vec![0.0; graph.sources.len()];
        for target in &targets.0 {
            add(&mut n_targets, target.from, 1.0);
        }
        let both = inflow.iter().zip(&graph.external).enumerate();
        // The weights are variances until they are complete.
        let mut equations: Vec<Equation> = both
            .map(|(start, (inflow, external))| {
                let one = self.of_start(start);
                Equation {
                    terms: vec![(start, 1.0)],
                    value: *external,
                    weight: CERTAIN * inflow.max(FEWEST)
                        + UNSEEN * one * one
                        + self.of_stacks(start) * external,
                }
            })
            .collect();
        for target in &targets.0 {
            let Some(equation) = equations.get_mut(target.to) else {
                continue;
            };
            let (leaves, probability) = (at(&outflow, target.from), target.amount);
            equation.weight += self.of_choice(leaves, probability, target.to)
                + at(&variance, target.from) * probability * probability;
            let ended = ended.get(target.from).map_or(&[][..], Vec::as_slice);
            if LONG <= ended.len() && LONG as f64 <= at(&n_targets, target.from) {
                // Each of many streams would be tied to each of many targets: the last result stands in for them.
                equation.value += leaves * probability;
            } else {
                let term = |(start, ends): &(usize, f64)| (*start, -ends * probability);
                equation.terms.extend(ended.iter().map(term));
            }
        }
        for equation in &mut equations {
            equation.weight = 1.0 / equation.weight;
        }
        equations
    }

    /// The dispersion of a start.
    fn of_start(self, start: usize) -> f64 {
        self.dispersion.get(start).copied().unwrap_or(1.0)
    }

    /// The variance of the inflow of a start, over it: the streams of a stack tell as much as one.
    pub(super) fn of_stacks(self, start: usize) -> f64 {
        self.streams_per_stack.max(1.0) * self.of_start(start)
    }

    /// Variance of how often one succession of several was taken, at a start: each is a draw with probability p, of variance
    /// p (1-p).
    fn of_choice(self, times: f64, probability: f64, start: usize) -> f64 {
        let variance = self.of_start(start) * times * probability * (1.0 - probability);
        let bias = at(self.excess, start) * variance;
        variance + bias * bias
    }
}

#[cfg(test)]
mod tests;
