//! Sums that know which phase of the run each addend belongs to, and their variance under sampling at a fixed period.
//!
//! Of n samples, the n_p that fall into phase p are as good as given ([`super::phase`]); chance has the spread within the
//! phases, and of the spread between them only a part c_p:
//!
//! ```text
//! Var = sum over p of  squares_p - sum_p^2 / n_p  +  c_p n_p (sum_p / n_p - sum / n)^2
//! ```
//!
//! With one phase that is the variance of n draws by chance.

use super::phase::Phases;
use super::{BlockCount, Stacks, Stream, lbr};
use crate::blocks::{BlockId, BlockMap};

/// The phases as they matter for the figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Strata {
    /// Phase of each block in [`super::BlockCounts::blocks`].
    pub of_block: Vec<usize>,
    /// Samples of eventing IPs in each phase.
    pub samples: Vec<f64>,
    /// Drawn stacks in each phase.
    pub stacks: Vec<f64>,
    /// The part of the variance between phases that is left to chance, 0 to 1.
    pub chance: Vec<f64>,
}

impl Strata {
    /// No samples yet, in the phases that were found and one more, for blocks that are in none.
    pub(super) fn new(phases: &Phases, n_blocks: usize) -> Self {
        let mut chance = phases.chances().to_vec();
        chance.push(1.0);
        Self {
            of_block: vec![chance.len() - 1; n_blocks],
            samples: vec![0.0; chance.len()],
            stacks: vec![0.0; chance.len()],
            chance,
        }
    }

    /// Puts each block into the phase of the stream that passed it most often.
    pub(super) fn place_blocks(
        &mut self,
        streams: &[Stream],
        map: &BlockMap,
        phases: &Phases,
        index: impl Fn(BlockId) -> Option<usize>,
    ) {
        let mut most = vec![0u64; self.of_block.len()];
        for stream in streams {
            let Some(phase) = phases.of((stream.text, stream.first)) else {
                continue;
            };
            for (block, _) in lbr::shares(map, stream.text, stream.first..stream.end) {
                let Some(block) = index(block) else { continue };
                if let (Some(most), Some(of_block)) = (most.get_mut(block), self.of_block.get_mut(block))
                    && *most < stream.hits
                {
                    (*most, *of_block) = (stream.hits, phase);
                }
            }
        }
    }

    /// Counts the drawn stacks of each phase.
    pub(super) fn count_stacks(&mut self, drawn: &Stacks) {
        for stack in &drawn.stacks {
            if let Some(stacks) = self.stacks.get_mut(stack.phase) {
                *stacks += 1.0;
            }
        }
    }

    /// Counts the samples of eventing IPs in each phase; what is left of `all` belongs to none.
    pub(super) fn count_samples(&mut self, blocks: &[BlockCount], all: f64) {
        for (block, phase) in blocks.iter().zip(&self.of_block) {
            if let (Some(figure), Some(samples)) = (block.ebs, self.samples.get_mut(*phase)) {
                *samples += figure.hits;
            }
        }
        let elsewhere = all - self.samples.iter().sum::<f64>();
        if let Some(samples) = self.samples.last_mut() {
            *samples += elsewhere.max(0.0);
        }
    }

    /// The phase of a block.
    pub fn of_block(&self, block: usize) -> usize {
        self.of_block.get(block).copied().unwrap_or(0)
    }
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

    /// The variance of the sum of as many samples as each phase has.
    pub fn variance(&self, samples: &[f64], chance: &[f64]) -> f64 {
        let mean = over(self.sum(), samples.iter().sum());
        let within: f64 = self
            .0
            .iter()
            .map(|of| {
                let n = samples.get(of.phase).copied().unwrap_or(0.0);
                (of.squares - over(of.sum * of.sum, n)).max(0.0)
            })
            .sum();
        let phases = samples.iter().zip(chance).enumerate();
        let between: f64 = phases
            .filter(|(_, (n, _))| 0.0 < **n)
            .map(|(phase, (n, chance))| {
                let here = self.0.iter().find(|of| of.phase == phase);
                let off = here.map_or(0.0, |of| of.sum) / n - mean;
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

    #[test]
    fn what_is_between_phases_is_not_left_to_chance() {
        let mut sum = ByPhase::default();
        // Ten stacks of phase 0 show it twice each, thirty of phase 1 not at all.
        for _ in 0..10 {
            sum.add(0, 2.0, 4.0);
        }
        let samples = [10.0, 30.0];
        assert_eq!(sum.variance(&samples, &[0.0, 0.0]), 0.0);
        assert_eq!(sum.variance_of(40.0), 30.0);
        // With all of it left to chance the phases make no difference.
        assert_eq!(sum.variance(&samples, &[1.0, 1.0]), 30.0);
    }

    #[test]
    fn what_differs_within_a_phase_counts() {
        let mut sum = ByPhase::default();
        for n in 0..10 {
            let amount = f64::from(n % 2);
            sum.add(0, amount, amount);
        }
        assert_eq!(sum.variance(&[10.0, 90.0], &[0.0, 0.0]), 2.5);
    }
}
