//! How much counts differ from one bootstrap replicate of a stack to the next.

use super::bootstrap::Replicate;
use super::dispersion::Dispersion;
use super::strata::{ByPhase, Strata};

/// Replicates that must show a count before their variance is believed; 16 give its root to about a fifth.
const ENOUGH: u32 = 16;

/// How much something differs from replicate to replicate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spread {
    amounts: ByPhase,
    shown: u32,
}

impl Spread {
    /// Adds what one replicate of a phase shows of it, which is not zero.
    pub(crate) fn add(&mut self, phase: usize, amount: f64) {
        self.amounts.add(phase, amount, amount * amount);
        self.shown = self.shown.saturating_add(1);
    }

    /// Variance over square of the mean, for one stack; `None` if too few show it to
    /// tell.
    pub(crate) fn relative_variance(&self, strata: &Strata) -> Option<f64> {
        let sum = self.amounts.sum();
        let enough = ENOUGH <= self.shown && 0.0 < sum;
        let n_drawn = strata.stacks.all();
        enough.then(|| self.amounts.variance(&strata.stacks) * n_drawn / (sum * sum))
    }
}

/// For each block, the relative standard error of its LBR count as the replicates show it, over `n_stacks` real stacks, or as
/// many as they are worth;
/// `None` if too few show the block.
pub(crate) fn of_blocks(
    replicates: &[Replicate],
    strata: &Strata,
    dispersion: &Dispersion,
    n_stacks: f64,
) -> Vec<Option<f64>> {
    let mut spreads = vec![Spread::default(); strata.of_block.len()];
    let mut times = vec![0.0; spreads.len()];
    for replicate in replicates {
        let blocks = || replicate.runs.iter().flat_map(|run| run.blocks.clone());
        for run in &replicate.runs {
            for times in times.get_mut(run.blocks.clone()).into_iter().flatten() {
                *times += run.times;
            }
        }
        for block in blocks() {
            // A block that two process images ran comes twice.
            let times = times.get_mut(block).map(std::mem::take).unwrap_or(0.0);
            if let Some(spread) = spreads.get_mut(block).filter(|_| 0.0 < times) {
                spread.add(replicate.phase, times);
            }
        }
    }
    let error = |(block, spread): (usize, &Spread)| {
        let variance = spread.relative_variance(strata)? * dispersion.of_block(block);
        Some((variance / n_stacks.max(1.0)).sqrt())
    };
    spreads.iter().enumerate().map(error).collect()
}
