//! Conservation of flow, as equations of the inflow of starts and of how much each way of a choice was taken beyond its share.
//!
//! ```text
//! inflow of a start = sum over the ways that lead there of (inflow * share + deviation) +- slack
//! recorded share    = share + deviation / times chosen                                  +- its standard deviation
//! ```
//!
//! Where a stream can end at several branches, or a branch lead to several targets, the recorded share of each way is a draw. What one
//! way took too often the others took too seldom: nothing is lost in a choice, and one of its deviations follows from the others.
//!
//! Only the product of an inflow and a share is seen, and both are unknown: each round begins with the shares that the last one found. And
//! slack is a part of the flow that it is missing from. With the recorded shares and a slack of its own, all that chance leaves of flow
//! that is not conserved would be less where a region ran less: kernels that run little of their load were 1.9 % too small in the
//! mean, and without that 1.0 % (kernel-tests/results/conservation.txt; attenuation, in Fuller, Measurement Error Models, 1987, section 1.1).

use super::super::sources::over;
use super::balance::{Errors, FEWEST};
use super::graph::{Edge, FlowGraph, add, at};
use super::least_squares::{Equation, LONG};

/// Variance of a certain succession, as a share of the variance of a Poisson count. With a stack's 15 streams as the
/// variance of what is measured, it is carried on over the root of 15 / 0.01, some 40 branches, either way. On the emulated
/// machine 0.03 differs by 0.002 points of the mix, and 0.1 leaves long loops uneven; the less, the longer it takes to solve
/// (kernel-tests/results/conservation.txt).
const CERTAIN: f64 = 1e-2;

/// Variance of any succession, in squared occurrences: a way that no stack showed may have been taken once all the same, as one that
/// was seen none of n times has one chance in n+2 by Laplace's rule of succession. From 0.3 to 3 the mix differs by 0.002 points
/// (kernel-tests/results/conservation.txt).
const UNSEEN: f64 = 1.0;

/// What rounding leaves of a share.
const NONE: f64 = 1e-9;

/// The ways from starts to the branches that end their streams, or from branches to their targets.
#[derive(Debug, Default)]
struct Ways {
    /// With their recorded shares for amounts.
    edges: Vec<Edge>,
    /// As the last round found them.
    shares: Vec<f64>,
    /// How often each origin chose, at the last weighing.
    times: Vec<f64>,
    /// How often each was chosen then, and the standard deviation of that.
    flows: Vec<(f64, f64)>,
    choices: Vec<Choice>,
}

/// The ways from one place, where there are several.
#[derive(Debug, Default, PartialEq)]
struct Choice {
    /// Ways with a deviation of their own.
    free: Vec<usize>,
    /// The way that takes what these leave; `None` where it leads to what is not known.
    last: Option<usize>,
}

/// The conservation of flow, with the shares that were found last.
pub(super) struct Conservation<'a> {
    graph: &'a FlowGraph,
    errors: Errors<'a>,
    streams: Ways,
    branches: Ways,
}

impl Ways {
    /// Those of the same origin are one choice; each with a share of 1 is certain.
    fn new(edges: Vec<Edge>, n_origins: usize) -> Self {
        let mut choices: Vec<Choice> = Vec::new();
        choices.resize_with(n_origins, Choice::default);
        for (n, edge) in edges.iter().enumerate() {
            if let Some(choice) = choices.get_mut(edge.from).filter(|_| edge.amount < 1.0 - NONE) {
                choice.free.push(n);
            }
        }
        choices.retain(|choice| !choice.free.is_empty());
        let share = |n: &usize| edges.get(*n).map_or(0.0, |edge| edge.amount);
        for choice in &mut choices {
            let all: f64 = choice.free.iter().map(share).sum();
            choice.free.sort_by(|a, b| share(a).total_cmp(&share(b)));
            choice.last = choice.free.pop_if(|_| 1.0 - NONE < all);
        }
        Self {
            shares: edges.iter().map(|edge| edge.amount).collect(),
            times: Vec::new(),
            flows: vec![(0.0, 0.0); edges.len()],
            edges,
            choices,
        }
    }

    /// How often each way is chosen, by how often each origin chooses, with its variance by that.
    fn weigh(&mut self, times: Vec<f64>, variance: impl Fn(&Edge, f64) -> f64) {
        for ((edge, share), flow) in self.edges.iter().zip(&self.shares).zip(&mut self.flows) {
            let often = share * at(&times, edge.from);
            *flow = (often, variance(edge, often.max(FEWEST)).sqrt());
        }
        self.times = times;
    }

