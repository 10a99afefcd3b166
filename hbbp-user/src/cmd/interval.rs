//! The counts of one drain, as the resolver takes them.
//!
//! One map holds three kinds of counts, told apart by their event and their tag: eventing IPs, streams of branch
//! stacks, and branches in the oldest slot of a stack.
//! A branch is in a stack as the end of a stream or in the oldest slot, never both, so that its occurrences in any slot
//! are the sum of the two, and need no counts of their own in the kernel.
//! In all slots but the newest it also leads to a stream, and its target is known. A stream is counted apart for each
//! branch that led to it; here these counts become one stream, and as many branches with their targets.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
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
    let mut branches = Branches::default();
    let mut streams: BTreeMap<(u32, TaskKey, u64, u64), Raw<StreamCount>> = BTreeMap::new();
    for (key, tally) in entries {
        if !has_stack(key.event.event()) {
            interval.ips.push(ip(key, tally));
        } else if key.event.is_oldest() {
            branches.seen(key, tally, key.address, tally.hits);
        } else {
            let stream = stream(key, tally);
            branches.seen(key, tally, stream.count.end.0, 0);
            branches.led(key, tally);
            let (start, end) = (stream.count.start.0, stream.count.end.0);
            let event = key.event.event();
            match streams.entry((event, stream.task, start, end)) {
                Entry::Vacant(entry) => {
                    entry.insert(stream);
                }
                Entry::Occupied(mut entry) => {
                    let sum = entry.get_mut();
                    sum.first_time = sum.first_time.min(stream.first_time);
                    sum.count.hits = sum.count.hits.saturating_add(stream.count.hits);
                    sum.count.weight += stream.count.weight;
                }
            }
        }
    }
    interval.streams = streams.into_values().collect();
    interval.branches = branches.into_counts();
    interval
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

/// Branches by event, task, source and target, so that equal drains make equal snapshots; target 0 sums all of a source.
#[derive(Default)]
struct Branches(BTreeMap<(u32, TaskKey, u64, u64), Raw<BranchCount>>);

impl Branches {
    /// Adds occurrences of the branch at `from` in any slot, of which `oldest` were in the oldest one.
    fn seen(&mut self, key: &CountKey, tally: &Tally, from: u64, oldest: u64) {
        let branch = self.of(key, tally, from, 0);
        branch.count.hits = branch.count.hits.saturating_add(tally.hits);
        branch.count.oldest = branch.count.oldest.saturating_add(oldest);
    }

    /// Adds occurrences of the branch that led to a stream.
    fn led(&mut self, key: &CountKey, tally: &Tally) {
        if key.source != 0 {
            let branch = self.of(key, tally, key.source, key.address);
            branch.count.hits = branch.count.hits.saturating_add(tally.hits);
        }
    }

    fn of(&mut self, key: &CountKey, tally: &Tally, from: u64, to: u64) -> &mut Raw<BranchCount> {
        let (event, task) = (key.event.event(), task(key));
        let branch = self.0.entry((event, task, from, to)).or_insert(Raw {
            task,
            first_time: tally.first_time,
            count: BranchCount {
                event: EventIdx(event),
                process: ProcessIdx::KERNEL,
                from: Va(from),
                to: Va(to),
                hits: 0,
                oldest: 0,
                mispredicted: 0,
            },
        });
        branch.first_time = branch.first_time.min(tally.first_time);
        branch
    }

    /// What has no target keeps the occurrences that are not in the rows with one. A branch from the kernel to user code
    /// is counted with the process, and as the end of a kernel stream once for all processes.
    fn into_counts(mut self) -> Vec<Raw<BranchCount>> {
        let led: Vec<_> = self
            .0
            .iter()
            .filter(|((.., to), _)| *to != 0)
            .map(|(key, branch)| (*key, branch.count.hits))
            .collect();
        for ((event, task, from, _), hits) in led {
            let owner = [task, TaskKey::default()]
                .into_iter()
                .find(|owner| self.0.contains_key(&(event, *owner, from, 0)));
            if let Some(sum) = owner.and_then(|owner| self.0.get_mut(&(event, owner, from, 0))) {
                sum.count.hits = sum.count.hits.saturating_sub(hits);
            }
        }
        self.0
            .into_values()
            .filter(|branch| branch.count.hits != 0 || branch.count.oldest != 0)
            .collect()
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
