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
/// a run: the kernel's had 4 % less, in the mean of loads that leave it a twentieth, with it 2 %, unbalanced 0.5 %
/// (kernel-tests/results/by-phase.txt).
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
#[derive(Clone, Copy)]
pub(in crate::estimate) struct Known<'a> {
    pub(in crate::estimate) samples: &'a SampledBlocks,
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
    known: Known<'_>,
    errors: Errors<'_>,
) -> Balanced {
    let samples = known.samples;
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
mod tests {
    use super::*;
    use crate::estimate::flow::graph::tests::graph;
    use crate::estimate::flow::per_branch::tests::per_branch;
    use crate::estimate::flow::skid::tests::sampled_blocks;

    const FAIR: Errors<'_> = Errors {
        streams_per_stack: 15.0,
        excess: &[],
        dispersion: &[],
    };

    /// Starts in a row, each with one stream and one branch that leads to the next start, and from the last one back to the
    /// first; the branch of the `n`-th start goes to the first of the other loop with the probability `out[n]`.
    fn loops(inflow: [&[f64]; 2], out: [&[f64]; 2]) -> (FlowGraph, Targets) {
        let lengths = inflow.map(<[f64]>::len);
        let begins = [0, lengths[0]];
        let mut targets = Vec::new();
        for side in 0..2 {
            for (i, out) in out[side].iter().enumerate() {
                let from = begins[side] + i;
                let next = begins[side] + (i + 1) % lengths[side];
                let other = begins[1 - side];
                let edge = |(to, amount)| Edge { from, to, amount };
                targets.extend([(next, 1.0 - out), (other, *out)].map(edge));
            }
        }
        let inflow = inflow.concat();
        let streams: Vec<_> = inflow.iter().enumerate().map(|(n, hits)| (n, n, *hits)).collect();
        let mut graph = graph(&streams, &[]);
        graph.external.fill(0.0);
        (graph, Targets(targets))
    }

    /// Nothing but the samples.
    fn known<'a>(samples: &'a SampledBlocks, phases: &'a Phases) -> Known<'a> {
        Known {
            samples,
            phases,
            per_branch: None,
            of_rings: None,
        }
    }

    fn balanced(
        (graph, targets): &(FlowGraph, Targets),
        samples: &SampledBlocks,
        errors: Errors<'_>,
    ) -> Vec<f64> {
        let phases = Phases::default();
        balance(graph, targets, known(samples, &phases), errors).inflow
    }

    fn assert_near(a: f64, b: f64, tolerance: f64) {
        assert!((a - b).abs() <= tolerance * b, "{a} is not {b}");
    }

    #[test]
    fn a_loop_longer_than_a_stack_is_evened_out() {
        // Stacks of 15 streams that begin at the first branch of the loop in four cases of ten.
        let biased: Vec<f64> = (0..40).map(|i| if i < 15 { 14_000.0 } else { 6_000.0 }).collect();
        let other = vec![5_000.0; 10];
        let loops = self::loops([&biased, &other], [&[0.0; 40], &[0.0; 10]]);
        let balanced = balanced(&loops, &SampledBlocks::default(), FAIR);
        let mean = biased.iter().sum::<f64>() / 40.0;
        for (start, inflow) in balanced.iter().enumerate() {
            assert_near(*inflow, if start < 40 { mean } else { 5_000.0 }, 0.02);
        }
        assert_near(balanced.iter().sum(), biased.iter().chain(&other).sum(), 1e-9);
    }

    #[test]
    fn consistent_flow_stays() {
        // As often as the first loop is left for the second one, the second is left for the first.
        let first = vec![1_000.0; 20];
        let second = vec![4_000.0; 8];
        let mut out = [vec![0.0; 20], vec![0.0; 8]];
        out[0][19] = 0.2;
        out[1][7] = 0.05;
        let loops = self::loops([&first, &second], [&out[0], &out[1]]);
        for (balanced, measured) in balanced(&loops, &SampledBlocks::default(), FAIR)
            .iter()
            .zip(&loops.0.inflow)
        {
            assert_near(*balanced, *measured, 1e-3);
        }
    }

    #[test]
    fn one_succession_by_chance_moves_little() {
        // The load went from one loop to the other once; nothing is known of a way back.
        let sizes = [vec![1_000.0; 20], vec![1_000.0; 8]];
        let mut out = [vec![0.0; 20], vec![0.0; 8]];
        out[0][3] = 1e-3;
        let loops = self::loops([&sizes[0], &sizes[1]], [&out[0], &out[1]]);
        let balanced = balanced(&loops, &SampledBlocks::default(), FAIR);
        assert_near(balanced[..20].iter().sum(), 20_000.0, 0.05);
        assert_near(balanced[20..].iter().sum(), 8_000.0, 0.05);
    }

    /// Two loops that are left for each other, the first of which looks half again as frequent and half again as hard to
    /// leave as it is: both were run through as often. Blocks of ten instructions each.
    fn seemingly_long() -> (FlowGraph, Targets) {
        let mut out = [vec![0.0; 20], vec![0.0; 20]];
        out[0][19] = 0.10 / 1.5;
        out[1][19] = 0.10;
        loops([&[30_000.0; 20], &[20_000.0; 20]], [&out[0], &out[1]])
    }

    const BIASED: Errors<'_> = Errors {
        streams_per_stack: 15.0,
        excess: &[0.3; 40],
        dispersion: &[],
    };

    /// The first loop's share of all inflow, which should be half.
    fn first_loop(balanced: &[f64]) -> f64 {
        balanced[..20].iter().sum::<f64>() / balanced.iter().sum::<f64>()
    }

    #[test]
    fn samples_decide_between_regions() {
        let loops = seemingly_long();
        let edges: Vec<_> = (0..40)
            .map(|n| (n, n / 20 * 20 + (n + 1) % 20, 20_000.0))
            .collect();
        assert!(0.59 < first_loop(&balanced(&loops, &SampledBlocks::default(), BIASED)));
        let exact = sampled_blocks(10.0, &[1000.0; 40], &edges);
        let share = first_loop(&balanced(&loops, &exact, BIASED));
        assert!((share - 0.5).abs() < 0.01, "{share}");
        // Half of the samples of each second block are found in the next one.
        let samples: Vec<f64> = (0..40).map(|n| if n % 2 == 0 { 500.0 } else { 1500.0 }).collect();
        let skidded = balanced(&loops, &sampled_blocks(10.0, &samples, &edges), BIASED);
        let share = first_loop(&skidded);
        assert!((share - 0.5).abs() < 0.02, "{share}");
        for side in [&skidded[..20], &skidded[20..]] {
            let mean = side.iter().sum::<f64>() / 20.0;
            side.iter().for_each(|place| assert_near(*place, mean, 0.02));
        }
    }

    #[test]
    fn counted_lengths_decide_between_long_streams_and_short_ones() {
        let loops = seemingly_long();
        let (graph, targets) = &loops;
        // Streams of the first loop are of four instructions and those of the second of twelve: eight in the mean.
        let lengths: Vec<f64> = (0..40).map(|n| if n < 20 { 4.0 } else { 12.0 }).collect();
        let per_branch = per_branch(&lengths, 8.0);
        let (none, one_phase) = (SampledBlocks::default(), Phases::default());
        let none = known(&none, &one_phase);
        let without = balance(graph, targets, none, BIASED).inflow;
        assert!(0.59 < first_loop(&without) && per_branch.residual(&without) < -0.08);
        let counted = Known {
            per_branch: Some(&per_branch),
            ..none
        };
        let with = balance(graph, targets, counted, BIASED).inflow;
        assert!((first_loop(&with) - 0.5).abs() < 0.01, "{}", first_loop(&with));
        for side in [&with[..20], &with[20..]] {
            side.iter()
                .for_each(|place| assert_near(*place, side.iter().sum::<f64>() / 20.0, 0.02));
        }
        assert_near(with.iter().sum(), graph.inflow.iter().sum(), 1e-9);
    }

    #[test]
    fn samples_that_skid_from_one_region_to_the_other_weigh_little() {
        // Every edge goes to and fro between the loops, and half of the samples of the first are in the second.
        let loops = seemingly_long();
        let edges: Vec<_> = (0..20)
            .flat_map(|n| [(n, n + 20, 20_000.0), (n + 20, n, 20_000.0)])
            .collect();
        let samples: Vec<f64> = (0..40).map(|n| if n < 20 { 500.0 } else { 1500.0 }).collect();
        let without = first_loop(&balanced(&loops, &SampledBlocks::default(), BIASED));
        let share = first_loop(&balanced(&loops, &sampled_blocks(10.0, &samples, &edges), BIASED));
        assert!((share - without).abs() < 0.1, "{share} is not {without}");
    }
}
