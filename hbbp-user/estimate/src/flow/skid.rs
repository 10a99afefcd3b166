//! EBS samples as a second measurement of what streams count, good for regions and not for blocks.
//!
//! An eventing IP is a few cycles after the instruction that caused it, and latencies delay it further (paper section
//! III.A; "Can We Trust Profiling Results?", ICS 2019, section 1), so that short blocks have too many samples or too
//! few. But a sample only moves along the path that the processor takes: what one block loses, the next one gains. So
//! the samples of a region are off by no more than what skids over its border, however wrong they are within it. Each
//! edge from block to block has a skid, in instructions that are counted on the far side. The samples of a block are
//! those of its executions, plus what skids in, less what skids out:
//!
//! ```text
//! samples = rate * (instructions * executions + sum in (edge * skid) - sum out (edge * skid)) +- sqrt(samples)
//! ```
//!
//! Where the times of instructions are known, what of a sample's way follows from them is expected ([`super::landed`]), and the skids are
//! what is left. They are unknown, with mean zero. Their standard deviation is estimated as the variance between studies is in a
//! random effects model: it is what makes the squares of all deviations as large as they should be (Paule and Mandel,
//! Journal of Research of the National Bureau of Standards 87, 1982). So imprecise events weigh less by themselves.

mod executed;

use executed::{edges, executed, known, less, samples};

use super::super::sources::{Counted, SeenBlocks, ring};
use super::graph::{Edge, FlowGraph};
use super::landed::Landed;
use super::least_squares::Equation;
use crate::sums::{add, at, over};
use hbbp_code::blocks::BlockMap;
use hbbp_model::snapshot::Snapshot;

/// Most instructions that a sample may skid: no reorder buffer holds more (Golden Cove has 512 entries, Intel 64 and IA-32
/// Architectures Optimization Reference Manual).
const FARTHEST: f64 = 512.0;

/// Expected samples of a block from which on its deviation tells of skid.
/// A Poisson count is close enough to normal from five on (Cochran's rule).
const ENOUGH: f64 = 5.0;

/// Fewest samples that the variance of a block is taken for: that none are expected does not make one of them impossible.
const FEWEST: f64 = 0.5;

/// What a skid moves, as a part of the variance of both blocks by chance, that only adds to these variances and is not an unknown of its
/// own: nine in ten of gcc's. A round takes half as long, and the mix differs by 0.0003 points (kernel-tests/results/conservation.txt).
const LITTLE: f64 = 0.01;

/// Terms of all blocks from which on no block more has an equation: 64 MB. gcc has 118,000.
const TERMS: usize = 1 << 22;

/// The part of the skid that the times of instructions may be wrong about, where they explain all of it: what ran before a start is a mean,
/// and times depend on more than the kind. With none, a loop of nine thousand samples was off by 1.6 % instead of 0.5; a tenth and a third
/// differ by 0.04 points in the mean of 21 loads, by 0.001 and 0.009 in two other profiles (kernel-tests/results/landed.txt).
const OF_TIMES: f64 = 0.25;

/// Halvings of the interval of the standard deviation: to less than a thousandth of an instruction.
const HALVINGS: usize = 20;

/// The samples of the blocks that streams execute.
#[derive(Clone, Debug, Default)]
pub(crate) struct SampledBlocks {
    /// Samples in each block; `None` if its ring has none, or no equation tells what to expect.
    samples: Vec<Option<f64>>,
    /// For each block, the streams that execute it and how many of its instructions each executes.
    executed: Vec<Vec<(usize, f64)>>,
    /// The same with the samples that a stream leaves in the block by the times of instructions, where these are known.
    landed: Option<Landed>,
    /// What of the streams through each block is its own ([`known`]).
    known: Vec<f64>,
    /// Edges from block to block that can skid, in occurrences.
    edges: Vec<Edge>,
}

/// What streams make of the samples.
pub(super) struct Expected {
    /// Samples for each executed instruction.
    rate: f64,
    /// Standard deviation of the skid over an edge, in instructions.
    pub(super) skid: f64,
    /// Expected samples of each block.
    samples: Vec<f64>,
}

