//! Eventing IPs as a second measurement of what streams count, good for regions and not for blocks.
//!
//! An eventing IP stands a few cycles behind the instruction that it is due to, and latencies draw it on (paper section
//! III.A; "Can We Trust Profiling Results?", ICS 2019, section 1), so that short blocks have too many samples or too few. But a sample only moves along
//! the way that the processor takes: what one block loses, the next one gains. So the samples of a region are off by no
//! more than what skids over its border, however wrong they are within it.
//! To each passage from block to block belongs the skid over it, in instructions that are counted on the far side, and
//! the samples of a block are those of its executions, and what skids in, less what skids out:
//!
//! ```text
//! samples = rate * (instructions * executions + sum in (passages * skid) - sum out (passages * skid)) +- sqrt(samples)
//! ```
//!
//! The skids are unknown, with mean zero. Their standard deviation is estimated as the variance between studies is in a
//! random effects model: it is what makes the squares of all deviations as large as they should be (Paule and Mandel,
//! Journal of Research of the National Bureau of Standards 87, 1982). So imprecise events weigh less by themselves.

use std::collections::HashMap;

use super::chain::{Chain, Share, add, at, spot};
use super::solve::Symmetric;
use super::{Counted, Roles, Stream, lbr};
use crate::addr::Ring;
use crate::blocks::{BlockId, BlockMap};
use crate::locate::{Located, Location};
use crate::snapshot::Snapshot;

/// Most instructions that a sample may skid: no reorder buffer holds more (Golden Cove has 512 entries, Intel 64 and IA-32
/// Architectures Optimization Reference Manual).
const FARTHEST: f64 = 512.0;

/// Samples that are due to a block from which on its deviation tells of skid.
/// A Poisson count is close enough to normal from five on (Cochran's rule).
const ENOUGH: f64 = 5.0;

/// Fewest samples that the variance of a block is taken for: that none are due does not make one of them impossible.
const FEWEST: f64 = 0.5;

/// Halvings of the interval of the standard deviation: to less than a thousandth of an instruction.
const HALVINGS: usize = 20;

/// The samples of the blocks that streams pass.
#[derive(Default)]
pub(super) struct Ips {
    /// Samples in each block; `None` where its ring has none.
    samples: Vec<Option<f64>>,
    /// From places to blocks: instructions of the block that one arrival at the place runs.
    runs: Vec<Share>,
    /// From blocks to blocks: recorded passages.
    passages: Vec<Share>,
}

/// What arrivals make of the samples.
pub(super) struct Due {
    /// Samples for each executed instruction.
    rate: f64,
    /// Standard deviation of the skid over a passage, in instructions.
    skid: f64,
    /// For each block the inverse of the variance of its samples, without the skid; zero where they tell nothing.
    weights: Vec<f64>,
}

impl Ips {
    pub(super) fn new(
        snapshot: &Snapshot,
        located: &Located,
        map: &BlockMap,
        roles: &Roles,
        (chain, streams): (&Chain, &[Stream]),
        ebs: &[Counted],
    ) -> Self {
        let mut blocks: HashMap<BlockId, usize> = HashMap::new();
        let mut runs = Vec::new();
        let mut passages: HashMap<(usize, usize), f64> = HashMap::new();
        for (stream, start) in streams.iter().zip(&chain.starts) {
            let arrivals = chain.arrivals.get(*start).copied().unwrap_or(1.0);
            let mut last = None;
            for (block, part) in lbr::shares(map, stream.text, stream.first..stream.end) {
                let next = blocks.len();
                let to = *blocks.entry(block).or_insert(next);
                let instructions = part * map.instructions(block).len() as f64;
                runs.push(Share {
                    from: *start,
                    to,
                    share: instructions * stream.hits as f64 / arrivals,
                });
                if let Some(from) = last.replace(to) {
                    *passages.entry((from, to)).or_default() += stream.hits as f64;
                }
            }
        }
        let block_of = |place: Location| {
            let (text, instruction) = spot(map, place)?;
            let block = map.text(text)?.block_of(instruction);
            blocks.get(&BlockId { text, block }).copied()
        };
        for branch in located.branches.iter().filter(|b| roles.lbr.contains(&b.event)) {
            if let (Some(from), Some(to)) = (block_of(branch.from), branch.to.and_then(block_of)) {
                *passages.entry((from, to)).or_default() += branch.hits as f64;
            }
        }
        let mut passages: Vec<Share> = passages
            .into_iter()
            .filter(|((from, to), _)| from != to)
            .map(|((from, to), share)| Share { from, to, share })
            .collect();
        // The order of a hash map is not one to sum in: equal inputs shall give equal figures.
        passages.sort_unstable_by_key(|passage| (passage.from, passage.to));
        let ring = |block: &BlockId| super::ring(snapshot, map, block.text);
        Self {
            samples: samples(&blocks, ebs, ring),
            runs,
            passages,
        }
    }

