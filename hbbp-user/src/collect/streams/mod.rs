//! The streams of branch stacks, counted: from stacks as the processor took them to how often each stream was seen.
//!
//! A stack makes up to 31 streams, hot code makes the same ones again and again, and all that a report says of branch stacks
//! begins here, so that this is the busiest loop of user space: for each stream one multiplication and a look at one line of
//! a hash table ([`Table::follow`]). What belongs to a stack is settled here: where it begins, what it weighs, what is older than
//! a context switch, and its oldest branch. Whether a stream can have run at all is judged once for each distinct one, when it
//! is taken out; the weight of those that cannot goes to the others of the same process image, event and interval.

mod context;
mod refusal;
mod table;

use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::key::WEIGHT_ONE;
use hbbp_ebpf::stack::Context;
use hbbp_ebpf::{CountKey, MAX_EVENTS, Tally, is_kernel};

use super::object::KernelCounts;
use context::{Contexts, Ids, NOWHERE, OLDEST, WATCHED, of_ring};
use refusal::Refusal;
use table::{Each, Stream, Table};

/// What must be known of the machine to read its stacks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quirks {
    /// Bit n: event number n counts near branches alone, while its stacks hold far ones too.
    pub near_only: u32,
    /// The processor repeats the newest entry of a stack now and then (Skylake). In a loop of one block a repeat is what
    /// happened, and a copy cannot be told from it: the newest entry of every stack is left out. That costs one stream of a
    /// stack and no more, as each branch has the same chance to be found in any slot. To leave out only what looks like a
    /// copy would take a repeat from short loops, and to keep it would give them one.
    pub repeats_newest: bool,
    /// Address and length of the kernel's `__switch_to_asm`; zero where they are not known.
    pub switch: (u64, u64),
    /// Which kernel addresses share a count.
    pub kernel: KernelCounts,
}

/// What became of the entries of an event's branch stacks. Three sums close after [`Streams::take`]: `entries` = `stacks` +
/// `streams` + all that was discarded + `refused`, each stack has one branch in its oldest slot, and `entries` +
/// `newest_unused` are those that were executed. Until then `streams` holds also what will be discarded.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StackStats {
    /// Newest entries that were left out, as they may be copies ([`Quirks::repeats_newest`]).
    pub newest_unused: u64,
    /// Stacks with at least one other entry.
    pub stacks: u64,
    /// Their entries.
    pub entries: u64,
    /// Streams that were counted.
    pub streams: u64,
    /// Streams that end before they start.
    pub backward: u64,
    /// Streams between the rings.
    pub crossing: u64,
    /// Streams longer than [`refusal::MAX_STREAM`].
    pub long: u64,
    /// User streams older than a context switch: they belong to another process.
    pub switched: u64,
    /// Streams that found the table full.
    pub refused: u64,
    /// Branches in the oldest slot that found it full.
    pub refused_oldest: u64,
}

/// Streams and branches in oldest slots, counted since the last time that they were taken.
#[derive(Debug)]
pub struct Streams {
    quirks: Quirks,
    table: Table,
    contexts: Contexts,
    /// By event.
    stats: [StackStats; MAX_EVENTS],
}

impl Streams {
    /// With room for so many different ones.
    pub fn new(most: u32, quirks: Quirks) -> Self {
        Self {
            quirks,
            table: Table::new(most),
            contexts: Contexts::new(quirks.kernel),
            stats: [StackStats::default(); MAX_EVENTS],
        }
    }