    /// Adds what is known of the deviations: each is what was recorded, less what the shares are by now, in its standard deviation.
    fn priors(&self, mut unknown: usize, equations: &mut Vec<Equation>) {
        for choice in &self.choices {
            let chosen = self.chosen(choice);
            let (mut last, mut recorded, mut found) = (Equation::default(), 1.0, 1.0);
            for way in &choice.free {
                let (Some(edge), Some(share)) = (self.edges.get(*way), self.shares.get(*way)) else {
                    continue;
                };
                let (_, deviation) = self.flow(*way);
                equations.push(Equation {
                    terms: vec![(unknown, 1.0)],
                    value: (edge.amount - share) * chosen / deviation,
                    weight: 1.0,
                });
                last.terms.push((unknown, -deviation));
                (recorded, found) = (recorded - edge.amount, found - share);
                unknown += 1;
            }
            let of_rest = (found * chosen).max(FEWEST);
            let deviation = choice.last.map_or(of_rest.sqrt(), |way| self.flow(way).1);
            last.value = (recorded - found) * chosen;
            last.weight = 1.0 / (deviation * deviation);
            equations.push(last);
        }
    }

    /// The shares that follow from deviations; returns those of the deviations that are left.
    fn found<'d>(&mut self, mut deviations: &'d [f64]) -> &'d [f64] {
        for choice in &self.choices {
            let Some((of_choice, others)) = deviations.split_at_checked(choice.free.len()) else {
                return &[];
            };
            deviations = others;
            let mut taken: Vec<(usize, f64)> = Vec::with_capacity(choice.free.len() + 1);
            let (mut moved, mut shares) = (0.0, 0.0);
            for (way, deviation) in choice.free.iter().zip(of_choice) {
                let (often, by) = self.flow(*way);
                moved += by * deviation;
                shares += at(&self.shares, *way);
                taken.push((*way, (often + by * deviation).max(0.0)));
            }
            let left = ((1.0 - shares) * self.chosen(choice) - moved).max(0.0);
            let all = taken.iter().map(|(_, often)| often).sum::<f64>() + left;
            taken.extend(choice.last.map(|way| (way, left)));
            for (way, often) in taken {
                if let Some(share) = self.shares.get_mut(way).filter(|_| 0.0 < all) {
                    *share = often / all;
                }
            }
        }
        deviations
    }

    /// How often one of the ways of a choice was chosen.
    fn chosen(&self, choice: &Choice) -> f64 {
        let way = choice.free.first().and_then(|way| self.edges.get(*way));
        way.map_or(0.0, |way| at(&self.times, way.from))
    }

    fn flow(&self, way: usize) -> (f64, f64) {
        self.flows.get(way).copied().unwrap_or((0.0, 1.0))
    }

    /// Calls back for each deviation, with the end of a way that it moves flow to, or from, and by how much.
    fn moves(&self, mut unknown: usize, mut moves: impl FnMut(usize, usize, f64)) {
        for choice in &self.choices {
            for way in &choice.free {
                let (_, deviation) = self.flow(*way);
                for (way, moved) in [(Some(*way), deviation), (choice.last, -deviation)] {
                    if let Some(edge) = way.and_then(|way| self.edges.get(way)) {
                        moves(unknown, edge.to, moved);
                    }
                }
                unknown += 1;
            }
        }
    }

    fn n_deviations(&self) -> usize {
        self.choices.iter().map(|choice| choice.free.len()).sum()
    }
}

impl<'a> Conservation<'a> {
    /// `targets` lead from branches to starts, with the recorded share of each.
    pub(super) fn new(graph: &'a FlowGraph, targets: &[Edge], errors: Errors<'a>) -> Self {
        let share = |stream: &Edge| Edge {
            amount: over(stream.amount, at(&graph.inflow, stream.from)),
            ..*stream
        };
        let streams = graph.streams.iter().map(share).collect();
        Self {
            graph,
            errors,
            streams: Ways::new(streams, graph.starts.len()),
            branches: Ways::new(targets.to_vec(), graph.sources.len()),
        }
    }

    /// Deviations that are unknown.
    pub(super) fn n_deviations(&self) -> usize {
        self.streams.n_deviations() + self.branches.n_deviations()
    }

    /// Takes over the shares that follow from the deviations of the last equations.
    pub(super) fn found(&mut self, deviations: &[f64]) {
        let of_branches = self.streams.found(deviations);
        self.branches.found(of_branches);
    }

    /// Adds the equations by this inflow. Unknown are the inflow and, from `first` on, the deviations.
    pub(super) fn equations(&mut self, inflow: &[f64], first: usize, equations: &mut Vec<Equation>) {
        let errors = self.errors;
        self.streams.weigh(inflow.to_vec(), |edge, often| {
            errors.of_way(edge.from, edge.amount, often)
        });
        let mut ends = vec![0.0; self.graph.sources.len()];
        for (edge, (often, _)) in self.streams.edges.iter().zip(&self.streams.flows) {
            add(&mut ends, edge.to, *often);
        }
        self.branches
            .weigh(ends, |edge, often| errors.of_way(edge.to, edge.amount, often));
        let of_branches = first + self.streams.n_deviations();
        self.streams.priors(first, equations);
        self.branches.priors(of_branches, equations);
        equations.extend(self.of_starts(inflow, [first, of_branches]));
    }

