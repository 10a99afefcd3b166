//! Counts the streams of branch stacks: the one implementation for live stacks and for recordings.
//!
//! This is the busiest loop of user space: a stack has up to 31 streams, and hot code repeats the same ones. Each
//! stream costs one multiplication and one cache line of a hash table ([`Table::follow`]). Properties of a stack are
//! determined here: its start, its weight, a context switch in it, and its oldest branch. Each distinct stream is
//! checked once for impossible addresses: of live stacks in [`Streams::take_possible`], of recordings, which stay
//! unchanged, when it is located.

mod owner;
mod stats;
mod sums;
mod table;

#[cfg(test)]
mod tests;

use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::is_kernel;
use hbbp_ebpf::stream::{Stream, executed, n_triggers};
pub use owner::{KernelCounts, Owner, ThreadCounts};
pub use stats::StackStats;
pub use sums::{Recorded, Sums, Taken};

use owner::{Ids, NOWHERE, OLDEST, Owners, WATCHED, of_ring};
use stats::{add, update};
use table::{Slot, Table, Younger};

/// What must be known of the machine to read its stacks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quirks {
    /// Bit n: stacks of event number n are taken at near branches alone, while they hold far ones too.
    pub near_only: u32,
    /// The processor repeats the newest entry of a stack now and then (Skylake). In a loop of one block a repeat is what
    /// happened, and a copy cannot be distinguished from it: the newest entry of every stack is left out. That costs one stream of a
    /// stack and no more, as each branch has the same chance to be found in any slot. To leave out only what looks like a
    /// copy would take a repeat from short loops, and to keep it would give them one.
    pub repeats_newest: bool,
    /// Address and length of the kernel's `__switch_to_asm`; zero where they are not known.
    pub switch: (u64, u64),
    /// Which kernel addresses share a count.
    pub kernel: KernelCounts,
}

/// Streams and branches in oldest slots, counted since the last time that they were taken.
#[derive(Debug)]
pub struct Streams<O, S> {
    quirks: Quirks,
    table: Table<S>,
    owners: Owners<O>,
    /// By event.
    stats: Vec<StackStats>,
}

/// What was counted.
#[derive(Clone, Copy, Debug)]
pub enum Counted {
    /// A stream.
    Stream(Stream),
    /// The branch at an address, in oldest slots.
    Oldest(u64),
}

impl<O: Owner, S: Sums> Streams<O, S> {
    /// With capacity for this number of different ones.
    pub fn new(capacity: u32, quirks: Quirks) -> Self {
        Self {
            quirks,
            table: Table::new(capacity),
            owners: Owners::new(quirks.kernel),
            stats: Vec::new(),
        }
    }

    /// Where the kernel changes from one task to the next: address and length of the function.
    pub const fn set_switch(&mut self, start: u64, len: u64) {
        self.quirks.switch = (start, len);
    }

    /// Whether it is time to take what was counted.
    pub fn is_half_full(&self) -> bool {
        self.table.is_half_full()
    }

    /// What became of the stacks of an event.
    pub fn stats(&self, event: u32) -> StackStats {
        let stats = self.stats.get(event as usize);
        stats.copied().unwrap_or_default()
    }

