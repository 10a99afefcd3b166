//! Sums that know which phase of the run each addend belongs to, and their variance under sampling at a fixed period.
//!
//! Of n samples, the n_p that fall into phase p are as good as given ([`super::super::flow::phases`]); chance has the spread within the
//! phases, and of the spread between them only a part c_p:
//!
//! ```text
//! Var = sum over p of  squares_p - sum_p^2 / n_p  +  c_p n_p (sum_p / n_p - sum / n)^2
//! ```
//!
//! With one phase, or with all c_p = 1, that is the variance of n draws by chance.

use std::collections::{BTreeMap, BinaryHeap};

use super::super::flow::graph::FlowGraph;
use super::super::flow::phases::Phases;
use super::super::sources::{Counted, SeenBlocks};
use super::Replicate;
use crate::sums::{add, over};

/// The phases, and what was drawn of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Strata {
    /// Phase of each block in [`super::super::BlockCounts::blocks`].
    pub(crate) of_block: Vec<usize>,
    /// Samples of eventing IPs.
    pub(crate) samples: Allocation,
    /// Bootstrap replicates of stacks.
    pub(crate) stacks: Allocation,
}

/// How many samples or stacks each phase has.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Allocation {
    /// For each phase, the number of samples, and the part of the variance between phases that is random, from 0 to 1.
    phases: Vec<(f64, f64)>,
    /// Of all phases.
    all: f64,
    /// Of all phases, each times its part by chance.
    by_chance: f64,
}

impl Strata {
    /// The phases that were found and one more, for blocks that are in none; how much of the run each holds is seen by
    /// `n_samples` of eventing IPs in all, and by the replicates.
    pub(crate) fn new(
        phases: &Phases,
        graph: &FlowGraph,
        seen: &SeenBlocks,
        ebs: &[Counted],
        n_samples: f64,
        replicates: &[Replicate],
    ) -> Self {
        let of_block = of_blocks(phases, graph, seen);
        let mut samples = vec![0.0; phases.none() + 1];
        let mut stacks = samples.clone();
        for counted in ebs {
            let block = seen.number(counted.block);
            let phase = block.and_then(|block| of_block.get(block)).copied();
            add(&mut samples, phase.unwrap_or(phases.none()), counted.hits);
        }
        let elsewhere = n_samples - samples.iter().sum::<f64>();
        add(&mut samples, phases.none(), elsewhere.max(0.0));
        for replicate in replicates {
            add(&mut stacks, replicate.phase, 1.0);
        }
        let allocation = |n: &[f64]| Allocation::new(n, phases.chances());
        Self {
            samples: allocation(&samples),
            stacks: allocation(&stacks),
            of_block,
        }
    }

    /// The phase of a block.
    pub(crate) fn of_block(&self, block: usize) -> usize {
        self.of_block.get(block).copied().unwrap_or(0)
    }
}

impl Allocation {
    /// `n` of each phase, with the part of the variance that is left to chance; of phases beyond, all of it is.
    pub(crate) fn new(n: &[f64], chance: &[f64]) -> Self {
        let chances = chance.iter().copied().chain(std::iter::repeat(1.0));
        let phases: Vec<(f64, f64)> = n.iter().copied().zip(chances).collect();
        Self {
            all: phases.iter().fold(0.0, |all, (n, _)| all + n),
            by_chance: phases.iter().fold(0.0, |all, (n, chance)| all + n * chance),
            phases,
        }
    }

    /// Their number over all phases.
    pub(crate) const fn all(&self) -> f64 {
        self.all
    }
}

/// The phase of each block: that of the most frequent stream that executes it.
fn of_blocks(phases: &Phases, graph: &FlowGraph, seen: &SeenBlocks) -> Vec<usize> {
    let streams = seen.by_first_block();
    let streams = streams.iter().filter_map(|n| {
        let (edge, executed) = (graph.streams.get(*n as usize)?, seen.executed.get(*n as usize)?);
        Some((edge, executed.blocks()))
    });
    let mut streams = streams.peekable();
    let mut most = BinaryHeap::new();
    let of_block = |block: usize| {
        while let Some((edge, blocks)) = streams.next_if(|(_, blocks)| blocks.start <= block) {
            most.push((edge.amount.to_bits(), blocks.end, phases.of(edge.from)));
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
pub(crate) struct ByPhase {
    phases: BTreeMap<usize, (f64, f64)>,
    /// The sum over all phases.
    sum: f64,
}

impl ByPhase {
    /// Adds to one phase.
    pub(crate) fn add(&mut self, phase: usize, sum: f64, squares: f64) {
        let addends = self.phases.entry(phase).or_default();
        addends.0 += sum;
        addends.1 += squares;
        self.sum += sum;
    }

    /// The sum over all phases.
    pub(crate) const fn sum(&self) -> f64 {
        self.sum
    }

    /// The variance of the sum of as many samples or stacks as each phase has.
    pub(crate) fn variance(&self, allocation: &Allocation) -> f64 {
        let mean = over(self.sum(), allocation.all);
        let (mut within, mut between) = (0.0, mean * mean * allocation.by_chance);
        for (phase, (sum, squares)) in &self.phases {
            let (n, chance) = allocation.phases.get(*phase).copied().unwrap_or_default();
            within += (squares - over(sum * sum, n)).max(0.0);
            let off = over(*sum, n) - mean;
            // A phase without the sum is off by the mean, which all phases have above.
            between += chance * n * (off * off - mean * mean);
        }
        within + between.max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_between_phases_is_not_left_to_chance() {
        let mut sum = ByPhase::default();
        // Ten stacks of phase 0 show it twice each, thirty of phase 1 not at all.
        for _ in 0..10 {
            sum.add(0, 2.0, 4.0);
        }
        let of = |chance: [f64; 2]| sum.variance(&Allocation::new(&[10.0, 30.0], &chance));
        assert_eq!(of([0.0, 0.0]), 0.0);
        // With all of it left to chance the phases make no difference.
        assert_eq!(of([1.0, 1.0]), 30.0);
        // Phase 0 is 1.5 off the mean, phase 1 half of one.
        assert_eq!(of([1.0, 0.0]), 22.5);
        assert_eq!(of([0.0, 1.0]), 7.5);
    }

    #[test]
    fn the_spread_within_a_phase_counts() {
        let mut sum = ByPhase::default();
        for n in 0..10 {
            let amount = f64::from(n % 2);
            sum.add(0, amount, amount);
        }
        assert_eq!(sum.variance(&Allocation::new(&[10.0, 90.0], &[0.0, 0.0])), 2.5);
    }
}
