//! Samples to counts: how often each address, stream and branch was seen.
//!
//! A gigabyte of branch stacks holds forty million entries of some thousand kinds, so they are counted as they come;
//! memory follows the number of distinct ones.

use super::sample::Sample;
use super::slots::TRIGGER;
pub use super::tables::Owner;
use super::tables::{StackWeight, Tables};
use hbbp_model::addr::Va;
use hbbp_model::snapshot::{Event, Interval, Loss, Losses};
use hbbp_model::streams::Quirks;

/// What of an event's samples is counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Use {
    /// The instruction pointers, for EBS.
    pub ips: bool,
    /// The branch stacks, for LBR.
    pub stacks: bool,
}

fn stack_weight(period: u64, weighed: Option<f64>) -> StackWeight {
    StackWeight {
        period: period as f64 * weighed.unwrap_or(1.0),
        n_newer: if weighed.is_some() { TRIGGER } else { 0 },
    }
}

/// Counts of all samples.
#[derive(Debug, Default)]
pub struct Counter {
    intervals: Vec<Tables>,
    quirks: Quirks,
    /// Samples and entries that could not be counted.
    pub losses: Losses,
}

impl Counter {
    /// Of `n` intervals.
    pub fn new(n: usize) -> Self {
        let intervals = std::iter::repeat_with(Tables::default).take(n).collect();
        Self {
            intervals,
            quirks: Quirks::default(),
            losses: Losses::default(),
        }
    }

    /// The same for stacks of these events, by their numbers.
    ///
    /// That a processor may repeat newest entries is not applied here: what was recorded stays as it is, and the streams that
    /// cannot have run are set aside when it is read.
    pub fn for_events(mut self, events: &[Event]) -> Self {
        let numbered = (0..u32::BITS).zip(events);
        let near_only = numbered.filter(|(_, event)| event.near_only);
        self.quirks.near_only = near_only.fold(0, |all, (number, _)| all | 1 << number);
        self
    }

    /// Counts a sample of `period` units of its event. `weighed` is the relative weight of its stack if another event than
    /// taken branches triggered it ([`super::slots`]).
    pub fn add(
        &mut self,
        owner: Owner,
        sample: &Sample<'_>,
        period: u64,
        weighed: Option<f64>,
        exact: bool,
        wanted: Use,
    ) {
        let Some(tables) = self.intervals.get_mut(owner.interval) else {
            return;
        };
        let times = sample.times;
        if wanted.ips
            && let Some(ip) = sample.ip
            && !tables.add_ip(owner, ip, exact, times, period.saturating_mul(times))
        {
            self.losses.add(Loss::TooMany, times);
        }
        if wanted.stacks {
            let found = tables.add_stack(owner, sample, stack_weight(period, weighed), self.quirks);
            self.losses
                .add(Loss::WrongPath, found.n_wrong_path.saturating_mul(times));
            self.losses.add(Loss::TooMany, found.n_left_out);
            // A sample whose address serves is not lost.
            if !found.any_executed && !wanted.ips {
                self.losses.add(Loss::NoStack, times);
            }
        }
    }

    /// Adds a stream that a text gives already summed.
    pub(crate) fn add_stream(&mut self, owner: Owner, start: Va, end: Va, hits: u64) {
        let added = self
            .intervals
            .get_mut(owner.interval)
            .is_some_and(|tables| tables.add_stream(owner, start, end, hits));
        self.losses.add(Loss::TooMany, if added { 0 } else { hits });
    }

    /// Adds a branch that a text gives already summed.
    pub(crate) fn add_branch(
        &mut self,
        owner: Owner,
        from: Va,
        to: Va,
        hits: u64,
        mispredicted: Option<u64>,
    ) {
        let tables = self.intervals.get_mut(owner.interval);
        let added = tables.is_some_and(|tables| tables.add_branch(owner, from, to, hits, mispredicted));
        self.losses.add(Loss::TooMany, if added { 0 } else { hits });
    }

    /// Adds an address that a text gives already summed.
    pub(crate) fn add_ip(&mut self, owner: Owner, ip: Va, hits: u64) {
        let tables = self.intervals.get_mut(owner.interval);
        let added = tables.is_some_and(|tables| tables.add_ip(owner, ip, false, hits, hits));
        self.losses.add(Loss::TooMany, if added { 0 } else { hits });
    }

