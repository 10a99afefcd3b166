//! Samples to counts: how often each address, stream and branch was seen.
//!
//! A gigabyte of branch stacks holds forty million entries of some thousand kinds, so they are counted as they come;
//! memory follows the number of distinct ones.

use hashbrown::HashMap;
use hbbp_ebpf::branch::{Step, Walk};

use super::sample::{Sample, entries};
use crate::addr::{Ring, Va};
use crate::snapshot::{BranchCount, EventIdx, Interval, IpCount, Loss, Losses, ProcessIdx, StreamCount};

/// What of an event's samples is counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Use {
    /// The instruction pointers, for EBS.
    pub ips: bool,
    /// The branch stacks, for LBR.
    pub stacks: bool,
}

/// Whose a sample is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Owner {
    /// Its event.
    pub event: EventIdx,
    /// The process image that ran.
    pub process: ProcessIdx,
    /// The interval that its time falls into.
    pub interval: usize,
}

/// The counts of one interval.
#[derive(Debug, Default)]
struct Tables {
    ips: HashMap<(EventIdx, ProcessIdx, Va, bool), (u64, u64)>,
    streams: HashMap<(EventIdx, ProcessIdx, Va, Va), StreamTally>,
    branches: HashMap<(EventIdx, ProcessIdx, Va, Va), BranchTally>,
}

#[derive(Clone, Copy, Debug, Default)]
struct StreamTally {
    hits: u64,
    weight: f64,
    cycles: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct BranchTally {
    hits: u64,
    oldest: u64,
    mispredicted: u64,
}

/// What the entries of a stack are.
#[derive(Clone, Copy, Debug)]
struct Found {
    n_sound: u32,
    n_wrong_path: u64,
}

/// Counts of all samples.
#[derive(Debug, Default)]
pub struct Counter {
    intervals: Vec<Tables>,
    /// Samples and entries that could not be counted.
    pub losses: Losses,
}

impl Counter {
    /// With room for `n` intervals.
    pub fn new(n: usize) -> Self {
        Self {
            intervals: std::iter::repeat_with(Tables::default).take(n).collect(),
            losses: Losses::default(),
        }
    }

    /// Counts a sample that stands for `period` units of its event.
    pub fn add(&mut self, owner: Owner, sample: &Sample<'_>, period: u64, exact: bool, wanted: Use) {
        let Some(tables) = self.intervals.get_mut(owner.interval) else {
            return;
        };
        if wanted.ips
            && let Some(ip) = sample.ip
        {
            let process = if ip.ring() == Ring::Kernel {
                ProcessIdx::KERNEL
            } else {
                owner.process
            };
            let tally = tables.ips.entry((owner.event, process, ip, exact)).or_default();
            tally.0 = tally.0.saturating_add(sample.times);
            tally.1 = tally.1.saturating_add(period.saturating_mul(sample.times));
        }
        if wanted.stacks {
            let found = tables.add_stack(owner, sample, period);
            self.losses
                .add(Loss::WrongPath, found.n_wrong_path.saturating_mul(sample.times));
            // A sample whose address serves is not lost.
            if found.n_sound == 0 && !wanted.ips {
                self.losses.add(Loss::NoStack, sample.times);
            }
        }
    }

    /// Adds what a text gives already summed.
    pub fn add_stream(&mut self, owner: Owner, (start, end): (Va, Va), hits: u64) {
        if let Some(tables) = self.intervals.get_mut(owner.interval) {
            let tally = tables
                .streams
                .entry((owner.event, owner.process, start, end))
                .or_default();
            tally.hits = tally.hits.saturating_add(hits);
            tally.weight += real(hits);
        }
    }

    /// Adds what a text gives already summed.
    pub fn add_branch(&mut self, owner: Owner, (from, to): (Va, Va), hits: u64, mispredicted: u64) {
        if let Some(tables) = self.intervals.get_mut(owner.interval) {
            let tally = tables
                .branches
                .entry((owner.event, owner.process, from, to))
                .or_default();
            tally.hits = tally.hits.saturating_add(hits);
            tally.mispredicted = tally.mispredicted.saturating_add(mispredicted);
        }
    }

    /// Adds what a text gives already summed.
    pub fn add_ip(&mut self, owner: Owner, ip: Va, hits: u64) {
        if let Some(tables) = self.intervals.get_mut(owner.interval) {
            let tally = tables
                .ips
                .entry((owner.event, owner.process, ip, false))
                .or_default();
            tally.0 = tally.0.saturating_add(hits);
            tally.1 = tally.1.saturating_add(hits);
        }
    }

