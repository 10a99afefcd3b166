//! What stacks miss beside far branches.
//!
//! Intel's event counts near taken branches, and so the stacks are taken at near ones; but the stacks hold system calls, returns
//! from them and interrupts as well (SDM vol. 3, "Last branch, interrupt, and exception recording"). A stream is in a
//! stack of N-1 streams if a sample falls on one of the N-1 branches from its own end on, and it cannot fall on a far one.
//! With two far branches for a system call of a hundred branches, a third of the call's code has a chance of 29 in 31.
//!
//! How many of the N-1 branches behind a stream are far is told by the recorded streams and branches, which say what
//! follows what: the expectation over a Markov chain, exactly, step by step. The weight of a stream is divided by the part
//! of near ones. The sum of all weights is then near and far branches together.

use std::collections::HashMap;

use super::Stream;
use super::phase::Spot;
use crate::blocks::{BlockMap, Flow};
use crate::snapshot::{Event, EventIdx};

/// Whether events are known to count near branches alone. Those of AMD and of Goldmont count far ones and interrupts too
/// (AMD PPR, PMCx0C4; BR_INST_RETIRED.ALL_TAKEN_BRANCHES), and then a sample falls on any branch of a stack alike.
pub fn near_only(events: &[Event], lbr: &[EventIdx]) -> bool {
    const NAMES: [&str; 2] = ["near_taken", "branches_taken"];
    let named = |event: &EventIdx| {
        let name = events.get(event.0 as usize)?.name.to_lowercase();
        Some(NAMES.iter().any(|known| name.contains(known)))
    };
    !lbr.is_empty() && lbr.iter().all(|event| named(event) == Some(true))
}

/// Whether a near taken branch ended the stream, not a far one, nor an interrupt or exception.
pub fn ends_near(stream: &Stream, map: &BlockMap) -> bool {
    let source = map
        .text(stream.text)
        .and_then(|text| text.instruction(stream.source));
    let far = source
        .is_none_or(|source| matches!(source.flow, Flow::SystemCall | Flow::InterruptReturn | Flow::Trap));
    stream.end != stream.source && !far
}

/// Gives each stream the weight of all its occurrences, those beside far branches included.
/// `branches` are source, target and occurrences; `depth` is the number of streams in a stack.
pub(super) fn reweigh(streams: &mut [Stream], branches: &[(Spot, Spot, u64)], map: &BlockMap, depth: f64) {
    let steps = (1u32..)
        .take_while(|n| f64::from(*n) <= depth.round())
        .count()
        .max(1);
    let far = expected(streams, branches, map, steps);
    for (stream, far) in streams.iter_mut().zip(far) {
        // At least one branch in a stack is near: the one that the sample fell on.
        stream.weight *= steps as f64 / (steps as f64 - far).max(1.0);
    }
}

/// For each stream, the expected number of far branches among `steps` branches from its own end on.
fn expected(streams: &[Stream], branches: &[(Spot, Spot, u64)], map: &BlockMap, steps: usize) -> Vec<f64> {
    let far: Vec<f64> = streams
        .iter()
        .map(|stream| f64::from(u8::from(!ends_near(stream, map))))
        .collect();
    let all: f64 = streams.iter().map(|stream| stream.hits as f64).sum();
    let of_far: f64 = streams.iter().zip(&far).map(|(s, far)| far * s.hits as f64).sum();
    let mean = if 0.0 < all { of_far / all } else { 0.0 };
    let from: Vec<Spot> = streams.iter().map(|s| (s.text, s.first)).collect();
    let sources: Vec<Spot> = streams.iter().map(|s| (s.text, s.source)).collect();
    let starts = Means::new(from.iter().zip(streams).map(|(spot, s)| (*spot, s.hits)));
    let ends = Means::new(branches.iter().map(|(source, _, hits)| (*source, *hits)));

    let mut ahead = far.clone();
    for step in 1..steps {
        // Where nothing is known of what follows, it is as everywhere.
        let unknown = mean * step as f64;
        let at_start = starts.of(from
            .iter()
            .zip(streams)
            .zip(&ahead)
            .map(|((spot, s), ahead)| (*spot, s.hits, *ahead)));
        let at_end = ends.of(branches.iter().map(|(source, target, hits)| {
            let behind = at_start.get(target).copied().unwrap_or(unknown);
            (*source, *hits, behind)
        }));
        ahead = far
            .iter()
            .zip(&sources)
            .map(|(far, source)| far + at_end.get(source).copied().unwrap_or(unknown))
            .collect();
    }
    ahead
}

/// How often each place was passed, to make means of.
struct Means(HashMap<Spot, f64>);

impl Means {
    fn new(passed: impl Iterator<Item = (Spot, u64)>) -> Self {
        let mut all = HashMap::new();
        for (spot, hits) in passed {
            *all.entry(spot).or_default() += hits as f64;
        }
        Self(all)
    }

    /// The mean of amounts at each place, by occurrences.
    fn of(&self, amounts: impl Iterator<Item = (Spot, u64, f64)>) -> HashMap<Spot, f64> {
        let mut means: HashMap<Spot, f64> = HashMap::with_capacity(self.0.len());
        for (spot, hits, amount) in amounts {
            let all = self.0.get(&spot).copied().unwrap_or(0.0);
            if 0.0 < all {
                *means.entry(spot).or_default() += amount * hits as f64 / all;
            }
        }
        means
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locate::TextIdx;
    use crate::snapshot::ProcessIdx;

    /// A stream from `first` to `source`, which an interrupt ended if `far`.
    fn stream(first: u32, source: u32, hits: u64, far: bool) -> Stream {
        Stream {
            text: TextIdx(0),
            process: ProcessIdx(0),
            first,
            end: source + u32::from(!far),
            source,
            hits,
            weight: 1.0,
        }
    }

    #[test]
    fn without_a_map_every_branch_is_far() {
        let at = |n| (TextIdx(0), n);
        let streams = [stream(0, 4, 10, true), stream(5, 9, 10, true)];
        let branches = [(at(4), at(5), 10), (at(9), at(0), 10)];
        let map = BlockMap::default();
        assert_eq!(expected(&streams, &branches, &map, 31), [31.0, 31.0]);
        // And still weights stay finite.
        let mut streams = streams;
        reweigh(&mut streams, &branches, &map, 31.0);
        assert_eq!(streams.map(|s| s.weight), [31.0, 31.0]);
    }

    #[test]
    fn events_of_amd_count_far_branches_too() {
        let event = |name: &str| Event {
            name: name.to_owned(),
            ..Event::default()
        };
        let events = [event("BR_INST_RETIRED.NEAR_TAKEN"), event("ex_ret_brn_tkn")];
        assert!(near_only(&events, &[EventIdx(0)]));
        assert!(!near_only(&events, &[EventIdx(1)]) && !near_only(&events, &[]));
        assert!(!near_only(&events, &[EventIdx(0), EventIdx(1)]));
    }

    #[test]
    fn what_follows_is_a_mean_by_occurrences() {
        let at = |n| (TextIdx(0), n);
        let means = Means::new([(at(1), 3), (at(1), 1)].into_iter());
        let of = means.of([(at(1), 3, 1.0), (at(1), 1, 5.0)].into_iter());
        assert_eq!(of[&at(1)], 2.0);
    }
}
