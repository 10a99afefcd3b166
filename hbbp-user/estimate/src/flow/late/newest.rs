//! What the newest slots tell of the time until stacks are read.
//!
//! The branches in the newest slot are counts of independent stacks, so that a time is as good as they are likely by it: Poisson
//! counts with the means that [`Reach::newest`] expects.

use super::super::chain::Chain;
use super::super::graph::FlowGraph;
use super::reach::{BINS, Reach, Skid};

/// Fewest stacks that are expected to end at a branch: no count is known to be impossible.
const FEWEST: f64 = 0.05;

/// Smallest part of its share that a branch has in the newest slot. It is above zero however fast the code after it is.
const LEAST: f64 = 0.02;

/// Stacks by their newest branches.
pub(super) struct Newest<'a> {
    stacks: &'a [f64],
    all: f64,
}

impl<'a> Newest<'a> {
    pub(super) fn new(graph: &'a FlowGraph) -> Self {
        Self {
            stacks: &graph.newest,
            all: graph.newest.iter().sum(),
        }
    }

    /// The time that explains them best, and how much better than none, as the logarithm of the ratio of likelihoods.
    pub(super) fn best(&self, chain: &Chain<'_>, reach: &Reach) -> Option<(f64, Skid)> {
        let none = self.likelihood(chain, chain.share.iter().map(|_| 1.0));
        let skids = (1..BINS).flat_map(|longest| (0..=longest).map(move |least| Skid { least, longest }));
        let gains = skids.map(|skid| (self.likelihood(chain, reach.newest(skid)) - none, skid));
        gains.max_by(|(a, _), (b, _)| a.total_cmp(b))
    }

    /// `times` its share has each branch in the newest slot.
    fn likelihood(&self, chain: &Chain<'_>, times: impl Iterator<Item = f64>) -> f64 {
        let expected = times.zip(&chain.share);
        let expected: Vec<f64> = expected.map(|(times, share)| times.max(LEAST) * share).collect();
        let sum: f64 = expected.iter().sum();
        let of = |(stacks, expected): (&f64, &f64)| {
            let due = (self.all * expected / sum).max(FEWEST);
            // A logarithm takes time, and most branches end no stack.
            let likely = if 0.0 < *stacks { stacks * due.ln() } else { 0.0 };
            likely - due
        };
        self.stacks.iter().zip(&expected).map(of).sum()
    }
}
