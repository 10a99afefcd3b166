//! Sums that know which phase of the run each addend belongs to, and their variance under sampling at a fixed period.
//!
//! Of n samples, the n_p that fall into phase p are as good as given ([`super::phases`]); chance has the spread within the
//! phases, and of the spread between them only a part c_p:
//!
//! ```text
//! Var = sum over p of  squares_p - sum_p^2 / n_p  +  c_p n_p (sum_p / n_p - sum_o / n_o)^2
//! ```
//!
//! where o is what the phase p is within, another phase or the run. The first two terms are for phases that have none
//! within them. With one phase, or with all c_p = 1, that is the variance of n draws by chance.

use std::collections::BinaryHeap;

use super::super::flow::graph::{FlowGraph, add};
use super::super::sources::{Counted, SeenBlocks};
use super::Replicate;
use super::phases::Phases;

/// The phases as they matter for the figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Strata {
    /// Phase of each block in [`super::super::BlockCounts::blocks`].
    pub of_block: Vec<usize>,
    /// Samples of eventing IPs in each phase.
    pub samples: Vec<f64>,
    /// Bootstrap replicates in each phase.
    pub stacks: Vec<f64>,
    /// The part of the variance between phases that is left to chance, 0 to 1.
    pub chance: Vec<f64>,
    /// The phase that each phase is within, which has a higher number. Blocks, samples and stacks are counted in the
    /// innermost phases only.
    pub outer: Vec<Option<usize>>,
}

impl Strata {
    /// The phases that were found and one more, for blocks that are in none; how much of the run each holds is seen by
    /// `samples` of eventing IPs in all, and by the replicates.
    pub(in crate::estimate) fn new(
        phases: &Phases,
        graph: &FlowGraph,
        seen: &SeenBlocks,
        ebs: &[Counted],
        samples: f64,
        replicates: &[Replicate],
    ) -> Self {
        let n = phases.none() + 1;
        let mut strata = Self {
            of_block: of_blocks(phases, graph, seen),
            samples: vec![0.0; n],
            stacks: vec![0.0; n],
            chance: [phases.chances(), &[1.0]].concat(),
            outer: [phases.outer(), &[None]].concat(),
        };
        for counted in ebs {
            let phase = seen.number(counted.block).map(|block| strata.of_block(block));
            add(&mut strata.samples, phase.unwrap_or(phases.none()), counted.hits);
        }
        let elsewhere = samples - strata.samples.iter().sum::<f64>();
        add(&mut strata.samples, phases.none(), elsewhere.max(0.0));
        for replicate in replicates {
            add(&mut strata.stacks, replicate.phase, 1.0);
        }
        strata
    }

    fn outer_of(&self, phase: usize) -> Option<usize> {
        self.outer.get(phase).copied().flatten()
    }

    /// Samples of eventing IPs in the phase of a block.
    pub(in crate::estimate) fn samples_around(&self, block: usize) -> f64 {
        let phase = self.of_block(block);
        self.samples.get(phase).copied().unwrap_or(f64::INFINITY)
    }

    /// The phase of a block.
    pub fn of_block(&self, block: usize) -> usize {
        self.of_block.get(block).copied().unwrap_or(0)
    }
}

/// The phase of each block: that of the most frequent stream that executes it.
fn of_blocks(phases: &Phases, graph: &FlowGraph, seen: &SeenBlocks) -> Vec<usize> {
    // First block, streams, block after the last one, phase.
    let streams = graph.streams.iter().zip(&seen.executed);
    let mut streams: Vec<(usize, u64, usize, usize)> = streams
        .map(|(edge, executed)| {
            let range = &executed.blocks;
            (
                range.start,
                edge.amount.to_bits(),
                range.end,
                phases.of(edge.from),
            )
        })
        .collect();
    streams.sort_unstable();
    let mut streams = streams.into_iter().peekable();
    let mut most = BinaryHeap::new();
    let of_block = |block: usize| {
        while let Some((_, hits, end, phase)) = streams.next_if(|(first, ..)| *first <= block) {
            most.push((hits, end, phase));
        }
        while most.peek().is_some_and(|(_, end, _)| *end <= block) {
            most.pop();
        }
        most.peek().map_or(phases.none(), |(.., phase)| *phase)
    };
    (0..seen.ids.len()).map(of_block).collect()
}

/// A sum, and its squares, by phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ByPhase(Vec<Addends>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Addends {
    phase: usize,
    sum: f64,
    squares: f64,
}

