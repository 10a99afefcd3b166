//! Locates counts: from an executed address to the text range whose bytes were executed.
//!
//! Kernel addresses are looked up in the mappings of process 0, user addresses in those of their process image.
//! Counts have no timestamps, so the latest mapping of an interval applies to the whole interval.
//! For text that was patched during the run, the version valid in the interval of the count applies.
//! Equal counts of several intervals are summed: later stages see each location once per event and process.

mod address_map;
mod location;
mod reason;
mod sites;

use std::collections::BTreeMap;

pub use address_map::AddressMap;
use hbbp_model::addr::{ImageAddr, Ring, Va};
use hbbp_model::snapshot::taken_branches::WeighedBranch;
use hbbp_model::snapshot::{
    BranchCount, ChainCount, EventIdx, Interval, IpCount, ProcessIdx, Snapshot, StreamCount,
};
pub use location::{Location, TextIdx};
pub use reason::{Discard, PerRing, Tally, Unresolved};
pub use sites::{Site, agrees, sites};

/// Samples of an eventing IP at one location.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LocatedIp {
    /// Where.
    pub location: Location,
    /// The event that sampled it.
    pub event: EventIdx,
    /// The running process image.
    pub process: ProcessIdx,
    /// Samples.
    pub hits: u64,
    /// Sum of the periods of these samples, in units of the event.
    pub weight: u64,
}

/// Occurrences of a stream that starts and ends in the same text range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocatedStream {
    /// Its first instruction.
    pub start: Location,
    /// Its last instruction, in the same text.
    pub end: ImageAddr,
    /// The event whose samples carried the branch stacks.
    pub event: EventIdx,
    /// The running process image.
    pub process: ProcessIdx,
    /// Occurrences.
    pub hits: u64,
    /// Sum of period / (N-1) over the stacks of N entries that held it, in units of the event.
    pub weight: f64,
}

/// Occurrences of a taken branch in branch stacks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocatedBranch {
    /// The branch instruction.
    pub from: Location,
    /// Its target, if it lies in text of the snapshot.
    pub to: Option<Location>,
    /// The event whose samples carried the branch stacks.
    pub event: EventIdx,
    /// The running process image; the kernel for its own branches, but those to user code.
    pub process: ProcessIdx,
    /// Occurrences in any slot.
    pub hits: u64,
    /// Occurrences in the oldest slot.
    pub oldest: u64,
    /// The weight of the occurrences, as [`LocatedStream::weight`].
    pub weight: f64,
    /// The weight of those in the oldest slot.
    pub oldest_weight: f64,
    /// Occurrences that the processor flagged as mispredicted; `None` if predictions are not known.
    pub mispredicted: Option<u64>,
}

/// Samples of a call chain.
#[derive(Clone, Debug, PartialEq)]
pub struct LocatedChain {
    /// The sampled instruction; `None` if it has no location.
    pub ip: Option<Location>,
    /// The interrupted instruction, then for each return address its last byte before, innermost first: a call that never comes
    /// back is the end of its text. Only those up to the first without a location.
    pub frames: Vec<Location>,
    /// The last byte before the address on top of the stack of user code.
    pub top: Option<Location>,
    /// The event that sampled it.
    pub event: EventIdx,
    /// Samples.
    pub hits: u64,
    /// Sum of the periods of these samples, in units of the event.
    pub weight: u64,
}

/// The streams of an event in one process image and ring: the weight of impossible ones is redistributed over the possible ones.
pub type StreamGroup = (EventIdx, ProcessIdx, Ring);

/// All counts of a snapshot, by location.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Located {
    /// Samples, sorted by (location, event, process), each combination once.
    pub ips: Vec<LocatedIp>,
    /// Streams, sorted by (start, end, event, process), each combination once.
    pub streams: Vec<LocatedStream>,
    /// Branches, sorted by (from, to, event, process), each combination once.
    pub branches: Vec<LocatedBranch>,
    /// Call chains of samples, in the order of the snapshot.
    pub chains: Vec<LocatedChain>,
    /// Samples without a location; with `ips` they add up to the samples of the snapshot.
    pub unresolved: Tally<Unresolved>,
    /// Streams without a location; with `streams` they add up to the streams of the snapshot.
    pub discarded: Tally<Discard>,
    /// Hits and weight of the discarded streams that cannot have been executed.
    pub impossible: BTreeMap<StreamGroup, (u64, f64)>,
    /// Branches whose source has no location; with `branches` they add up to the branches of the snapshot.
    pub lost_branches: Tally<Unresolved>,
}

/// Locates every count.
pub fn locate(snapshot: &Snapshot) -> Located {
    let mut addresses = AddressMap::new(snapshot);
    let all = |rows: fn(&Interval) -> usize| snapshot.intervals.iter().map(rows).sum();
    let mut located = Located {
        ips: Vec::with_capacity(all(|interval| interval.ips.len())),
        streams: Vec::with_capacity(all(|interval| interval.streams.len())),
        ..Located::default()
    };
    for ((interval, branches), n) in snapshot
        .intervals
        .iter()
        .zip(snapshot.taken_branches())
        .zip(0u32..)
    {
        addresses.set_interval(n);
        for count in &interval.ips {
            match addresses.location(count.process, count.ip) {
                Ok(location) => located.ips.push(located_ip(location, count)),
                Err(why) => located
                    .unresolved
                    .add(count.event, why, count.ip.ring(), count.hits),
            }
        }
        for count in &interval.streams {
            match addresses.span(count) {
                Ok((start, end)) => located.streams.push(located_stream(start, end, count)),
                Err(why) => located.discard(count, why),
            }
        }
        for count in &interval.chains {
            located.chains.push(located_chain(&mut addresses, count));
        }
        for branch in &branches {
            let count = &branch.count;
            match addresses.location(count.process, count.from) {
                Ok(from) => {
                    let to = addresses.location(count.process, count.to).ok();
                    located.branches.push(located_branch(from, to, branch));
                }
                Err(why) => located
                    .lost_branches
                    .add(count.event, why, count.from.ring(), count.hits),
            }
        }
    }
    located.sum_equal_locations();
    located
}