    /// The counts, in a fixed order; `bounds` are the starts and ends of the intervals in ns.
    pub fn into_intervals(self, bounds: &[(u64, u64)]) -> Vec<Interval> {
        let intervals = self.intervals.into_iter().zip(bounds);
        intervals
            .map(|(tables, (start, end))| tables.into_interval(*start, *end))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::snapshot::{EventIdx, ProcessIdx};
    use std::num::NonZeroU64;

    const USER: Owner = Owner {
        event: EventIdx(0),
        process: ProcessIdx(3),
        kernel: ProcessIdx(3),
        interval: 0,
    };
    const KERNEL: u64 = 0xffff_ffff_8100_0000;

    fn stack(entries: &[(u64, u64, u64)]) -> Vec<u8> {
        entries
            .iter()
            .flat_map(|(from, to, flags)| [*from, *to, *flags])
            .flat_map(u64::to_le_bytes)
            .collect()
    }

    fn count(stacks: &[&[(u64, u64, u64)]]) -> (Interval, Losses) {
        let mut counter = Counter::new(1);
        for entries in stacks {
            let stack = stack(entries);
            let sample = Sample {
                tgid: 1,
                tid: 1,
                time: 0,
                ip: Some(Va(7)),
                period: None,
                stack: &stack,
                times: 1,
            };
            counter.add(
                USER,
                &sample,
                300,
                None,
                true,
                Use {
                    ips: false,
                    stacks: true,
                },
            );
        }
        let losses = counter.losses.clone();
        (counter.into_intervals(&[(0, 1)]).remove(0), losses)
    }

    #[test]
    fn weights_share_the_period_and_flags_are_summed() {
        const FULL: [(u64, u64, u64); 5] =
            [(30, 40, 0x51), (20, 25, 0x30), (10, 15, 0), (0, 0, 0), (1, 2, 0)];
        let (counts, _) = count(&[&FULL, &FULL]);
        let streams: Vec<_> = counts
            .streams
            .iter()
            .map(|s| {
                (
                    s.start.0,
                    s.end.0,
                    s.hits,
                    s.weight,
                    s.cycles.map(NonZeroU64::get),
                )
            })
            .collect();
        assert_eq!(
            streams,
            [(15, 20, 2, 300.0, Some(6)), (25, 30, 2, 300.0, Some(10))]
        );
        let branches: Vec<_> = counts
            .branches
            .iter()
            .map(|b| (b.from.0, b.hits, b.oldest, b.mispredicted))
            .collect();
        assert_eq!(
            branches,
            [(10, 2, 2, None), (20, 2, 0, None), (30, 2, 0, Some(2))]
        );
    }

    #[test]
    fn sample_with_a_repeat_count_counts_each() {
        let all = Use {
            ips: true,
            stacks: true,
        };
        let stack = stack(&[(30, 40, 0x51), (20, 25, 0x30), (10, 15, 0)]);
        let counted = |n_samples, times| {
            let mut counter = Counter::new(1);
            for _ in 0..n_samples {
                let sample = Sample {
                    tgid: 1,
                    tid: 1,
                    time: 0,
                    ip: Some(Va(7)),
                    period: None,
                    stack: &stack,
                    times,
                };
                counter.add(USER, &sample, 300, None, true, all);
            }
            counter.into_intervals(&[(0, 1)])
        };
        assert_eq!(counted(1, 3), counted(3, 1));
    }

    #[test]
    fn stack_of_two_is_used_with_any_newest_weight() {
        let weight = |entries: &[(u64, u64, u64)]| {
            let stack = stack(entries);
            let sample = Sample {
                tgid: 1,
                tid: 1,
                time: 0,
                ip: None,
                period: None,
                stack: &stack,
                times: 1,
            };
            let wanted = Use {
                ips: false,
                stacks: true,
            };
            let mut counter = Counter::new(1);
            counter.add(USER, &sample, 300, Some(2.0), true, wanted);
            let counts = counter.into_intervals(&[(0, 1)]).remove(0);
            counts.streams.iter().map(|s| s.weight).collect::<Vec<_>>()
        };
        let three = [(30, 40, 0), (20, 25, 0), (10, 15, 0)];
        // The newest stream, which the event chose, starts at 25.
        assert_eq!(weight(&three), [600.0, 0.0]);
        assert_eq!(weight(&three[..2]), [600.0]);
    }

    #[test]
    fn kernel_streams_are_those_of_the_process() {
        let entries = [(KERNEL + 9, 40, 0), (KERNEL, KERNEL + 4, 0), (20, KERNEL - 8, 0)];
        let (counts, _) = count(&[&entries]);
        let owners: Vec<_> = counts.streams.iter().map(|s| (s.process, s.start.0)).collect();
        assert_eq!(owners, [(USER.kernel, KERNEL - 8), (USER.kernel, KERNEL + 4)]);
        let (counts, _) = count(&[&[(20, 30, 0), (KERNEL, KERNEL + 4, 0)]]);
        assert_eq!(
            counts.streams[0].process, USER.kernel,
            "it crosses rings, and begins in the kernel"
        );
    }

    #[test]
    fn what_gives_no_stream_is_counted() {
        let wrong = 1 << 24;
        let (counts, losses) = count(&[
            &[],
            &[(1, 2, 0)],
            &[(1, 2, wrong)],
            &[(3, 9, wrong), (5, 6, 0), (2, 3, 0)],
        ]);
        assert_eq!((losses.get(Loss::NoStack), losses.get(Loss::WrongPath)), (2, 2));
        assert_eq!((counts.streams.len(), counts.branches.len()), (1, 3));
    }
}
