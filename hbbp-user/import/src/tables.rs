//! The counts of one interval of a recording, by what was seen.

use std::hash::Hash;
use std::num::NonZeroU64;

use hashbrown::HashMap;
use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::is_kernel;
use hbbp_ebpf::stream::{Stream, executed};

use super::sample::Sample;
use hbbp_model::addr::{Ring, Va};
use hbbp_model::snapshot::{BranchCount, EventIdx, Interval, IpCount, ProcessIdx, StreamCount};
use hbbp_model::streams::{self, Counted, KernelCounts, Quirks, Recorded, Streams, Taken};

/// Whose a sample is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Owner {
    /// Its event.
    pub event: EventIdx,
    /// The running process image.
    pub process: ProcessIdx,
    /// What its kernel code is counted under: the kernel where the process is not known.
    pub kernel: ProcessIdx,
    /// The interval that its time falls into.
    pub interval: usize,
}

/// Distinct addresses, streams and branches that are kept, of each: a recording of a whole system for an hour has a
/// tenth. What a damaged recording holds may all be different.
const CAPACITY: u32 = 1 << 22;

/// The counts of one interval.
#[derive(Debug, Default)]
pub(super) struct Tables {
    ips: HashMap<(EventIdx, ProcessIdx, Va, bool), (u64, u64)>,
    /// Of the first stack on.
    streams: Option<Streams<StreamOwner, Recorded>>,
    branches: HashMap<(EventIdx, ProcessIdx, Va, Va), BranchTally>,
    /// The entries of the last stack that were executed.
    entries: Vec<BranchEntry>,
}

/// Whose streams are counted together.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct StreamOwner {
    event: EventIdx,
    process: ProcessIdx,
    kernel: ProcessIdx,
}

impl streams::Owner for StreamOwner {
    fn event(&self) -> u32 {
        self.event.0
    }

    fn of_kernel(&self, _kernel: KernelCounts) -> Self {
        Self {
            process: self.kernel,
            ..*self
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct BranchTally {
    hits: u64,
    oldest: u64,
    mispredicted: Option<u64>,
}

/// The weight of a stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackWeight {
    /// Units of the event that it represents, times its weight relative to others of that event.
    pub(super) period: f64,
    /// Its newest streams, which have no weight.
    pub(super) n_newer: usize,
}

/// What the entries of a stack are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    /// Whether any was executed.
    pub(super) any_executed: bool,
    /// Entries that were not.
    pub(super) n_wrong_path: u64,
    /// Streams and branches for which there was no capacity, of all equal stacks.
    pub(super) n_left_out: u64,
}

impl StreamOwner {
    const fn of(owner: Owner) -> Self {
        let Owner {
            event,
            process,
            kernel,
            ..
        } = owner;
        Self {
            event,
            process,
            kernel,
        }
    }