    /// Counts a stack, newest entry first, up to the first empty entry; none of its entries is of a wrong path. Returns those
    /// that serve.
    pub fn count<'a>(
        &mut self,
        entries: &'a [BranchEntry],
        owner: O,
        taken: &Taken<S::Period>,
    ) -> &'a [BranchEntry] {
        let recorded = executed(entries);
        let event = owner.event();
        let (quirks, times) = (self.quirks, taken.times);
        let mut entries = recorded;
        if quirks.repeats_newest
            && let Some((_, others)) = recorded.split_first()
        {
            entries = others;
            self.update(event, |stats| add(&mut stats.newest_unused, times));
        }
        let Some((newest, older)) = entries.split_first() else {
            return entries;
        };
        let n_streams = older.len() as u64;
        self.update(event, |stats| {
            add(&mut stats.stacks, times);
            add(&mut stats.entries, (n_streams + 1).saturating_mul(times));
            // All, until one is refused.
            add(&mut stats.streams, n_streams.saturating_mul(times));
        });
        let n_triggers = if event < u32::BITS && quirks.near_only >> event & 1 == 1 {
            n_triggers(recorded)
        } else {
            1
        };
        let each = S::each(taken, n_streams, n_triggers);
        let ids = self.owners.ids(owner);
        self.walk(newest, older, ids, event, times, each);
        let (oldest, end) = match older {
            [.., before, oldest] => (oldest, before.from),
            [oldest] => (oldest, newest.from),
            // It led to no stream, and none ends at address 0.
            [] => (newest, 0),
        };
        self.count_oldest(oldest, end, &ids, event, times, each);
        entries
    }

    /// Counts the streams that end at the newest branch and, one after the other, at the older ones.
    fn walk(
        &mut self,
        newest: &BranchEntry,
        mut older: &[BranchEntry],
        mut ids: Ids,
        event: u32,
        times: u64,
        each: S::Each,
    ) {
        let mut younger = Younger::of::<S>(newest);
        let mut switched = false;
        while let Some(missed) = self.table.follow(&mut older, &mut younger, &ids, each) {
            let Stream { start, end, .. } = missed.stream;
            let (switch, len) = self.quirks.switch;
            let watched = end.wrapping_sub(switch) < len;
            if watched {
                // User code from here on is that of another process.
                (switched, ids[0]) = (true, NOWHERE);
            }
            if switched && !is_kernel(start) {
                self.set_switched_aside(event, times, &ids, each, missed.detail);
                continue;
            }
            let counted = if watched {
                let id = of_ring(&ids, start) | WATCHED;
                self.table.add(missed.stream, id, each, missed.detail)
            } else {
                self.table.add_missed(missed, each)
            };
            if !counted {
                self.update(event, |stats| {
                    add(&mut stats.refused, times);
                    stats.streams = stats.streams.saturating_sub(times);
                });
            }
        }
    }

    /// Sets a user stream aside that is older than a context switch. Its weight goes to the kernel code, which is what is
    /// left of such a stack.
    #[cold]
    fn set_switched_aside(
        &mut self,
        event: u32,
        times: u64,
        [_, kernel]: &Ids,
        each: S::Each,
        detail: S::Detail,
    ) {
        let weight = S::begin(&each, detail).weight();
        self.owners.add_impossible(*kernel, weight);
        self.update(event, |stats| {
            add(&mut stats.switched, times);
            stats.streams = stats.streams.saturating_sub(times);
        });
    }

    /// Counts the branch in the oldest slot: with the stream that it led to and that ends at `end`, where that was counted.
    #[inline]
    fn count_oldest(
        &mut self,
        oldest: &BranchEntry,
        end: u64,
        ids: &Ids,
        event: u32,
        times: u64,
        each: S::Each,
    ) {
        let BranchEntry { from, to: start, .. } = *oldest;
        let id = of_ring(ids, from);
        let led_to = Stream { from, start, end };
        if id == of_ring(ids, start) && self.table.add_oldest(led_to, id, times) {
            return;
        }
        let alone = Stream {
            from: 0,
            start: from,
            end: 0,
        };
        if !self.table.add(alone, id | OLDEST, each, S::detail(oldest)) {
            self.update(event, |stats| add(&mut stats.refused_oldest, times));
        }
    }

    #[inline(always)]
    fn update(&mut self, event: u32, change: impl FnOnce(&mut StackStats)) {
        update(&mut self.stats, event, change);
    }

    /// Adds occurrences of a stream that is known without its stack. Returns whether there was capacity.
    pub fn add(&mut self, stream: Stream, owner: O, each: S::Each, detail: S::Detail) -> bool {
        let ids = self.owners.ids(owner);
        let id = of_ring(&ids, stream.start);
        self.table.add(stream, id, each, detail)
    }

    /// Takes out what was counted since the last time, all streams as they are. Some may come twice.
    pub fn take_all(&mut self, mut take: impl FnMut(&O, Counted, S)) {
        for slot in self.table.drain() {
            if let Some(owner) = self.owners.get(slot.id) {
                take_slot(owner, &slot, &mut take);
            }
        }
        self.owners.clear();
    }

    /// Takes out what was counted since the last time, without streams that cannot have run. Their weight is redistributed over
    /// the owner's possible streams. A stream may come twice.
    pub fn take_possible(&mut self, mut take: impl FnMut(&O, Counted, S)) {
        if self.table.has_impossible() || self.owners.has_impossible() {
            for slot in self.table.used().filter(|slot| slot.id & OLDEST == 0) {
                let weight = slot.sums.weight();
                match slot.refusal() {
                    None => self.owners.add_possible(slot.id, weight),
                    Some(_) => self.owners.add_impossible(slot.id, weight),
                }
            }
        }
        for mut slot in self.table.drain() {
            let Some(owner) = self.owners.get(slot.id) else {
                continue;
            };
            match slot.refusal() {
                None => {
                    if let Some(factor) = self.owners.factor(slot.id) {
                        slot.sums.scale(factor);
                    }
                    take_slot(owner, &slot, &mut take);
                }
                Some(refusal) => {
                    update(&mut self.stats, owner.event(), |stats| {
                        stats.discard(refusal, slot.sums.hits());
                    });
                    take_oldest(owner, &slot, &mut take);
                }
            }
        }
        self.owners.clear();
    }
}

fn take_slot<O, S: Sums>(owner: &O, slot: &Slot<S>, take: &mut impl FnMut(&O, Counted, S)) {
    if slot.id & OLDEST == 0 {
        take(owner, Counted::Stream(slot.stream()), slot.sums);
        take_oldest(owner, slot, take);
    } else {
        take(
            owner,
            Counted::Oldest(slot.start),
            slot.sums.in_oldest_slot(slot.sums.hits()),
        );
    }
}

/// The branch that led to a stream, where it was in oldest slots.
fn take_oldest<O, S: Sums>(owner: &O, slot: &Slot<S>, take: &mut impl FnMut(&O, Counted, S)) {
    if slot.oldest != 0 {
        take(
            owner,
            Counted::Oldest(slot.from),
            slot.sums.in_oldest_slot(slot.oldest),
        );
    }
}
