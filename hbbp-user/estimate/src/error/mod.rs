//! Standard errors from the sample counts.
//!
//! Samples of eventing IPs are far apart in time and independent: the count of a block is a Poisson number.
//! The streams of one branch stack are not: a loop fills a stack with the same stream, so that N-1 occurrences tell no
//! more than one. In terms of survey sampling a stack is a cluster of m = N-1 streams, and the variance of a count is
//! that of m independent streams times the design effect 1 + (m-1) rho (Kish, Survey Sampling, 1965, section 5.4),
//! where rho is how alike the streams of one stack are.
//! How alike they are is seen from bootstrap replicates ([`Replicate`]): a count that is x in one stack has over n stacks
//! the relative variance Var(x) / Mean(x)^2 / n.
//! Where too few of the replicates show the count, rho is taken as 1, which is never too small an error.
//! The stacks themselves come at a fixed period, so that phases of the run have their share of them without chance
//! ([`super::flow::phases`]): what counts is how much stacks of one phase differ.
//!
//! Where each ring has stacks of its own, they do not count alike ([`dispersion`]).
//! Where stacks are biased, what was corrected adds to the errors ([`correction`]); where they are not, what the balance moved takes off
//! them ([`effective`]).
//!
//! Two things are left out, and both make the errors too large for most runs. The walks go round a loop as often as chance
//! has it, while many loops have a fixed number of rounds. And of a load that repeats itself, samples at a fixed period
//! find all parts more evenly than chance would, except for the rare period that keeps step with it: over many periods
//! both together have the variance of independent samples (Cochran, chapter 8, on periodic variation). Nothing in a
//! snapshot tells which period is which.

mod bootstrap;
mod correction;
pub mod dispersion;
mod effective;
pub mod strata;
mod sum;

use super::EventAssignment;
use super::sources::streams::Stream;
pub(super) use bootstrap::replicates;
pub use bootstrap::{BlockRun, Replicate};
pub use correction::{Correction, Corrections};
pub use dispersion::Dispersion;
pub(super) use effective::Moved;
use hbbp_model::snapshot::{Event, EventIdx, Snapshot};
use strata::ByPhase;
pub use strata::Strata;
pub use sum::Sum;

/// Streams in a full stack of 32 entries, the deepest there is (`MAX_LBR_ENTRIES` in
/// arch/x86/events/perf_event.h, Linux v6.12); taken where a recording does not tell.
const DEEPEST: f64 = 31.0;

/// Standard error of a count of independent samples: Poisson, count / sqrt(hits).
/// Hits are samples; the error is in the unit of the count.
pub fn independent(hits: f64, count: f64) -> f64 {
    if 0.0 < hits { count / hits.sqrt() } else { 0.0 }
}

/// Standard error of a count from streams, of which `design_effect` together tell as much as one.
pub fn clustered(hits: f64, count: f64, design_effect: f64) -> f64 {
    independent(hits, count) * design_effect.max(1.0).sqrt()
}

/// Replicates that must show a count before their variance is believed; 16 give its root to about a fifth.
const ENOUGH: u32 = 16;

/// How much something differs from replicate to replicate.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    amounts: ByPhase,
    shown: u32,
}

impl Spread {
    /// Adds what one replicate of a phase shows of it, which is not zero.
    pub fn add(&mut self, phase: usize, amount: f64) {
        self.amounts.add(phase, amount, amount * amount);
        self.shown = self.shown.saturating_add(1);
    }

    /// Variance over square of the mean, for one stack; `None` where too few show it to
    /// tell.
    pub fn relative_variance(&self, strata: &Strata) -> Option<f64> {
        let sum = self.amounts.sum();
        let enough = ENOUGH <= self.shown && 0.0 < sum;
        let n_drawn = strata.stacks.all();
        enough.then(|| self.amounts.variance(&strata.stacks) * n_drawn / (sum * sum))
    }
}

/// Streams in one stack, on average: streams over stacks. `stacks` are the oldest slots of recorded branches.
/// Without branch counts the samples of the events stand for the stacks.
pub(super) fn streams_per_stack(streams: &[Stream], stacks: f64, lbr: &[EventIdx], events: &[Event]) -> f64 {
    let hits: f64 = streams.iter().map(|s| s.hits as f64).sum();
    let events = lbr.iter().filter_map(|event| events.get(event.0 as usize));
    let runs: f64 = events.map(|event| event.runs as f64).sum();
    let stacks = if 0.0 < stacks { stacks } else { runs };
    if 0.0 < stacks {
        (hits / stacks).clamp(1.0, DEEPEST)
    } else {
        DEEPEST
    }
}

/// For each block, the relative standard error of its LBR count as the replicates show it, over `n_stacks` real stacks, or as
/// many as they are worth;
/// `None` where too few show the block.
pub(super) fn of_blocks(
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

/// Samples of the events that serve as EBS, wherever they fell.
pub(super) fn samples(snapshot: &Snapshot, assignment: &EventAssignment) -> f64 {
    let ips = snapshot.intervals.iter().flat_map(|i| &i.ips);
    ips.filter(|c| assignment.uses_ips_of(c.event))
        .map(|c| c.hits as f64)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_shrink_with_the_root_of_what_is_independent() {
        assert_eq!(independent(400.0, 1000.0), 50.0);
        assert_eq!(clustered(400.0, 1000.0, 4.0), 100.0);
        assert_eq!(clustered(400.0, 1000.0, 0.5), 50.0);
        assert_eq!(independent(0.0, 0.0), 0.0);
    }
}
