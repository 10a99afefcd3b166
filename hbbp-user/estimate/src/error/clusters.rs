//! Standard errors of counts whose hits are independent, or come in clusters that tell as much as one: the streams of a stack.

use crate::sources::stream::Stream;
use hbbp_model::snapshot::{Event, EventIdx};

/// Streams in a full stack of 32 entries, the deepest there is (`MAX_LBR_ENTRIES` in
/// arch/x86/events/perf_event.h, Linux v6.12); taken where a recording does not tell.
const DEEPEST: f64 = 31.0;

/// Streams of a burst of 256 branches.
const LONGEST: f64 = 255.0;

/// Standard error of a count of independent samples: Poisson, count / sqrt(hits).
/// Hits are samples; the error is in the unit of the count.
pub(crate) fn independent(hits: f64, count: f64) -> f64 {
    if 0.0 < hits { count / hits.sqrt() } else { 0.0 }
}

/// Standard error of a count from streams, of which `design_effect` together tell as much as one.
pub(crate) fn clustered(hits: f64, count: f64, design_effect: f64) -> f64 {
    independent(hits, count) * design_effect.max(1.0).sqrt()
}

/// Streams in one stack, on average: streams over stacks. `stacks` are the oldest slots of recorded branches.
/// Without branch counts the samples of the events represent the stacks.
pub(crate) fn streams_per_stack(streams: &[Stream], stacks: f64, lbr: &[EventIdx], events: &[Event]) -> f64 {
    let is_of_bursts = |idx: &EventIdx| events.get(idx.0 as usize).is_some_and(Event::is_of_bursts);
    let deepest = if lbr.iter().any(is_of_bursts) {
        LONGEST
    } else {
        DEEPEST
    };
    let hits: f64 = streams.iter().map(|s| s.hits as f64).sum();
    let events = lbr.iter().filter_map(|event| events.get(event.0 as usize));
    let runs: f64 = events.map(|event| event.runs as f64).sum();
    let stacks = if 0.0 < stacks { stacks } else { runs };
    if 0.0 < stacks {
        (hits / stacks).clamp(1.0, deepest)
    } else {
        deepest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_one_cluster_of_all_its_streams() {
        let stream = Stream {
            text: hbbp_code::locate::TextIdx(0),
            process: hbbp_model::snapshot::ProcessIdx(0),
            first: 0,
            end: 1,
            source: 0,
            hits: 20 * 255,
            weight: 1.0,
        };
        let stack = Event {
            branch_stack: true,
            ..Event::default()
        };
        let burst = Event {
            ring: Some(hbbp_model::addr::Ring::User),
            ..stack.clone()
        };
        let events = [stack, burst];
        let depth = |event| streams_per_stack(&[stream], 20.0, &[EventIdx(event)], &events);
        assert_eq!([depth(0), depth(1)], [31.0, 255.0]);
    }

    #[test]
    fn errors_shrink_with_the_root_of_what_is_independent() {
        assert_eq!(independent(400.0, 1000.0), 50.0);
        assert_eq!(clustered(400.0, 1000.0, 4.0), 100.0);
        assert_eq!(clustered(400.0, 1000.0, 0.5), 50.0);
        assert_eq!(independent(0.0, 0.0), 0.0);
    }
}
