//! Converts the counts of one drain for the resolver.
//!
//! One map holds four kinds of counts, distinguished by event and tag: eventing IPs, streams of branch stacks, branches in the
//! oldest slot of a stack, and newest branches of stacks that were refused.
//! Other branch counts are derived from the streams, which are counted separately for each branch that led to them
//! ([`Snapshot::taken_branches`](hbbp_model::snapshot::Snapshot::taken_branches)).

use std::ops::Range;

use hbbp_ebpf::key;
use hbbp_ebpf::{CountKey, Tally};

use hbbp_collect::Parts;
use hbbp_collect::chains::Chained;
use hbbp_model::addr::Va;
use hbbp_model::snapshot::EventIdx;
use hbbp_resolve::raw::{Raw, RawChain, RawInterval, Sort, TaskKey, WEIGHT_ONE};

const _: () = assert!(
    key::WEIGHT_ONE == WEIGHT_ONE,
    "the resolver takes weights as they are"
);

/// What was counted, part by part in the order of time.
pub(super) struct Counts {
    pub(super) times: Vec<Range<u64>>,
    pub(super) parts: Parts,
    pub(super) chains: Vec<Chained>,
    /// Those of bursts, which are as the resolver takes them.
    pub(super) bursts: Vec<Raw>,
    /// See [`Collector::clock_periods`](hbbp_collect::Collector::clock_periods).
    pub(super) clock_periods: Vec<Option<u64>>,
}

/// The counts of the interval `time`, in ns of CLOCK_MONOTONIC; `has_stack` says whether the samples of the event with
/// a number carry branch stacks, and `clock_periods` has the period of each clock event, by number.
pub(super) fn raw_interval(
    time: Range<u64>,
    counts: impl Iterator<Item = (CountKey, Tally)>,
    has_stack: impl Fn(u32) -> bool,
    clock_periods: &[Option<u64>],
) -> RawInterval<impl Iterator<Item = Raw>> {
    let count = move |(key, tally): (CountKey, Tally)| Raw {
        task: TaskKey {
            tgid: key.tgid,
            exec_id: key.exec_id,
        },
        tid: key::thread_of(key.tid),
        first_time: tally.first_time,
        sort: if key.event.is_refused() {
            Sort::Refused
        } else if !has_stack(key.event.event()) {
            Sort::Ip {
                exact: key.event.exact(),
            }
        } else if key.event.is_oldest() {
            Sort::Oldest
        } else {
            Sort::Stream
        },
        event: EventIdx(key.event.event()),
        start: Va(key.address),
        end: Va(key.address.wrapping_add(key.length.into())),
        source: Va(key.source),
        hits: tally.hits,
        weight: weight(key.event.event(), &tally, clock_periods),
    };
    RawInterval {
        start: time.start,
        end: time.end,
        counts: counts.map(count),
    }
}

/// A call chain for the resolver.
pub(super) fn raw_chain(chain: &Chained, clock_periods: &[Option<u64>]) -> RawChain {
    let [tgid, exec_id, tid] = chain.task;
    RawChain {
        task: TaskKey { tgid, exec_id },
        tid: key::thread_of(tid),
        first_time: chain.tally.first_time,
        event: EventIdx(chain.event),
        ip: Va(chain.ip),
        frames: chain.frames.iter().copied().map(Va).collect(),
        top: Va(chain.top),
        hits: chain.tally.hits,
        weight: weight(chain.event, &chain.tally, clock_periods),
    }
}

/// The weight of samples of an instruction pointer.
fn weight(event: u32, tally: &Tally, clock_periods: &[Option<u64>]) -> u64 {
    match clock_periods.get(event as usize) {
        Some(Some(period)) => tally.hits.saturating_mul(*period),
        _ => tally.weight,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_ebpf::EventTag;

    fn entry(event: EventTag, source: u64, address: u64, length: u32, hits: u64) -> (CountKey, Tally) {
        let key = CountKey {
            address,
            source,
            tgid: 7,
            exec_id: 1,
            tid: 9,
            event,
            length,
        };
        let tally = Tally {
            hits,
            weight: hits * 3 * WEIGHT_ONE / 2,
            first_time: 100 - hits,
        };
        (key, tally)
    }

    #[test]
    fn counts_are_classified_by_event_and_tag() {
        let entries = [
            entry(EventTag::new(0, 8), 0, 0x1000, 0, 2),
            entry(EventTag::stream(1), 0x1010, 0x1000, 0x10, 28),
            entry(EventTag::stream(1), 0x2000, 0x1000, 0x10, 2),
            entry(EventTag::stream(1), 0x1010, 0x1010, 0, 4),
            entry(EventTag::oldest(1), 0, 0x1010, 0, 5),
            entry(EventTag::refused(1), 0, 0x1020, 0, 3),
        ];
        let interval = raw_interval(
            1..2,
            entries.into_iter(),
            |event| event == 1,
            &[Some(1_000), None],
        );
        assert_eq!((interval.start, interval.end), (1, 2));
        let counts: Vec<Raw> = interval.counts.collect();
        let [first, .., last, refused] = counts.as_slice() else {
            panic!("{counts:?}");
        };
        assert_eq!(first.sort, Sort::Ip { exact: true });
        assert_eq!(first.weight, 2 * 1_000, "a clock has the period of the interval");
        let stream = |raw: &Raw| (raw.start.0, raw.end.0, raw.source, raw.weight / WEIGHT_ONE);
        let streams = counts.iter().filter(|raw| raw.sort == Sort::Stream);
        let streams: Vec<_> = streams.map(stream).collect();
        let expected = [
            (0x1000, 0x1010, Va(0x1010), 42),
            (0x1000, 0x1010, Va(0x2000), 3),
            (0x1010, 0x1010, Va(0x1010), 6),
        ];
        assert_eq!(streams, expected);
        assert_eq!(
            (refused.sort, refused.start, refused.hits),
            (Sort::Refused, Va(0x1020), 3)
        );
        assert_eq!((last.sort, last.start, last.hits), (Sort::Oldest, Va(0x1010), 5));
        let TaskKey { tgid, exec_id } = counts[1].task;
        assert_eq!((tgid, exec_id, counts[1].tid), (7, 1, 9));
        assert_eq!(counts[1].first_time, 72);
    }
}