    /// The counts, in a fixed order; `bounds` are the ends of the intervals in ns.
    pub fn into_intervals(self, bounds: &[(u64, u64)]) -> Vec<Interval> {
        let intervals = self.intervals.into_iter().zip(bounds);
        intervals
            .map(|(tables, (start, end))| tables.into_interval(*start, *end))
            .collect()
    }
}

impl Tables {
    /// Counts the entries and streams of a stack.
    fn add_stack(&mut self, owner: Owner, sample: &Sample<'_>, period: u64) -> Found {
        // The weight of each stream depends on how many entries are sound, so the stack is walked twice.
        let mut walk = Walk::default();
        let mut n_wrong_path = 0;
        for entry in entries(sample.stack) {
            match walk.step(entry) {
                Step::End => break,
                Step::WrongPath => n_wrong_path += 1,
                Step::Newest | Step::Stream(_) => {}
            }
        }
        let found = Found {
            n_sound: walk.n_sound(),
            n_wrong_path,
        };
        let Some(oldest) = walk.oldest() else {
            return found;
        };
        let times = sample.times;
        let weight = real(period) / f64::from(found.n_sound.saturating_sub(1).max(1)) * real(times);
        let owner_of = |at: Va| {
            if at.ring() == Ring::Kernel {
                ProcessIdx::KERNEL
            } else {
                owner.process
            }
        };
        let mut walk = Walk::default();
        for entry in entries(sample.stack) {
            match walk.step(entry) {
                Step::End => break,
                Step::WrongPath => continue,
                Step::Newest => {}
                Step::Stream(stream) => {
                    let (start, end) = (Va(stream.start), Va(stream.end));
                    // Streams that cross rings are refused later, by their addresses.
                    let process = if owner_of(start) == owner_of(end) {
                        owner_of(start)
                    } else {
                        owner.process
                    };
                    let tally = self
                        .streams
                        .entry((owner.event, process, start, end))
                        .or_default();
                    tally.hits = tally.hits.saturating_add(times);
                    tally.weight += weight;
                    tally.cycles = tally.cycles.saturating_add(stream.cycles.saturating_mul(times));
                }
            }
            let (from, to) = (Va(entry.from), Va(entry.to));
            let tally = self
                .branches
                .entry((owner.event, owner_of(from), from, to))
                .or_default();
            tally.hits = tally.hits.saturating_add(times);
            tally.mispredicted = tally
                .mispredicted
                .saturating_add(u64::from(entry.mispredicted()) * times);
        }
        let (from, to) = (Va(oldest.from), Va(oldest.to));
        let tally = self
            .branches
            .entry((owner.event, owner_of(from), from, to))
            .or_default();
        tally.oldest = tally.oldest.saturating_add(times);
        found
    }

    fn into_interval(self, start: u64, end: u64) -> Interval {
        let ip = |((event, process, ip, exact), (hits, weight))| IpCount {
            event,
            process,
            ip,
            exact,
            hits,
            weight,
        };
        let stream = |((event, process, start, end), tally): (_, StreamTally)| {
            let StreamTally { hits, weight, cycles } = tally;
            StreamCount {
                event,
                process,
                start,
                end,
                hits,
                weight,
                cycles,
            }
        };
        let branch = |((event, process, from, to), tally): (_, BranchTally)| {
            let BranchTally {
                hits,
                oldest,
                mispredicted,
            } = tally;
            BranchCount {
                event,
                process,
                from,
                to,
                hits,
                oldest,
                mispredicted,
            }
        };
        let mut ips: Vec<IpCount> = self.ips.into_iter().map(ip).collect();
        let mut streams: Vec<StreamCount> = self.streams.into_iter().map(stream).collect();
        let mut branches: Vec<BranchCount> = self.branches.into_iter().map(branch).collect();
        ips.sort_unstable_by_key(|c| (c.event, c.process, c.ip, c.exact));
        streams.sort_unstable_by_key(|c| (c.event, c.process, c.start, c.end));
        branches.sort_unstable_by_key(|c| (c.event, c.process, c.from, c.to));
        Interval {
            start,
            end,
            ips,
            streams,
            branches,
        }
    }
}

/// Counts beyond 2^53 do not occur, and would only be rounded.
const fn real(n: u64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Owner = Owner {
        event: EventIdx(0),
        process: ProcessIdx(3),
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
            .map(|s| (s.start.0, s.end.0, s.hits, s.weight, s.cycles))
            .collect();
        assert_eq!(streams, [(15, 20, 2, 300.0, 6), (25, 30, 2, 300.0, 10)]);
        let branches: Vec<_> = counts
            .branches
            .iter()
            .map(|b| (b.from.0, b.hits, b.oldest, b.mispredicted))
            .collect();
        assert_eq!(branches, [(10, 2, 2, 0), (20, 2, 0, 0), (30, 2, 0, 2)]);
    }

    #[test]
    fn kernel_streams_are_counted_once_for_the_system() {
        let entries = [(KERNEL + 9, 40, 0), (KERNEL, KERNEL + 4, 0), (20, KERNEL - 8, 0)];
        let (counts, _) = count(&[&entries]);
        let owners: Vec<_> = counts.streams.iter().map(|s| (s.process, s.start.0)).collect();
        assert_eq!(
            owners,
            [(ProcessIdx::KERNEL, KERNEL - 8), (ProcessIdx::KERNEL, KERNEL + 4)]
        );
        let (counts, _) = count(&[&[(20, 30, 0), (KERNEL, KERNEL + 4, 0)]]);
        assert_eq!(counts.streams[0].process, ProcessIdx(3), "crosses rings");
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