impl ByPhase {
    /// Adds to one phase.
    pub fn add(&mut self, phase: usize, sum: f64, squares: f64) {
        // Few phases, and the last one is often the next one.
        match self.0.iter_mut().rev().find(|addends| addends.phase == phase) {
            Some(addends) => {
                addends.sum += sum;
                addends.squares += squares;
            }
            None => self.0.push(Addends { phase, sum, squares }),
        }
    }

    /// The sum over all phases.
    pub fn sum(&self) -> f64 {
        // From 0.0: the sum of nothing is -0.0.
        self.0.iter().fold(0.0, |sum, addends| sum + addends.sum)
    }

    /// The variance of the sum of `n` draws by chance, if the run had no phases.
    pub fn variance_of(&self, n: f64) -> f64 {
        let squares: f64 = self.0.iter().map(|addends| addends.squares).sum();
        (squares - over(self.sum() * self.sum(), n)).max(0.0)
    }

    /// The variance of the sum of as many samples, stacks or eventing IPs, as each phase has.
    pub fn variance(&self, samples: &[f64], strata: &Strata) -> f64 {
        let mut within = 0.0;
        // Sum and samples of each phase.
        let mut phases: Vec<(f64, f64)> = samples.iter().map(|n| (0.0, *n)).collect();
        for of in &self.0 {
            let n = samples.get(of.phase).copied().unwrap_or(0.0);
            within += (of.squares - over(of.sum * of.sum, n)).max(0.0);
            if let Some((sum, _)) = phases.get_mut(of.phase) {
                *sum += of.sum;
            }
        }
        // What is within a phase stands before it, and is complete when its turn comes.
        for phase in 0..phases.len() {
            let inner = phases.get(phase).copied().unwrap_or_default();
            if let Some((sum, n)) = strata.outer_of(phase).and_then(|outer| phases.get_mut(outer)) {
                *sum += inner.0;
                *n += inner.1;
            }
        }
        let run = (self.sum(), samples.iter().sum());
        let all = phases.iter().zip(&strata.chance).enumerate();
        let between: f64 = all
            .map(|(phase, ((sum, n), chance))| {
                let outer = strata.outer_of(phase).and_then(|outer| phases.get(outer));
                let (outer_sum, outer_n) = outer.copied().unwrap_or(run);
                let off = over(*sum, *n) - over(outer_sum, outer_n);
                chance * n * off * off
            })
            .sum();
        within + between
    }
}

/// A quotient, 0 where there is nothing to divide by.
fn over(amount: f64, n: f64) -> f64 {
    if 0.0 < n { amount / n } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Phases that leave so much to chance, each within another one or the run.
    fn strata(chance: &[f64], outer: &[Option<usize>]) -> Strata {
        Strata {
            chance: chance.to_vec(),
            outer: outer.to_vec(),
            ..Strata::default()
        }
    }

    #[test]
    fn what_is_between_phases_is_not_left_to_chance() {
        let mut sum = ByPhase::default();
        // Ten stacks of phase 0 show it twice each, thirty of phase 1 not at all.
        for _ in 0..10 {
            sum.add(0, 2.0, 4.0);
        }
        let samples = [10.0, 30.0];
        assert_eq!(sum.variance(&samples, &strata(&[0.0, 0.0], &[None; 2])), 0.0);
        assert_eq!(sum.variance_of(40.0), 30.0);
        // With all of it left to chance the phases make no difference.
        assert_eq!(sum.variance(&samples, &strata(&[1.0, 1.0], &[None; 2])), 30.0);
    }

    #[test]
    fn a_phase_within_another_is_off_its_mean() {
        let mut sum = ByPhase::default();
        // Phases 0 and 1 are within 3; of their twenty stacks the first ten show it twice. Twenty of phase 2 do not.
        for _ in 0..10 {
            sum.add(0, 2.0, 4.0);
        }
        let samples = [10.0, 10.0, 20.0, 0.0];
        let outer = [Some(3), Some(3), None, None];
        let of = |chance: &[f64]| sum.variance(&samples, &strata(chance, &outer));
        assert_eq!(of(&[1.0; 4]), sum.variance_of(40.0));
        // Twenty stacks of 3 are one off their mean, and all forty half of one.
        assert_eq!(of(&[1.0, 1.0, 0.0, 0.0]), 20.0);
        assert_eq!(of(&[0.0, 0.0, 1.0, 1.0]), 10.0);
    }

    #[test]
    fn what_differs_within_a_phase_counts() {
        let mut sum = ByPhase::default();
        for n in 0..10 {
            let amount = f64::from(n % 2);
            sum.add(0, amount, amount);
        }
        assert_eq!(sum.variance(&[10.0, 90.0], &strata(&[0.0, 0.0], &[None; 2])), 2.5);
    }
}
