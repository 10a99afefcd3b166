//! Sums of executed instructions with their variances.
//!
//! A sum is a weighted sum of the counts of many blocks, and all counts come from the same n samples.
//! Each sample falls into one block, so it is a sum over n draws with the variance of a multinomial: with h samples in a
//! block that add m to it,
//!
//! ```text
//! Var(sum) = sum of m^2 / h  -  (sum of m)^2 / n
//! ```
//!
//! Samples have a fixed period, so this applies within each phase of the run ([`super::strata`]). For counts from
//! branch stacks, the variance is that between bootstrap replicates of the stacks. It is divided by the number of stacks
//! that they are worth ([`super::effective`]), and multiplied by the dispersion of what is summed
//! ([`super::dispersion`]). Samples that were traced back along the code are off by more than chance, in one direction
//! for all blocks alike ([`crate::Skid`]). Where streams were corrected, the sum is off by more than chance as well
//! ([`super::correction`]). What counts of classes say of the sum leaves less to chance ([`crate::Ties`]). If too few
//! replicates contain the sum, the formula above applies. Then n is the number of stacks, and h the number of streams
//! divided by the design effect (as if all streams of a stack were equal). Where figures are samples, differences
//! between time slices show the variance (`waited`).

use super::correction::Correction;
use super::spread::Spread;
use super::strata::ByPhase;
use crate::sums::over;
use crate::waited::BetweenSlices;
use crate::{BlockCount, BlockCounts, Method, Part, TiedSum};

/// A sum of amounts from both methods.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    ebs: ByPhase,
    lbr: Draws,
    /// What counts by LBR, each times its dispersion.
    dispersed: f64,
    spread: Spread,
    correction: Correction,
    /// Samples of eventing IPs in what was corrected, and its amount.
    sampled: [f64; 2],
    tied: TiedSum,
    between: BetweenSlices,
}

/// A sum, and its squares, over draws by chance. Which phases they are of is told by the replicates, if at all.
#[derive(Clone, Debug, Default)]
struct Draws {
    sum: f64,
    squares: f64,
}

impl Sum {
    /// Adds the count of a block for each of its `instructions` that belong here.
    pub fn add(&mut self, part: &Part, block: &BlockCount, instructions: f64, counts: &BlockCounts) {
        let amount = part.count * instructions;
        let squares = if 0.0 < part.hits {
            amount * amount * counts.design_effect(block.method) / part.hits
        } else {
            0.0
        };
        match block.method {
            Method::Ebs => self
                .ebs
                .add(counts.chance.strata.of_block(part.block), amount, squares),
            Method::Lbr => {
                self.lbr.add(amount, squares);
                self.dispersed += amount * counts.chance.dispersion.of_block(part.block);
            }
        }
        let all = block.chosen().count;
        if 0.0 < all {
            // Of several process images each has its part of the block.
            let times = instructions * part.count / all;
            if block.method == Method::Lbr {
                let [hits, corrected] = &mut self.sampled;
                self.correction
                    .add(counts.biases.corrections.of_block(part.block), times);
                *hits += block.ebs.map_or(0.0, |ebs| ebs.hits) * times / f64::from(block.instructions.max(1));
                *corrected += amount;
            }
            counts.classes.ties.add(&mut self.tied, part.block, times);
        }
    }

    /// Adds the contribution of one resampled stack of a phase to blocks that are counted by LBR, in instructions.
    pub fn add_stack(&mut self, phase: usize, instructions: f64) {
        self.spread.add(phase, instructions);
    }

    /// Adds the samples of the next time slice that has some, where figures are samples.
    pub fn add_slice(&mut self, counts: &BlockCounts, slice: usize, samples: f64) {
        self.between.add(counts.slice_totals(), slice, samples);
    }

    /// The sum, in the unit of the counts.
    pub fn amount(&self) -> f64 {
        self.ebs.sum() + self.lbr.sum
    }

    /// Its variance.
    pub fn variance(&self, counts: &BlockCounts) -> f64 {
        let [hits, corrected] = self.sampled;
        let left = self.correction.beside_samples(hits, corrected);
        let of_model = counts.biases.corrections.of_model(self.amount());
        self.by_chance(counts) + left * counts.classes.ties.left(&self.tied) + of_model
    }

    /// Its variance without what corrections may have left, which is alike in all runs of the same code.
    pub fn by_chance(&self, counts: &BlockCounts) -> f64 {
        if counts.waited.is_some() {
            return self.between.variance(counts.slice_totals(), self.amount());
        }
        let strata = &counts.chance.strata;
        let lbr = self.lbr.sum;
        let of_stacks = match self.spread.relative_variance(strata) {
            Some(relative) => lbr * self.dispersed * relative / counts.chance.effective_stacks.max(1.0),
            None => self.lbr.variance(counts.sampling.n_stacks),
        };
        let of_model = counts
            .biases
            .skid
            .map_or(0.0, |skid| skid.variance(self.ebs.sum()));
        (self.ebs.variance(&strata.samples) + of_model + of_stacks) * counts.classes.ties.left(&self.tied)
    }
}

impl Draws {
    fn add(&mut self, amount: f64, squares: f64) {
        self.sum += amount;
        self.squares += squares;
    }

    /// The variance of the sum of `n` draws.
    fn variance(&self, n: f64) -> f64 {
        (self.squares - over(self.sum * self.sum, n)).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_vary_about_their_mean() {
        let mut draws = Draws::default();
        (0..10).for_each(|_| draws.add(2.0, 4.0));
        assert_eq!(draws.variance(40.0), 30.0);
        assert_eq!(draws.variance(10.0), 0.0);
    }
}