    /// Converts a stream to its row in the snapshot; `None` for a branch, which is counted in a table of its own.
    const fn row(self, counted: Counted, sums: Recorded) -> Option<StreamCount> {
        let Counted::Stream(stream) = counted else {
            return None;
        };
        Some(StreamCount {
            event: self.event,
            process: if is_kernel(stream.start) {
                self.kernel
            } else {
                self.process
            },
            start: Va(stream.start),
            end: Va(stream.end),
            source: None,
            hits: sums.hits,
            weight: sums.weight,
            cycles: NonZeroU64::new(sums.cycles),
        })
    }
}

/// The streams, which are made with the first stack.
fn streams_of(
    streams: &mut Option<Streams<StreamOwner, Recorded>>,
    quirks: Quirks,
) -> &mut Streams<StreamOwner, Recorded> {
    streams.get_or_insert_with(|| Streams::new(CAPACITY, quirks))
}

/// Sorts the streams, and makes one row of those that different branches led to. The sort is stable, so that sums of fractions
/// are made in the order of the recording.
fn sum_equal(streams: &mut Vec<StreamCount>) {
    let key = |c: &StreamCount| (c.event, c.process, c.start, c.end);
    streams.sort_by_key(key);
    streams.dedup_by(|next, sum| {
        let equal = key(next) == key(sum);
        if equal {
            sum.hits = sum.hits.saturating_add(next.hits);
            sum.weight += next.weight;
            let cycles = [sum.cycles, next.cycles].map(|cycles| cycles.map_or(0, NonZeroU64::get));
            sum.cycles = NonZeroU64::new(cycles[0].saturating_add(cycles[1]));
        }
        equal
    });
}

/// The count of a key, unless it is new and the table is full.
fn tally<K: Eq + Hash, V: Default>(counts: &mut HashMap<K, V>, key: K) -> Option<&mut V> {
    if CAPACITY as usize <= counts.len() && !counts.contains_key(&key) {
        return None;
    }
    Some(counts.entry(key).or_default())
}

impl Owner {
    /// What an address is counted under.
    fn of(&self, at: Va) -> ProcessIdx {
        match at.ring() {
            Ring::Kernel => self.kernel,
            Ring::User => self.process,
        }
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
    /// Adds hits of an address and their weight; `false` if the table is full.
    pub(super) fn add_ip(&mut self, owner: Owner, ip: Va, exact: bool, hits: u64, weight: u64) -> bool {
        let key = (owner.event, owner.of(ip), ip, exact);
        let count = tally(&mut self.ips, key);
        count
            .map(|(h, w)| (*h, *w) = (h.saturating_add(hits), w.saturating_add(weight)))
            .is_some()
    }

    /// Adds occurrences of a stream, each of weight 1; `false` if the table is full.
    pub(super) fn add_stream(&mut self, owner: Owner, start: Va, end: Va, hits: u64) -> bool {
        let stream = Stream {
            from: 0,
            start: start.0,
            end: end.0,
        };
        let each = Recorded {
            hits,
            weight: hits as f64,
            cycles: 0,
        };
        let streams = streams_of(&mut self.streams, Quirks::default());
        hits == 0 || streams.add(stream, StreamOwner::of(owner), each, 0)
    }

    /// Adds occurrences of a branch; `false` if the table is full.
    pub(super) fn add_branch(
        &mut self,
        owner: Owner,
        from: Va,
        to: Va,
        hits: u64,
        mispredicted: Option<u64>,
    ) -> bool {
        let key = (owner.event, owner.of(from), from, to);
        tally(&mut self.branches, key)
            .map(|count| count.add(hits, mispredicted))
            .is_some()
    }

    /// Counts the streams of a stack, and its branches with what is recorded of them.
    pub(super) fn add_stack(
        &mut self,
        owner: Owner,
        sample: &Sample<'_>,
        weight: StackWeight,
        quirks: Quirks,
    ) -> Found {
        let times = sample.times;
        let n_wrong_path = sample.executed(&mut self.entries);
        let mut found = Found {
            any_executed: !self.entries.is_empty(),
            n_wrong_path,
            n_left_out: 0,
        };
        if times == 0 {
            return found;
        }
        let entries = std::mem::take(&mut self.entries);
        let serving = executed(&entries);
        found.n_left_out = self
            .add_streams(owner, sample, serving, weight, quirks)
            .saturating_add(self.add_branches(owner, serving, times));
        self.entries = entries;
        found
    }

    /// Adds the streams of a stack; returns how many found no capacity.
    fn add_streams(
        &mut self,
        owner: Owner,
        sample: &Sample<'_>,
        serving: &[BranchEntry],
        weight: StackWeight,
        quirks: Quirks,
    ) -> u64 {
        let times = sample.times;
        let owner = StreamOwner::of(owner);
        let taken = Taken {
            period: weight.period,
            times,
            time: sample.time,
        };
        let streams = streams_of(&mut self.streams, quirks);
        let refused = |streams: &Streams<_, _>| streams.stats(owner.event.0).refused;
        let refused_before = refused(streams);
        // Of a short stack everything serves.
        let n_newer = if weight.n_newer + 1 < serving.len() {
            weight.n_newer
        } else {
            0
        };
        streams.count(serving.get(n_newer..).unwrap_or_default(), owner, &taken);
        let mut n_left_out = refused(streams).saturating_sub(refused_before);
        for (newer, older) in serving.iter().zip(serving.iter().skip(1)).take(n_newer) {
            let stream = Stream {
                from: older.from,
                start: older.to,
                end: newer.from,
            };
            let each = Recorded {
                hits: times,
                weight: 0.0,
                cycles: 0,
            };
            if !streams.add(stream, owner, each, newer.cycles()) {
                n_left_out = n_left_out.saturating_add(times);
            }
        }
        n_left_out
    }

    /// Adds the branches of a stack; returns how many found no capacity.
    fn add_branches(&mut self, owner: Owner, serving: &[BranchEntry], times: u64) -> u64 {
        let key = |entry: &BranchEntry| {
            let (from, to) = (Va(entry.from), Va(entry.to));
            (owner.event, owner.of(from), from, to)
        };
        let mut n_left_out = 0_u64;
        for entry in serving {
            let mispredicted = entry.mispredicted().map(|wrong| if wrong { times } else { 0 });
            match tally(&mut self.branches, key(entry)) {
                Some(count) => count.add(times, mispredicted),
                None => n_left_out = n_left_out.saturating_add(times),
            }
        }
        let oldest = serving.last().map(key);
        if let Some(count) = oldest.and_then(|oldest| self.branches.get_mut(&oldest)) {
            count.oldest = count.oldest.saturating_add(times);
        }
        n_left_out
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
        let mut streams = Vec::new();
        if let Some(mut counted) = self.streams {
            counted.take_all(|owner, counted, sums| streams.extend(owner.row(counted, sums)));
        }
        let mut branches: Vec<BranchCount> = self.branches.into_iter().map(branch).collect();
        ips.sort_unstable_by_key(|c| (c.event, c.process, c.ip, c.exact));
        sum_equal(&mut streams);
        branches.sort_unstable_by_key(|c| (c.event, c.process, c.from, c.to));
        Interval {
            start,
            end,
            continues: false,
            ips,
            streams,
            branches,
            chains: Vec::new(),
            refused: Vec::new(),
        }
    }
}