    /// What leads to each start is its inflow.
    fn of_starts(&self, inflow: &[f64], [first, of_branches]: [usize; 2]) -> Vec<Equation> {
        let one = |(start, (inflow, external)): (usize, (&f64, &f64))| {
            let one = self.errors.of_start(start);
            let slack = CERTAIN * inflow.max(FEWEST) + UNSEEN * one * one;
            Equation {
                terms: vec![(start, 1.0)],
                value: *external,
                weight: 1.0 / (slack + self.errors.of_stacks(start) * external),
            }
        };
        let both = inflow.iter().zip(&self.graph.external);
        let mut equations: Vec<Equation> = both.enumerate().map(one).collect();
        let passages = self.passages();
        for passage in &passages {
            passage.tie(inflow, &mut equations);
        }
        equations
            .iter_mut()
            .for_each(|equation| relative(equation, inflow));
        self.streams.moves(first, |unknown, source, moved| {
            let passage = passages.get(source).filter(|passage| !passage.is_long());
            for (target, share) in passage.into_iter().flat_map(|passage| &passage.onward) {
                if let Some(equation) = equations.get_mut(*target) {
                    equation.terms.push((unknown, -moved * share));
                }
            }
        });
        self.branches.moves(of_branches, |unknown, target, moved| {
            if let Some(equation) = equations.get_mut(target) {
                equation.terms.push((unknown, -moved));
            }
        });
        equations
    }

    /// Of each branch.
    fn passages(&self) -> Vec<Passage> {
        let mut passages: Vec<Passage> = Vec::new();
        passages.resize_with(self.graph.sources.len(), Passage::default);
        for (stream, share) in self.streams.edges.iter().zip(&self.streams.shares) {
            if let Some(passage) = passages.get_mut(stream.to) {
                passage.ended.push((stream.from, *share));
            }
        }
        for (branch, share) in self.branches.edges.iter().zip(&self.branches.shares) {
            if let Some(passage) = passages.get_mut(branch.from) {
                passage.onward.push((branch.to, *share));
            }
        }
        passages
    }
}

/// The starts whose streams a branch ends and those that it leads to, each with its share.
#[derive(Debug, Default)]
struct Passage {
    ended: Vec<(usize, f64)>,
    onward: Vec<(usize, f64)>,
}

impl Passage {
    /// Whether each of many streams would be tied to each of many targets.
    const fn is_long(&self) -> bool {
        LONG <= self.ended.len() && LONG <= self.onward.len()
    }

    /// Ties the starts that it leads to, to the others. Where it is long the last result stands in for them.
    fn tie(&self, inflow: &[f64], equations: &mut [Equation]) {
        let ends = |(start, share): &(usize, f64)| at(inflow, *start) * share;
        let leaves: f64 = self.ended.iter().map(ends).sum();
        for (target, share) in &self.onward {
            let Some(equation) = equations.get_mut(*target) else {
                continue;
            };
            if self.is_long() {
                equation.value += leaves * share;
            } else {
                let term = |(start, ends): &(usize, f64)| (*start, -ends * share);
                equation.terms.extend(self.ended.iter().map(term));
            }
        }
    }
}

/// Has the first term and the others, which should be alike, differ by a part of them rather than by an amount: what is near zero is
/// (a - b) / (a + b), and this is its linear part about the last inflow. Only as far as chance explains it: flow that is lost for
/// another reason, in code that stacks never show, would be a smaller part of a region that runs more.
fn relative(equation: &mut Equation, inflow: &[f64]) {
    let Some(((start, own), others)) = equation.terms.split_first_mut() else {
        return;
    };
    let here = at(inflow, *start);
    let of_others: f64 = others.iter().map(|(n, factor)| factor * at(inflow, *n)).sum();
    let leads_here = equation.value - of_others;
    let (off, mean) = (here - leads_here, (here + leads_here) / 2.0);
    if mean < FEWEST {
        return;
    }
    let by_chance = 1.0 / (equation.weight * off * off).max(1.0);
    let part = (by_chance * off / mean).clamp(-1.0, 1.0);
    *own *= 1.0 - part / 2.0;
    for (_, factor) in others {
        *factor *= 1.0 + part / 2.0;
    }
    equation.value = equation.value * (1.0 + part / 2.0) - part * mean;
}

#[cfg(test)]
mod tests;