impl SampledBlocks {
    pub(crate) fn new(
        snapshot: &Snapshot,
        map: &BlockMap,
        graph: &FlowGraph,
        seen: &SeenBlocks,
        ebs: &[Counted],
    ) -> Self {
        if ebs.is_empty() {
            return Self::default();
        }
        let known = known(&seen.executions(graph.streams.iter().map(|edge| edge.amount)));
        let executed = less(executed(graph, seen), &known);
        let mut samples = samples(seen, ebs, |id| ring(snapshot, map, id.text));
        for (samples, executed) in samples.iter_mut().zip(&executed) {
            samples.take_if(|_| executed.is_empty());
        }
        Self {
            samples,
            executed,
            landed: None,
            known,
            edges: edges(map, graph, seen),
        }
    }

    /// The same with samples that are expected where they land.
    pub(crate) fn with_landed(self, landed: Landed) -> Self {
        let of_block = |(executed, landed): (&Vec<_>, Vec<_>)| match executed.is_empty() {
            true => Vec::new(),
            false => landed,
        };
        let landed = self.executed.iter().zip(landed).map(of_block).collect();
        Self {
            landed: Some(less(landed, &self.known)),
            ..self
        }
    }

    /// The same with samples that are taken to be in the block that caused them.
    pub(crate) fn without_skid(&self) -> Self {
        Self {
            edges: Vec::new(),
            ..self.clone()
        }
    }

    /// Whether any block has samples to compare with.
    pub(crate) fn have_samples(&self) -> bool {
        self.samples.iter().flatten().any(|samples| 0.0 < *samples)
    }

    /// Edges with a skid of their own.
    pub(super) const fn n_skids(&self) -> usize {
        self.edges.len()
    }

    /// What streams that ran this often make of the samples.
    pub(super) fn expected(&self, runs: &[f64]) -> Expected {
        let expected = self.expected_by(&self.executed, runs);
        let Some(landed) = &self.landed else {
            return expected;
        };
        let landed = self.expected_by(landed, runs);
        Expected {
            skid: landed.skid.hypot(OF_TIMES * expected.skid),
            ..landed
        }
    }

    /// Standard deviation of the skid over an edge, in instructions, of samples that nothing is known of.
    pub(crate) fn skid(&self, runs: &[f64]) -> f64 {
        self.expected_by(&self.executed, runs).skid
    }

    fn expected_by(&self, executed: &[Vec<(usize, f64)>], runs: &[f64]) -> Expected {
        let instructions = |executed: &Vec<(usize, f64)>| -> f64 {
            executed.iter().map(|(stream, n)| at(runs, *stream) * n).sum()
        };
        let sampled = self.samples.iter().zip(executed);
        let instructions: Vec<f64> = sampled
            .map(|(samples, executed)| samples.map_or(0.0, |_| instructions(executed)))
            .collect();
        let (hits, all): (f64, f64) = (self.samples.iter().flatten().sum(), instructions.iter().sum());
        let rate = over(hits, all);
        let mut skidded = vec![0.0; self.samples.len()];
        for edge in &self.edges {
            let squared = (rate * edge.amount) * (rate * edge.amount);
            add(&mut skidded, edge.from, squared);
            add(&mut skidded, edge.to, squared);
        }
        let samples: Vec<f64> = instructions.iter().map(|n| rate * n).collect();
        let both = self.samples.iter().zip(&samples).zip(&skidded);
        let deviations = both.filter_map(|((samples, expected), skidded)| {
            let off = (*samples)? - expected;
            (ENOUGH <= *expected).then_some((off * off, *expected, *skidded))
        });
        Expected {
            rate,
            skid: skid(&deviations.collect::<Vec<_>>()),
            samples,
        }
    }