    /// Passages from block to block, each with a skid of its own.
    pub(super) fn n_passages(&self) -> usize {
        self.passages.len()
    }

    /// What so many arrivals make of the samples.
    pub(super) fn due(&self, arrivals: &[f64]) -> Due {
        let mut instructions = vec![0.0; self.samples.len()];
        for run in &self.runs {
            let arrives = at(arrivals, run.from);
            add(&mut instructions, run.to, arrives * run.share);
        }
        let sampled = || {
            let both = self.samples.iter().zip(&instructions);
            both.filter_map(|(samples, instructions)| Some(((*samples)?, *instructions)))
        };
        let all = sampled().fold((0.0, 0.0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
        let rate = if 0.0 < all.1 { all.0 / all.1 } else { 0.0 };
        let weight = |(samples, instructions): (&Option<f64>, &f64)| match samples {
            Some(_) if 0.0 < rate => 1.0 / (rate * instructions).max(FEWEST),
            _ => 0.0,
        };
        let mut skidded = vec![0.0; self.samples.len()];
        for passage in &self.passages {
            let squared = (rate * passage.share) * (rate * passage.share);
            add(&mut skidded, passage.from, squared);
            add(&mut skidded, passage.to, squared);
        }
        let both = self.samples.iter().zip(&instructions).zip(&skidded);
        let deviations = both.filter_map(|((samples, instructions), skidded)| {
            let due = rate * instructions;
            let off = (*samples)? - due;
            (ENOUGH <= due).then_some((off * off, due, *skidded))
        });
        Due {
            rate,
            skid: skid(&deviations.collect::<Vec<_>>()),
            weights: self.samples.iter().zip(&instructions).map(weight).collect(),
        }
    }

    /// Adds to `sum` what the equations of the samples make of arrivals and skids, the latter in their standard
    /// deviations: the matrix of least squares times both.
    pub(super) fn apply(&self, due: &Due, (arrivals, skids): (&[f64], &[f64]), sum: &mut [f64]) {
        let mut samples = vec![0.0; self.samples.len()];
        for run in &self.runs {
            let arrives = at(arrivals, run.from);
            add(&mut samples, run.to, due.rate * run.share * arrives);
        }
        for (passage, skid) in self.passages.iter().zip(skids) {
            let moved = due.moved(passage) * skid;
            add(&mut samples, passage.from, -moved);
            add(&mut samples, passage.to, moved);
        }
        self.transposed(due, &samples, arrivals.len(), sum);
    }

    /// Adds to `sum` the right side of the equations of least squares, with the skids behind `n_places` arrivals.
    pub(super) fn right(&self, due: &Due, n_places: usize, sum: &mut [f64]) {
        let samples: Vec<f64> = self.samples.iter().map(|s| s.unwrap_or_default()).collect();
        self.transposed(due, &samples, n_places, sum);
    }

    fn transposed(&self, due: &Due, samples: &[f64], n_places: usize, sum: &mut [f64]) {
        let weighed: Vec<f64> = samples.iter().zip(&due.weights).map(|(s, w)| s * w).collect();
        for run in &self.runs {
            add(sum, run.from, due.rate * run.share * at(&weighed, run.to));
        }
        for (n, passage) in self.passages.iter().enumerate() {
            add(
                sum,
                n_places + n,
                due.moved(passage) * (at(&weighed, passage.to) - at(&weighed, passage.from)),
            );
        }
    }

    /// Adds the squares of the equations.
    pub(super) fn add_squares(&self, due: &Due, n_places: usize, near: &mut Symmetric) {
        let mut terms: Vec<Vec<(usize, f64)>> = vec![Vec::new(); self.samples.len()];
        let mut add = |block: usize, term| {
            if let Some(terms) = terms.get_mut(block) {
                terms.push(term);
            }
        };
        for run in &self.runs {
            add(run.to, (run.from, due.rate * run.share));
        }
        for (n, passage) in self.passages.iter().enumerate() {
            add(passage.from, (n_places + n, -due.moved(passage)));
            add(passage.to, (n_places + n, due.moved(passage)));
        }
        for (terms, weight) in terms.iter().zip(&due.weights) {
            near.add(terms, *weight);
        }
    }
}

impl Due {
    /// Samples that a standard deviation of skid moves over a passage.
    fn moved(&self, passage: &Share) -> f64 {
        self.rate * self.skid * passage.share
    }
}

/// The samples of each block by its number, in units of the mean weight where events differ in their periods.
fn samples(
    blocks: &HashMap<BlockId, usize>,
    ebs: &[Counted],
    ring: impl Fn(&BlockId) -> Ring,
) -> Vec<Option<f64>> {
    let hits: f64 = ebs.iter().map(|counted| counted.hits).sum();
    let weight: f64 = ebs.iter().map(|counted| counted.weight).sum();
    let served = |wanted| ebs.iter().any(|counted| ring(&counted.block) == wanted);
    let (kernel, user) = (served(Ring::Kernel), served(Ring::User));
    let mut samples = vec![None; blocks.len()];
    for (block, n) in blocks {
        let served = match ring(block) {
            Ring::Kernel => kernel,
            Ring::User => user,
        };
        if let Some(samples) = samples.get_mut(*n).filter(|_| served && 0.0 < weight) {
            *samples = Some(0.0);
        }
    }
    for counted in ebs {
        let block = blocks.get(&counted.block);
        if let Some(Some(samples)) = block.and_then(|n| samples.get_mut(*n)) {
            *samples += counted.weight * hits / weight;
        }
    }
    samples
}

/// The standard deviation of the skid over a passage, in instructions, of blocks with the square of the deviation of their
/// samples, the samples that are due, and the variance that a skid of one instruction adds.
fn skid(blocks: &[(f64, f64, f64)]) -> f64 {
    let too_small = |skid: f64| {
        let excess =
            |(squared, due, skidded): &(f64, f64, f64)| squared / (due + skid * skid * skidded) - 1.0;
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

    /// Places that each run one block of so many instructions, with so many samples, and passages between the blocks.
    pub(in crate::estimate) fn ips(
        instructions: f64,
        samples: &[f64],
        passages: &[(usize, usize, f64)],
    ) -> Ips {
        let passages = passages
            .iter()
            .map(|&(from, to, share)| Share { from, to, share });
        Ips {
            samples: samples.iter().map(|s| Some(*s)).collect(),
            runs: (0..samples.len())
                .map(|n| Share {
                    from: n,
                    to: n,
                    share: instructions,
                })
                .collect(),
            passages: passages.collect(),
        }
    }

    #[test]
    fn skid_is_what_chance_does_not_explain() {
        // Off by one standard deviation each: there is no skid.
        assert!(skid(&[(100.0, 100.0, 50.0); 40]) < 1e-3);
        // Off by as much as a skid of three instructions makes of it.
        let three = skid(&[(100.0 + 9.0 * 50.0, 100.0, 50.0); 40]);
        assert!((three - 3.0).abs() < 1e-2, "{three}");
        // Without a passage nothing can skid, and no skid explains it.
        assert!((skid(&[(1e6, 100.0, 0.0)]) - FARTHEST).abs() < 1.0);
        assert!(skid(&[]) < 1e-3);
    }

    #[test]
    fn a_ring_without_samples_says_nothing() {
        let id = |block| BlockId {
            text: crate::locate::TextIdx(0),
            block,
        };
        let blocks = HashMap::from([(id(0), 0), (id(1), 1), (id(2), 2)]);
        let ring = |block: &BlockId| {
            if block.block == 0 {
                Ring::Kernel
            } else {
                Ring::User
            }
        };
        let counted = |block, hits, period: f64| Counted {
            block: id(block),
            process: crate::snapshot::ProcessIdx(0),
            hits,
            weight: hits * period,
        };
        let found = samples(&blocks, &[counted(1, 6.0, 10.0), counted(1, 4.0, 35.0)], ring);
        assert_eq!(found, [None, Some(10.0), Some(0.0)]);
        assert_eq!(samples(&blocks, &[], ring), [None; 3]);
    }

    #[test]
    fn without_samples_there_is_no_equation() {
        let none = ips(10.0, &[0.0, 0.0], &[(0, 1, 5.0)]);
        let due = none.due(&[100.0, 100.0]);
        let mut sum = vec![0.0; 3];
        none.apply(&due, (&[1.0, 2.0], &[3.0]), &mut sum);
        none.right(&due, 2, &mut sum);
        assert_eq!(sum, [0.0; 3]);
    }
}
