//! The counts of one interval of a recording, by what was seen.

use std::hash::Hash;
use std::num::NonZeroU64;

use hashbrown::HashMap;
use hbbp_ebpf::branch::{Step, Walk};

use super::count::Owner;
use super::sample::{Sample, entries};
use crate::addr::{Ring, Va};
use crate::snapshot::{BranchCount, EventIdx, Interval, IpCount, ProcessIdx, StreamCount};

/// Distinct addresses, streams and branches that are kept, of each: a recording of a whole system for an hour has a
/// tenth. What a damaged recording holds may all be different.
const MOST: usize = 1 << 22;

/// The counts of one interval.
#[derive(Debug, Default)]
pub(super) struct Tables {
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
    mispredicted: Option<u64>,
}

/// What the entries of a stack are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// Entries that were executed.
    pub(super) n_sound: u32,
    /// Entries that were not.
    pub(super) n_wrong_path: u64,
    /// Streams and branches for which there was no room.
    pub(super) n_left_out: u64,
}

/// The count of a key, unless it is new and there is no room.
fn tally<K: Eq + Hash, V: Default>(counts: &mut HashMap<K, V>, key: K) -> Option<&mut V> {
    if MOST <= counts.len() && !counts.contains_key(&key) {
        return None;
    }
    Some(counts.entry(key).or_default())
}

/// Kernel code is counted once for the system.
fn owner_of(at: Va, process: ProcessIdx) -> ProcessIdx {
    match at.ring() {
        Ring::Kernel => ProcessIdx::KERNEL,
        Ring::User => process,
    }
}

impl StreamTally {
    fn add(&mut self, hits: u64, weight: f64, cycles: u64) {
        self.hits = self.hits.saturating_add(hits);
        self.weight += weight;
        self.cycles = self.cycles.saturating_add(cycles);
    }
}

impl BranchTally {
    fn add(&mut self, hits: u64, mispredicted: Option<u64>) {
        self.hits = self.hits.saturating_add(hits);
        if let Some(n) = mispredicted {
            self.mispredicted = Some(self.mispredicted.unwrap_or(0).saturating_add(n));
        }
    }
}

impl Tables {
    /// Adds hits of an address and their weight; `false` where there is no room.
    pub(super) fn add_ip(&mut self, owner: Owner, ip: Va, exact: bool, (hits, weight): (u64, u64)) -> bool {
        let key = (owner.event, owner_of(ip, owner.process), ip, exact);
        let count = tally(&mut self.ips, key);
        count
            .map(|(h, w)| (*h, *w) = (h.saturating_add(hits), w.saturating_add(weight)))
            .is_some()
    }

    /// Adds occurrences of a stream, each of weight 1; `false` where there is no room.
    pub(super) fn add_stream(&mut self, owner: Owner, (start, end): (Va, Va), hits: u64) -> bool {
        let key = (owner.event, owner_of(start, owner.process), start, end);
        tally(&mut self.streams, key)
            .map(|count| count.add(hits, hits as f64, 0))
            .is_some()
    }

    /// Adds occurrences of a branch; `false` where there is no room.
    pub(super) fn add_branch(
        &mut self,
        owner: Owner,
        (from, to): (Va, Va),
        hits: u64,
        mispredicted: Option<u64>,
    ) -> bool {
        let key = (owner.event, owner_of(from, owner.process), from, to);
        tally(&mut self.branches, key)
            .map(|count| count.add(hits, mispredicted))
            .is_some()
    }

    /// Counts the entries and streams of a stack.
    pub(super) fn add_stack(&mut self, owner: Owner, sample: &Sample<'_>, period: u64) -> Found {
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
        let mut found = Found {
            n_sound: walk.n_sound(),
            n_wrong_path,
            n_left_out: 0,
        };
        let Some(oldest) = walk.oldest() else {
            return found;
        };
        let times = sample.times;
        let n_streams = found.n_sound.saturating_sub(1).max(1);
        let weight = period as f64 / f64::from(n_streams) * times as f64;
        let process_of = |at: Va| owner_of(at, owner.process);
        let mut walk = Walk::default();
        for entry in entries(sample.stack) {
            match walk.step(entry) {
                Step::End => break,
                Step::WrongPath => continue,
                Step::Newest => {}
                Step::Stream(stream) => {
                    let (start, end) = (Va(stream.start), Va(stream.end));
                    // Streams that cross rings are refused later, by their addresses.
                    let same_owner = process_of(start) == process_of(end);
                    let process = if same_owner {
                        process_of(start)
                    } else {
                        owner.process
                    };
                    match tally(&mut self.streams, (owner.event, process, start, end)) {
                        Some(count) => count.add(times, weight, stream.cycles.saturating_mul(times)),
                        None => found.n_left_out += 1,
                    }
                }
            }
            let (from, to) = (Va(entry.from), Va(entry.to));
            let mispredicted = entry.mispredicted().map(|wrong| if wrong { times } else { 0 });
            match tally(&mut self.branches, (owner.event, process_of(from), from, to)) {
                Some(count) => count.add(times, mispredicted),
                None => found.n_left_out += 1,
            }
        }
        let (from, to) = (Va(oldest.from), Va(oldest.to));
        if let Some(count) = self.branches.get_mut(&(owner.event, process_of(from), from, to)) {
            count.oldest = count.oldest.saturating_add(times);
        }
        found
    }

    /// The counts, in a fixed order.
    pub(super) fn into_interval(self, start: u64, end: u64) -> Interval {
        let ip = |((event, process, ip, exact), (hits, weight))| IpCount {
            event,
            process,
            ip,
            exact,
            hits,
            weight,
        };
        let stream = |((event, process, start, end), count): (_, StreamTally)| {
            let StreamTally { hits, weight, cycles } = count;
            StreamCount {
                event,
                process,
                start,
                end,
                source: None,
                hits,
                weight,
                cycles: NonZeroU64::new(cycles),
            }
        };
        let branch = |((event, process, from, to), count): (_, BranchTally)| {
            let BranchTally {
                hits,
                oldest,
                mispredicted,
            } = count;
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
            continues: false,
            ips,
            streams,
            branches,
        }
    }
}