    /// Adds the equations of the samples, and those of the skids. Unknown are how often streams ran, by `terms`, and, from `first` on, the
    /// skids in their standard deviations.
    pub(super) fn equations(
        &self,
        expected: &Expected,
        terms: impl Fn(&[(usize, f64)]) -> Vec<(usize, f64)>,
        first: usize,
        equations: &mut Vec<Equation>,
    ) {
        let rate = expected.rate;
        let executed = self.landed.as_ref().unwrap_or(&self.executed);
        let blocks = self.samples.iter().zip(executed).zip(&expected.samples);
        let mut n_terms = 0_usize;
        let of_block = |((samples, executed), expected): ((&Option<f64>, &Vec<_>), &f64)| {
            let is_told = samples.is_some() && 0.0 < rate && n_terms < TERMS;
            let terms = if is_told { terms(executed) } else { Vec::new() };
            n_terms = n_terms.saturating_add(terms.len());
            Equation {
                terms: terms
                    .into_iter()
                    .map(|(unknown, n)| (unknown, rate * n))
                    .collect(),
                value: samples.unwrap_or(0.0),
                // A variance until it is complete.
                weight: if is_told { expected.max(FEWEST) } else { 0.0 },
            }
        };
        let mut of_blocks: Vec<Equation> = blocks.map(of_block).collect();
        for (edge, unknown) in self.edges.iter().zip(first..) {
            let moved = rate * expected.skid * edge.amount;
            let by_chance = |block| at(&expected.samples, block).max(FEWEST);
            let is_known = moved * moved < LITTLE * by_chance(edge.from).min(by_chance(edge.to));
            for (block, moved) in [(edge.from, -moved), (edge.to, moved)] {
                match of_blocks.get_mut(block) {
                    Some(equation) if !is_known => equation.terms.push((unknown, moved)),
                    Some(equation) if 0.0 < equation.weight => equation.weight += moved * moved,
                    _ => {}
                }
            }
            if !is_known {
                equations.push(Equation {
                    terms: vec![(unknown, 1.0)],
                    value: 0.0,
                    weight: 1.0,
                });
            }
        }
        of_blocks.retain(|equation| 0.0 < equation.weight);
        for equation in &mut of_blocks {
            equation.weight = 1.0 / equation.weight;
        }
        equations.extend(of_blocks);
    }
}

/// The standard deviation of the skid over an edge, in instructions, of blocks. A block has the square of the deviation
/// of its samples, the expected samples, and the variance that a skid of one instruction adds.
fn skid(blocks: &[(f64, f64, f64)]) -> f64 {
    let too_small = |skid: f64| {
        let excess = |(squared, expected, skidded): &(f64, f64, f64)| {
            squared / (expected + skid * skid * skidded) - 1.0
        };
        0.0 < blocks.iter().map(excess).sum::<f64>()
    };
    let (mut low, mut high) = (0.0, FARTHEST);
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if too_small(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Starts that each execute one block of some instructions, with these samples, and edges between the blocks.
    pub(crate) fn sampled_blocks(
        instructions: f64,
        samples: &[f64],
        edges: &[(usize, usize, f64)],
    ) -> SampledBlocks {
        let edge = |&(from, to, amount): &(usize, usize, f64)| Edge { from, to, amount };
        SampledBlocks {
            samples: samples.iter().map(|s| Some(*s)).collect(),
            executed: (0..samples.len()).map(|n| vec![(n, instructions)]).collect(),
            landed: None,
            edges: edges.iter().map(edge).collect(),
            known: vec![1.0; samples.len()],
        }
    }

    #[test]
    fn skid_is_what_chance_does_not_explain() {
        // Off by one standard deviation each: nothing skids.
        assert!(skid(&[(100.0, 100.0, 50.0); 40]) < 1e-3);
        // Off by as much as a skid of three instructions makes of it.
        let three = skid(&[(100.0 + 9.0 * 50.0, 100.0, 50.0); 40]);
        assert!((three - 3.0).abs() < 1e-2, "{three}");
        // Without an edge nothing can skid, and no skid explains it.
        assert!((skid(&[(1e6, 100.0, 0.0)]) - FARTHEST).abs() < 1.0);
        assert!(skid(&[]) < 1e-3);
    }

    #[test]
    fn times_that_explain_all_leave_a_part() {
        // All samples of the first block are found in the second.
        let plain = sampled_blocks(10.0, &[0.0, 200.0], &[(0, 1, 10.0)]);
        let landed = plain
            .clone()
            .with_landed(vec![vec![(0, 0.0)], vec![(0, 10.0), (1, 10.0)]]);
        let inflow = [10.0, 10.0];
        let [all, left] = [&plain, &landed].map(|blocks| blocks.expected(&inflow));
        assert_eq!(
            (all.samples, left.samples),
            (vec![100.0, 100.0], vec![0.0, 200.0])
        );
        assert!(1.0 < all.skid && (left.skid - OF_TIMES * all.skid).abs() < 1e-3 * all.skid);
        assert_eq!(landed.skid(&inflow), all.skid);
    }

    #[test]
    fn without_samples_there_is_no_equation() {
        let none = sampled_blocks(10.0, &[0.0, 0.0], &[(0, 1, 5.0)]);
        let mut equations = Vec::new();
        none.equations(&none.expected(&[100.0, 100.0]), <[_]>::to_vec, 2, &mut equations);
        assert_eq!(equations, []);
    }
}
