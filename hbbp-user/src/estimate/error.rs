//! Standard errors from the sample counts.
//!
//! Samples of eventing IPs are far apart in time and independent: the count of a block is a Poisson number.
//! The streams of one branch stack are not: a loop fills a stack with the same stream, so that N-1 occurrences tell no
//! more than one. In terms of survey sampling a stack is a cluster of m = N-1 streams, and the variance of a count is
//! that of m independent streams times the design effect 1 + (m-1) rho (Kish, Survey Sampling, 1965, section 5.4),
//! where rho is how alike the streams of one stack are.

use super::{Roles, Stream};
use crate::locate::Located;
use crate::snapshot::{Event, EventIdx, Snapshot};

/// Streams in a full stack of 32 entries, the deepest there is (kernel-facts 3a); taken where a recording does not tell.
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
