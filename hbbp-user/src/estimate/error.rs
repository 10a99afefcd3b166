//! Standard errors from the sample counts.
//!
//! Samples of eventing IPs are far apart in time and independent: the count of a block is a Poisson number.
//! The streams of one branch stack are not: a loop fills a stack with the same stream, so that N-1 occurrences tell no
//! more than one. In terms of survey sampling a stack is a cluster of m = N-1 streams, and the variance of a count is
//! that of m independent streams times the design effect 1 + (m-1) rho (Kish, Survey Sampling, 1965, section 5.4),
//! where rho is how alike the streams of one stack are.
//! How alike they are is seen from stacks drawn anew ([`super::Stacks`]): a count that is x in one stack has over n stacks
//! the relative variance Var(x) / Mean(x)^2 / n.
//! Where too few of the drawn stacks show the count, rho is taken as 1, which is never too small an error.
//! The stacks themselves come at a fixed period, so that phases of the run have their share of them without chance
//! ([`super::phase`]): what counts is how much stacks of one phase differ.
//!
//! Two things are left out, and both make the errors too large for most runs. The walks go round a loop as often as chance
//! has it, while many loops have a fixed number of rounds. And of a load that repeats itself, samples at a fixed period
//! find all parts more evenly than chance would, except for the rare period that keeps step with it: over many periods
//! both together have the variance of independent samples (Cochran, chapter 8, on periodic variation). Nothing in a
//! snapshot tells which period is which.

use std::collections::HashMap;

use super::strata::{ByPhase, Strata};
use super::{BlockCount, Roles, Stacks, Stream};
use crate::locate::Located;
use crate::snapshot::{Event, EventIdx, Snapshot};

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

/// Drawn stacks that must show a count before their variance is believed; 16 give its root to about a fifth.
const ENOUGH_STACKS: u32 = 16;

/// How much something differs from drawn stack to drawn stack.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    amounts: ByPhase,
    shown: u32,
}

impl Spread {
    /// Adds what one stack of a phase shows of it, which is not zero.
    pub fn add(&mut self, phase: usize, amount: f64) {
        self.amounts.add(phase, amount, amount * amount);
        self.shown = self.shown.saturating_add(1);
    }

    /// Variance over square of the mean, for one stack out of those that were drawn; `None` where too few show it to
    /// tell.
    pub fn relative_variance(&self, strata: &Strata) -> Option<f64> {
        let sum = self.amounts.sum();
        let enough = ENOUGH_STACKS <= self.shown && 0.0 < sum;
        let n_drawn: f64 = strata.stacks.iter().sum();
        enough.then(|| self.amounts.variance(&strata.stacks, strata) * n_drawn / (sum * sum))
    }
}

/// Streams in one stack, on average: streams over stacks, where each stack has one oldest entry.
/// Without branch counts the samples of the events stand for the stacks.
pub(super) fn streams_per_stack(
    streams: &[Stream],
    located: &Located,
    roles: &Roles,
    events: &[Event],
) -> f64 {
    let hits: f64 = streams.iter().map(|s| s.hits as f64).sum();
    let used = |event: &EventIdx| roles.lbr.contains(event);
    let oldest: f64 = located
        .branches
        .iter()
        .filter(|b| used(&b.event))
        .map(|b| b.oldest as f64)
        .sum();
    let events = events
        .iter()
        .zip((0u32..).map(EventIdx))
        .filter(|(_, idx)| used(idx));
    let runs: f64 = events.map(|(event, _)| event.runs as f64).sum();
    let stacks = if 0.0 < oldest { oldest } else { runs };
    if 0.0 < stacks {
        (hits / stacks).clamp(1.0, DEEPEST)
    } else {
        DEEPEST
    }
}

/// Replaces the errors of LBR counts by what the drawn stacks show, for blocks that enough of them show.
pub(super) fn refine(blocks: &mut [BlockCount], resampled: &Stacks, strata: &Strata, n_stacks: f64) {
    let mut spreads = vec![Spread::default(); blocks.len()];
    let mut in_stack: HashMap<usize, f64> = HashMap::new();
    for stack in &resampled.stacks {
        in_stack.clear();
        for ran in &stack.ran {
            *in_stack.entry(ran.block).or_default() += ran.times;
        }
        for (block, times) in &in_stack {
            if let Some(spread) = spreads.get_mut(*block) {
                spread.add(stack.phase, *times);
            }
        }
    }
    for (block, spread) in blocks.iter_mut().zip(&spreads) {
        if let (Some(figure), Some(variance)) = (block.lbr.as_mut(), spread.relative_variance(strata)) {
            figure.std_error = figure.count * (variance / n_stacks.max(1.0)).sqrt();
        }
    }
}

/// Samples of the events that serve as EBS, wherever they fell.
pub(super) fn samples(snapshot: &Snapshot, roles: &Roles) -> f64 {
    let ips = snapshot.intervals.iter().flat_map(|i| &i.ips);
    ips.filter(|c| roles.ebs.contains(&c.event))
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