    /// Where the kernel changes from one task to the next: address and length of the function.
    pub const fn tell_switch(&mut self, switch: (u64, u64)) {
        self.quirks.switch = switch;
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

    /// Counts a stack that was seen so many times, newest entry first, up to the first empty entry. `time` is that of the
    /// first time in ns.
    pub fn count(&mut self, entries: &[BranchEntry], context: &Context, times: u64, time: u64) {
        let recorded = executed(entries);
        let event = context.event();
        let Some(stats) = self.stats.get_mut(event as usize) else {
            return;
        };
        let mut entries = recorded;
        if self.quirks.repeats_newest
            && let Some((_, others)) = recorded.split_first()
        {
            entries = others;
            stats.newest_unused += times;
        }
        let Some((newest, older)) = entries.split_first() else {
            return;
        };
        stats.stacks += times;
        stats.entries += entries.len() as u64 * times;
        // All, until one is refused.
        stats.streams += older.len() as u64 * times;
        let unit = match older.len() as u64 {
            0 => 0,
            n_streams => context.period.saturating_mul(WEIGHT_ONE) / n_streams,
        };
        let n_triggers = if self.quirks.near_only >> event & 1 == 0 {
            1
        } else {
            n_triggers(recorded)
        };
        let each = Each {
            times,
            weight: unit.saturating_mul(n_triggers).saturating_mul(times),
            time,
        };
        let ids = self.contexts.ids(context);
        self.walk(newest.from, older, ids, each, event);
        let (oldest, end) = match older {
            [.., before, oldest] => (oldest, before.from),
            [oldest] => (oldest, newest.from),
            // It led to no stream, and none ends at address 0.
            [] => (newest, 0),
        };
        self.count_oldest(*oldest, end, &ids, (event, each));
    }

    /// Counts the streams that end at `end` and, one after the other, at the sources of these branches.
    fn walk(&mut self, mut end: u64, mut older: &[BranchEntry], mut ids: Ids, each: Each, event: u32) {
        let mut switched = false;
        while let Some(missed) = self.table.follow(&mut older, &mut end, &ids, each) {
            let Stream { start, end, .. } = missed.stream;
            let (switch, len) = self.quirks.switch;
            let watched = end.wrapping_sub(switch) < len;
            if watched {
                // User code from here on is that of another process.
                (switched, ids[0]) = (true, NOWHERE);
            }
            if switched && !is_kernel(start) {
                self.switched(event, &ids, each);
                continue;
            }
            let counted = if watched {
                let id = of_ring(&ids, start) | WATCHED;
                self.table.add(missed.stream, id, each)
            } else {
                self.table.add_missed(missed, each)
            };
            if !counted && let Some(stats) = self.stats.get_mut(event as usize) {
                stats.refused += each.times;
                stats.streams -= each.times;
            }
        }
    }

    /// Sets a user stream aside that is older than a context switch. Its weight goes to the kernel code, which is what is
    /// left of such a stack.
    #[cold]
    fn switched(&mut self, event: u32, [_, kernel]: &Ids, each: Each) {
        if let Some(weights) = self.contexts.weights(*kernel) {
            weights.impossible += u128::from(each.weight);
        }
        if let Some(stats) = self.stats.get_mut(event as usize) {
            stats.switched += each.times;
            stats.streams -= each.times;
        }
    }

    /// Counts the branch in the oldest slot: with the stream that it led to and that ends at `end`, where that was counted.
    #[inline]
    fn count_oldest(&mut self, oldest: BranchEntry, end: u64, ids: &Ids, (event, each): (u32, Each)) {
        let BranchEntry { from, to: start, .. } = oldest;
        let id = of_ring(ids, from);
        let led_to = Stream { from, start, end };
        if id == of_ring(ids, start) && self.table.add_oldest(led_to, id, each.times) {
            return;
        }
        let alone = Stream {
            from: 0,
            start: from,
            end: 0,
        };
        let each = Each { weight: 0, ..each };
        if !self.table.add(alone, id | OLDEST, each)
            && let Some(stats) = self.stats.get_mut(event as usize)
        {
            stats.refused_oldest += each.times;
        }
    }

    /// Takes out what was counted since the last time, without streams that cannot have run. Some keys may stand there twice.
    pub fn take(&mut self, counts: &mut Vec<(CountKey, Tally)>) {
        if self.table.has_impossible() || self.contexts.has_impossible() {
            for slot in self.table.used() {
                if let Some(weights) = self.contexts.weights(slot.id) {
                    weights.add(slot);
                }
            }
        }
        counts.reserve(self.table.n_used());
        for slot in self.table.drain() {
            let Some((under, weights)) = self.contexts.get(slot.id) else {
                continue;
            };
            let refusal = slot.refusal();
            if let Some(stats) = self.stats.get_mut(under.event() as usize)
                && let Some(refusal) = refusal
            {
                stats.discard(refusal, slot.hits);
            }
            slot.push(under, weights, refusal, counts);
        }
        self.contexts.clear();
    }
}

impl StackStats {
    /// Takes streams back that were counted and cannot have run.
    const fn discard(&mut self, refusal: Refusal, times: u64) {
        let counter = match refusal {
            Refusal::Crossing => &mut self.crossing,
            Refusal::Backward => &mut self.backward,
            Refusal::Long => &mut self.long,
        };
        *counter += times;
        self.streams -= times;
    }
}

/// The entries before the first zero entry: a stack that is not full yet ends in such.
#[inline(always)]
fn executed(entries: &[BranchEntry]) -> &[BranchEntry] {
    if entries.last().is_some_and(|oldest| !oldest.is_empty()) {
        return entries;
    }
    let n = entries.iter().position(BranchEntry::is_empty);
    entries.get(..n.unwrap_or(0)).unwrap_or_default()
}

/// How many branches would have triggered this stack. Where an event counts near branches alone, no stack is taken at a far
/// one; the next near branch, whose stack begins right after it, has the chance of both. Without this, whatever runs shortly
/// before a system call or a return from one is missed: with two in a hundred branches, one stream in fifty.
#[inline(always)]
fn n_triggers(entries: &[BranchEntry]) -> u64 {
    let entries = match entries {
        // A copy for sure: what runs from its target never ends at it.
        [newest, copy, ..] if newest.is_same(copy) && newest.from < newest.to => entries.get(1..),
        _ => None,
    }
    .unwrap_or(entries);
    let far = |n: usize| entries.get(n).is_some_and(BranchEntry::changes_ring);
    match (far(1), far(2)) {
        (false, _) => 1,
        (true, false) => 2,
        // As where an interrupt comes upon the return to user code.
        (true, true) => 3,
    }
}

#[cfg(test)]
mod tests;
