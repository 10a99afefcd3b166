//! Conservation of flow, as equations of the inflow of starts and of how much each way of a choice was taken beyond its share.
//!
//! ```text
//! inflow of a start = sum over the ways that lead there of (inflow * share + deviation) +- slack
//! recorded share    = share + deviation / times chosen                                  +- its standard deviation
//! ```
//!
//! Where a stream can end at several branches, or a branch lead to several targets, the recorded share of each way is a draw. What one
//! way took too often the others took too rarely: nothing is lost in a choice, and one of its deviations follows from the others.
//!
//! Only the product of an inflow and a share is seen, and both are unknown: each round begins with the shares that the last one found. And
//! slack is a part of the flow that it is missing from. With the recorded shares and a slack of its own, all that chance leaves of flow
//! that is not conserved would be less where a region ran less: kernels that run little of their load were 1.9 % too small in the
//! mean, and without that 1.0 % (kernel-tests/results/conservation.txt; attenuation, in Fuller, Measurement Error Models, 1987, section 1.1).

mod ways;

use super::errors::{Errors, FEWEST};
use super::graph::{Edge, FlowGraph};
use super::least_squares::{Equation, LONG};
use crate::sums::{add, at, over};
use ways::Ways;

/// Variance of a certain succession, as a share of the variance of a Poisson count. With a stack's 15 streams as the
/// variance of what is measured, it is carried on over the root of 15 / 0.01, some 40 branches, either way. On the emulated
/// machine 0.03 differs by 0.002 points of the mix, and 0.1 leaves long loops uneven; the less, the longer it takes to solve
/// (kernel-tests/results/conservation.txt).
const CERTAIN: f64 = 1e-2;

/// Variance of any succession, in squared occurrences: a succession that no stack showed may have been taken once all the same. One
/// that was seen none of n times has one chance in n+2 by Laplace's rule of succession. From 0.3 to 3 the mix differs by 0.002
/// points (kernel-tests/results/conservation.txt).
const UNSEEN: f64 = 1.0;

/// The conservation of flow, with the shares that were found last.
pub(super) struct Conservation<'a> {
    graph: &'a FlowGraph,
    errors: Errors<'a>,
    streams: Ways,
    branches: Ways,
}

impl<'a> Conservation<'a> {
    /// `targets` lead from branches to starts, with the recorded share of each. Deviations are unknown from the `first` on.
    pub(super) fn new(graph: &'a FlowGraph, targets: &[Edge], errors: Errors<'a>, first: usize) -> Self {
        let share = |stream: &Edge| Edge {
            amount: over(stream.amount, at(&graph.inflow, stream.from)),
            ..*stream
        };
        let streams = graph.streams.iter().map(share).collect();
        let streams = Ways::new(streams, graph.starts.len(), first);
        let of_branches = first + streams.n_deviations();
        Self {
            graph,
            errors,
            streams,
            branches: Ways::new(targets.to_vec(), graph.sources.len(), of_branches),
        }
    }

    /// Deviations that are unknown.
    pub(super) fn n_deviations(&self) -> usize {
        self.streams.n_deviations() + self.branches.n_deviations()
    }

    /// Takes over the shares that follow from what the last equations were solved with.
    pub(super) fn found(&mut self, solved: &[f64]) {
        self.streams.found(solved);
        self.branches.found(solved);
    }

    /// How often each stream ran, by this inflow and the shares that were found last. Equations hold for deviations of the flow before;
    /// what the scale of the flow has changed since is of second order.
    pub(super) fn runs(&self, inflow: &[f64]) -> Vec<f64> {
        let shares = self.streams.edges.iter().zip(&self.streams.shares);
        shares
            .map(|(edge, share)| share * at(inflow, edge.from))
            .collect()
    }

    /// Terms of unknowns that are as much as these of streams.
    pub(super) fn terms(&self, of_streams: &[(usize, f64)]) -> Vec<(usize, f64)> {
        self.streams.terms(of_streams)
    }

    /// Takes the variances of all ways from this inflow.
    pub(super) fn weigh(&mut self, inflow: &[f64]) {
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
    }

    /// Adds the equations by the inflow that was weighed last. Unknown are the inflow and the deviations.
    pub(super) fn equations(&self, inflow: &[f64], equations: &mut Vec<Equation>) {
        self.streams.priors(equations);
        self.branches.priors(equations);
        equations.extend(self.of_starts(inflow));
    }

    /// What leads to each start is its inflow.
    fn of_starts(&self, inflow: &[f64]) -> Vec<Equation> {
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
        self.streams.moves(|unknown, source, moved| {
            let passage = passages.get(source).filter(|passage| !passage.is_long());
            for (target, share) in passage.into_iter().flat_map(|passage| &passage.onward) {
                if let Some(equation) = equations.get_mut(*target) {
                    equation.terms.push((unknown, -moved * share));
                }
            }
        });
        self.branches.moves(|unknown, target, moved| {
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
        self.streams.moves(|_, source, _| {
            if let Some(passage) = passages.get_mut(source) {
                passage.n_moves += 1;
            }
        });
        passages
    }
}

/// The starts whose streams a branch ends and those that it leads to, each with its share.
#[derive(Debug, Default)]
struct Passage {
    ended: Vec<(usize, f64)>,
    onward: Vec<(usize, f64)>,
    /// Deviations that move flow to it or from it.
    n_moves: usize,
}

impl Passage {
    /// Whether each of many unknowns would be tied to each of many targets. So terms are at most some tens for each way.
    const fn is_long(&self) -> bool {
        LONG <= self.ended.len() + self.n_moves && LONG <= self.onward.len()
    }

    /// Adds the equations of the starts that it leads to. For a long list, the last result replaces the other starts.
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