fn located_ip(location: Location, count: &IpCount) -> LocatedIp {
    LocatedIp {
        location,
        event: count.event,
        process: count.process,
        hits: count.hits,
        weight: count.weight,
    }
}

fn located_stream(start: Location, end: ImageAddr, count: &StreamCount) -> LocatedStream {
    let StreamCount {
        event,
        process,
        hits,
        weight,
        ..
    } = *count;
    LocatedStream {
        start,
        end,
        event,
        process,
        hits,
        weight,
    }
}

fn located_branch(from: Location, to: Option<Location>, branch: &WeighedBranch) -> LocatedBranch {
    let count = &branch.count;
    LocatedBranch {
        from,
        to,
        event: count.event,
        process: owner_of(count),
        hits: count.hits,
        oldest: count.oldest,
        weight: branch.weight,
        oldest_weight: branch.oldest_weight,
        mispredicted: count.mispredicted,
    }
}

/// Branches of the kernel are those of the system, but where they lead to the user code of a process image.
fn owner_of(branch: &BranchCount) -> ProcessIdx {
    let leads_to_user = branch.to != Va(0) && branch.to.ring() == Ring::User;
    match branch.from.ring() {
        Ring::Kernel if !leads_to_user => ProcessIdx::KERNEL,
        _ => branch.process,
    }
}

fn located_chain(addresses: &mut AddressMap<'_>, count: &ChainCount) -> LocatedChain {
    let mut frames = Vec::with_capacity(count.frames.len());
    for (nth, at) in count.frames.iter().enumerate() {
        let at = Va(at.0.saturating_sub(u64::from(nth != 0)));
        let Ok(location) = addresses.location(count.process, at) else {
            break;
        };
        frames.push(location);
    }
    LocatedChain {
        ip: addresses.location(count.process, count.ip).ok(),
        top: addresses
            .location(count.process, Va(count.top.0.saturating_sub(1)))
            .ok(),
        frames,
        event: count.event,
        hits: count.hits,
        weight: count.weight,
    }
}

impl Located {
    fn discard(&mut self, count: &StreamCount, why: Discard) {
        let ring = count.start.ring();
        self.discarded.add(count.event, why, ring, count.hits);
        if why.is_impossible() {
            self.add_impossible((count.event, count.process, ring), count.hits, count.weight);
        }
    }

    /// The same counts with other process images: those that get the same one are summed. The streams are moved, as they
    /// are many.
    pub fn by_processes(&mut self, renamed: impl Fn(ProcessIdx) -> ProcessIdx) -> Self {
        let streams = std::mem::take(&mut self.streams);
        let mut all = Self {
            streams,
            ..self.clone()
        };
        for ip in &mut all.ips {
            ip.process = renamed(ip.process);
        }
        for stream in &mut all.streams {
            stream.process = renamed(stream.process);
        }
        for branch in &mut all.branches {
            branch.process = renamed(branch.process);
        }
        all.impossible = BTreeMap::new();
        for (&(event, process, ring), &(hits, weight)) in &self.impossible {
            all.add_impossible((event, renamed(process), ring), hits, weight);
        }
        all.sum_equal_locations();
        all
    }

    fn add_impossible(&mut self, group: StreamGroup, hits: u64, weight: f64) {
        let (sum_of_hits, sum_of_weight) = self.impossible.entry(group).or_default();
        *sum_of_hits = sum_of_hits.saturating_add(hits);
        *sum_of_weight += weight;
    }

    /// The sorts are stable: fractions are summed in the order of the snapshot, so that results are reproducible.
    fn sum_equal_locations(&mut self) {
        let ip = |c: &LocatedIp| (c.location, c.event, c.process);
        self.ips.sort_by_key(ip);
        self.ips.dedup_by(|next, kept| {
            let equal = ip(next) == ip(kept);
            if equal {
                kept.hits = kept.hits.saturating_add(next.hits);
                kept.weight = kept.weight.saturating_add(next.weight);
            }
            equal
        });
        let stream = |c: &LocatedStream| (c.start, c.end, c.event, c.process);
        self.streams.sort_by_key(stream);
        self.streams.dedup_by(|next, kept| {
            let equal = stream(next) == stream(kept);
            if equal {
                kept.hits = kept.hits.saturating_add(next.hits);
                kept.weight += next.weight;
            }
            equal
        });
        let branch = |c: &LocatedBranch| (c.from, c.to, c.event, c.process);
        self.branches.sort_by_key(branch);
        self.branches.dedup_by(|next, kept| {
            let equal = branch(next) == branch(kept);
            if equal {
                kept.hits = kept.hits.saturating_add(next.hits);
                kept.oldest = kept.oldest.saturating_add(next.oldest);
                kept.weight += next.weight;
                kept.oldest_weight += next.oldest_weight;
                let both = kept.mispredicted.zip(next.mispredicted);
                kept.mispredicted = both.map(|(sum, n)| sum.saturating_add(n));
            }
            equal
        });
    }
}

#[cfg(test)]
mod tests;
