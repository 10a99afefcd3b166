//! The counts of one drain, as the resolver takes them.
//!
//! One map holds three kinds of counts, told apart by their event and their tag: eventing IPs, streams of branch
//! stacks, and branches in the oldest slot of a stack.
//! A branch is in a stack as the end of a stream or in the oldest slot, never both, so that its occurrences in any slot
//! are the sum of the two, and need no counts of their own in the kernel.
//! In all slots but the newest it also leads to a stream, and its target is known. A stream is counted apart for each
//! branch that led to it; here these counts become one stream, and as many branches with their targets.

use std::ops::Range;

use hbbp_ebpf::key::WEIGHT_ONE;
use hbbp_ebpf::{CountKey, Tally};

use crate::addr::Va;
use crate::resolve::raw::{Raw, RawInterval, TaskKey};
use crate::snapshot::{BranchCount, EventIdx, IpCount, ProcessIdx, StreamCount};

/// The counts of the interval `time`, in ns of CLOCK_MONOTONIC; `has_stack` says whether the samples of the event with
/// a number carry branch stacks. The counts of one stream stand together in `entries`, as a drain leaves them.
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
    let mut branches = Branches(Vec::with_capacity(2 * entries.len()));
    for (key, tally) in entries {
        if !has_stack(key.event.event()) {
            interval.ips.push(ip(key, tally));
        } else if key.event.is_oldest() {
            branches.add(key, tally, (key.address, 0), tally.hits);
        } else {
            let stream = stream(key, tally);
            branches.add(key, tally, (stream.count.end.0, 0), 0);
            if key.source != 0 {
                branches.add(key, tally, (key.source, key.address), 0);
            }
            match interval.streams.last_mut() {
                Some(sum) if is_same(sum, &stream) => {
                    sum.first_time = sum.first_time.min(stream.first_time);
                    sum.count.hits = sum.count.hits.saturating_add(stream.count.hits);
                    sum.count.weight += stream.count.weight;
                }
                _ => interval.streams.push(stream),
            }
        }
    }
    interval.branches = branches.into_counts();
    interval
}

fn is_same(a: &Raw<StreamCount>, b: &Raw<StreamCount>) -> bool {
    let key = |of: &Raw<StreamCount>| (of.count.start, of.count.end, of.count.event, of.task);
    key(a) == key(b)
}

fn task(key: &CountKey) -> TaskKey {
    TaskKey {
        tgid: key.tgid,
        exec_id: key.exec_id,
    }
}

fn ip(key: &CountKey, tally: &Tally) -> Raw<IpCount> {
    Raw {
        task: task(key),
        first_time: tally.first_time,
        count: IpCount {
            event: EventIdx(key.event.event()),
            process: ProcessIdx::KERNEL,
            ip: Va(key.address),
            exact: key.event.exact(),
            hits: tally.hits,
            weight: tally.weight,
        },
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "weights of one interval stay far below 2^53, and what is beyond is a rounding error"
)]
fn stream(key: &CountKey, tally: &Tally) -> Raw<StreamCount> {
    Raw {
        task: task(key),
        first_time: tally.first_time,
        count: StreamCount {
            event: EventIdx(key.event.event()),
            process: ProcessIdx::KERNEL,
            start: Va(key.address),
            end: Va(key.address.wrapping_add(key.length.into())),
            hits: tally.hits,
            weight: tally.weight as f64 / WEIGHT_ONE as f64,
            cycles: 0,
        },
    }
}

/// Occurrences of branches as they come; target 0 stands for any. A drain has tens of thousands: they are sorted once,
/// which costs less than a tree that is kept in order.
struct Branches(Vec<Raw<BranchCount>>);

impl Branches {
    /// Adds the occurrences of the branch from one address to another, of which `oldest` were in the oldest slot.
    fn add(&mut self, key: &CountKey, tally: &Tally, (from, to): (u64, u64), oldest: u64) {
        self.0.push(Raw {
            task: task(key),
            first_time: tally.first_time,
            count: BranchCount {
                event: EventIdx(key.event.event()),
                process: ProcessIdx::KERNEL,
                from: Va(from),
                to: Va(to),
                hits: tally.hits,
                oldest,
                mispredicted: 0,
            },
        });
    }

    /// The branches by event, task, source and target, so that equal drains make equal snapshots.
    /// What has no target keeps the occurrences that are not in the rows with one. A branch from the kernel to user code
    /// is counted with the process, and as the end of a kernel stream once for all processes.
    fn into_counts(self) -> Vec<Raw<BranchCount>> {
        let mut rows = self.0;
        rows.sort_unstable_by_key(place);
        rows.dedup_by(|row, sum| {
            let equal = place(row) == place(sum);
            if equal {
                sum.first_time = sum.first_time.min(row.first_time);
                sum.count.hits = sum.count.hits.saturating_add(row.count.hits);
                sum.count.oldest = sum.count.oldest.saturating_add(row.count.oldest);
            }
            equal
        });
        for i in 0..rows.len() {
            let Some(led) = rows.get(i).filter(|row| row.count.to != Va(0)) else {
                continue;
            };
            let (event, task, from, _) = place(led);
            let hits = led.count.hits;
            let owner = [task, TaskKey::default()].into_iter().find_map(|owner| {
                let any = (event, owner, from, Va(0));
                rows.binary_search_by_key(&any, place).ok()
            });
            if let Some(sum) = owner.and_then(|owner| rows.get_mut(owner)) {
                sum.count.hits = sum.count.hits.saturating_sub(hits);
            }
        }
        rows.retain(|row| row.count.hits != 0 || row.count.oldest != 0);
        rows
    }
}

fn place(row: &Raw<BranchCount>) -> (EventIdx, TaskKey, Va, Va) {
    (row.count.event, row.task, row.count.from, row.count.to)
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
            .map(|s| (s.count.start.0, s.count.end.0, s.count.hits, s.count.weight))
            .collect();
        assert_eq!(streams, [(0x1000, 0x1010, 30, 45.0), (0x1010, 0x1010, 4, 6.0)]);
        let rows: Vec<_> = interval
            .branches
            .iter()
            .map(|b| (b.count.from.0, b.count.to.0, b.count.hits, b.count.oldest))
            .collect();
        // 34 ends of streams and 5 oldest slots; in 32 of them the branch led to a stream.
        let expected = [
            (0x1010, 0, 7, 5),
            (0x1010, 0x1000, 28, 0),
            (0x1010, 0x1010, 4, 0),
            (0x2000, 0x1000, 2, 0),
        ];
        assert_eq!(rows, expected);
        let TaskKey { tgid, exec_id } = interval.branches[0].task;
        assert_eq!((tgid, exec_id, interval.branches[0].first_time), (7, 1, 72));
    }
}
