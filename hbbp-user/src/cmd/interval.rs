//! The counts of one drain, as the resolver takes them.
//!
//! One map holds three kinds of counts, told apart by their event and their tag: eventing IPs, streams of branch
//! stacks, and branches in the oldest slot of a stack.
//! What else a report says of branches is made of the streams, which are counted apart for each branch that led to them
//! ([`Snapshot::taken_branches`](crate::snapshot::Snapshot::taken_branches)).

use std::ops::Range;

use hbbp_ebpf::key::WEIGHT_ONE;
use hbbp_ebpf::{CountKey, Tally};

use crate::addr::Va;
use crate::resolve::raw::{Raw, RawInterval, TaskKey};
use crate::snapshot::{BranchCount, EventIdx, IpCount, ProcessIdx, StreamCount};

/// The counts of the interval `time`, in ns of CLOCK_MONOTONIC; `has_stack` says whether the samples of the event with
/// a number carry branch stacks.
pub(super) fn raw_interval(
    time: Range<u64>,
    entries: &[(CountKey, Tally)],
    has_stack: impl Fn(u32) -> bool,
) -> RawInterval {
    let mut interval = RawInterval {
        start: time.start,
        end: time.end,
        ..RawInterval::default()
    };
    interval.streams.reserve(entries.len());
    for (key, tally) in entries {
        if !has_stack(key.event.event()) {
            interval.ips.push(ip(key, tally));
        } else if key.event.is_oldest() {
            interval.branches.push(oldest(key, tally));
        } else {
            interval.streams.push(stream(key, tally));
        }
    }
    interval
}

fn raw<T>(key: &CountKey, tally: &Tally, count: T) -> Raw<T> {
    Raw {
        task: TaskKey {
            tgid: key.tgid,
            exec_id: key.exec_id,
        },
        first_time: tally.first_time,
        count,
    }
}

fn ip(key: &CountKey, tally: &Tally) -> Raw<IpCount> {
    raw(
        key,
        tally,
        IpCount {
            event: EventIdx(key.event.event()),
            process: ProcessIdx::KERNEL,
            ip: Va(key.address),
            exact: key.event.exact(),
            hits: tally.hits,
            weight: tally.weight,
        },
    )
}

fn oldest(key: &CountKey, tally: &Tally) -> Raw<BranchCount> {
    raw(
        key,
        tally,
        BranchCount {
            event: EventIdx(key.event.event()),
            process: ProcessIdx::KERNEL,
            from: Va(key.address),
            to: Va(0),
            hits: tally.hits,
            oldest: tally.hits,
            mispredicted: 0,
        },
    )
}

#[expect(
    clippy::cast_precision_loss,
    reason = "weights of one interval stay far below 2^53, and what is beyond is a rounding error"
)]
fn stream(key: &CountKey, tally: &Tally) -> Raw<StreamCount> {
    raw(
        key,
        tally,
        StreamCount {
            event: EventIdx(key.event.event()),
            process: ProcessIdx::KERNEL,
            start: Va(key.address),
            end: Va(key.address.wrapping_add(key.length.into())),
            source: Some(Va(key.source)),
            hits: tally.hits,
            weight: tally.weight as f64 / WEIGHT_ONE as f64,
            cycles: 0,
        },
    )
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
    fn counts_are_told_apart_by_event_and_tag() {
        let entries = [
            entry(EventTag::new(0, 8), 0, 0x1000, 0, 2),
            entry(EventTag::stream(1), 0x1010, 0x1000, 0x10, 28),
            entry(EventTag::stream(1), 0x2000, 0x1000, 0x10, 2),
            entry(EventTag::stream(1), 0x1010, 0x1010, 0, 4),
            entry(EventTag::oldest(1), 0, 0x1010, 0, 5),
        ];
        let interval = raw_interval(1..2, &entries, |event| event == 1);
        assert_eq!((interval.start, interval.end), (1, 2));
        assert_eq!(interval.ips.len(), 1);
        assert!(interval.ips[0].count.exact);
        let streams: Vec<_> = interval
            .streams
            .iter()
            .map(|s| (s.count.start.0, s.count.end.0, s.count.source, s.count.weight))
            .collect();
        let expected = [
            (0x1000, 0x1010, Some(Va(0x1010)), 42.0),
            (0x1000, 0x1010, Some(Va(0x2000)), 3.0),
            (0x1010, 0x1010, Some(Va(0x1010)), 6.0),
        ];
        assert_eq!(streams, expected);
        let [oldest] = interval.branches.as_slice() else {
            panic!("{:?}", interval.branches);
        };
        let BranchCount {
            from, hits, oldest, ..
        } = oldest.count;
        assert_eq!((from, hits, oldest), (Va(0x1010), 5, 5));
        let TaskKey { tgid, exec_id } = interval.streams[0].task;
        assert_eq!((tgid, exec_id, interval.streams[0].first_time), (7, 1, 72));
    }
}
