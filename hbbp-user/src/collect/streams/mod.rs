//! The streams of branch stacks, counted: from stacks as the processor took them to how often each stream was seen.
//!
//! A stack makes up to 31 streams, hot code makes the same ones again and again, and all that a report says of branch stacks
//! begins here, so that this is the busiest loop of user space: for each stream one multiplication and a look at one line of
//! a hash table ([`Table::follow`]). It judges nothing: what is not to be counted never stands in the table, or stands there under
//! a number that this loop does not look for.

mod context;
mod refusal;
mod table;

use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::key::WEIGHT_ONE;
use hbbp_ebpf::stack::Context;
use hbbp_ebpf::{CountKey, MAX_EVENTS, Tally};

use super::object::KernelCounts;
use context::{Contexts, Ids, NOWHERE, OLDEST, WATCHED, of_ring};
use refusal::{Refusal, refusal};
use table::{Each, Stream, Table};

/// What must be known of the machine to judge its stacks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Habits {
    /// Bit n: event number n counts near branches alone, while its stacks hold far ones too.
    pub near_only: u32,
    /// The processor repeats the newest entry of a stack now and then (Skylake).
    pub duplicated_heads: bool,
    /// Address and length of the kernel's `__switch_to_asm`; zero where they are not known.
    pub switch: (u64, u64),
    /// Which kernel addresses share a count.
    pub kernel: KernelCounts,
}

/// What became of the entries of an event's branch stacks. Three sums close: `entries` = `stacks` + `streams` + all that was
/// discarded + `refused`, each stack has one branch in its oldest slot, and `entries` are those that were executed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct StackStats {
    /// Stacks with at least one entry.
    pub stacks: u64,
    /// Entries that were executed.
    pub entries: u64,
    /// Streams that were counted.
    pub streams: u64,
    /// Streams made of a repeated newest entry (Skylake).
    pub duplicated: u64,
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
    habits: Habits,
    table: Table,
    contexts: Contexts,
    /// By event.
    stats: [StackStats; MAX_EVENTS],
}

impl Streams {
    /// With room for so many different ones.
    pub fn new(most: u32, habits: Habits) -> Self {
        Self {
            habits,
            table: Table::new(most),
            contexts: Contexts::new(habits.kernel),
            stats: [StackStats::default(); MAX_EVENTS],
        }
    }

    /// Where the kernel changes from one task to the next: address and length of the function.
    pub const fn tell_switch(&mut self, switch: (u64, u64)) {
        self.habits.switch = switch;
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
        let entries = executed(entries);
        let Some((newest, older)) = entries.split_first() else {
            return;
        };
        let n = entries.len() as u64;
        let event = context.event();
        let Some(stats) = self.stats.get_mut(event as usize) else {
            return;
        };
        stats.stacks += times;
        stats.entries += n * times;
        let stands_for = if self.habits.near_only >> event & 1 == 0 {
            1
        } else {
            stands_for(entries)
        };
        let unit = if n < 2 {
            0
        } else {
            context.period.saturating_mul(WEIGHT_ONE) / (n - 1)
        };
        let each = Each {
            times,
            weight: unit.saturating_mul(stands_for).saturating_mul(times),
            time,
        };
        let mut older = older;
        if self.habits.duplicated_heads
            && let Some((next, rest)) = older.split_first()
            && newest.is_same(next)
        {
            stats.duplicated += times;
            older = rest;
        }
        // All, until one is refused.
        stats.streams += older.len() as u64 * times;
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
            let (switch, len) = self.habits.switch;
            let watched = end.wrapping_sub(switch) < len;
            if watched {
                // User code from here on is that of another process.
                (switched, ids[0]) = (true, NOWHERE);
            }
            let refused = refusal(start, end, switched);
            let counted = match refused {
                Some(_) => false,
                None if watched => {
                    let id = of_ring(&ids, start) | WATCHED;
                    self.table.add(missed.stream, id, each)
                }
                None => self.table.add_missed(missed, each),
            };
            if !counted {
                self.refuse(event, refused, each.times);
            }
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

    /// Takes a stream back that was counted as sound: for a reason, or because there was no room.
    #[cold]
    fn refuse(&mut self, event: u32, refusal: Option<Refusal>, times: u64) {
        let Some(stats) = self.stats.get_mut(event as usize) else {
            return;
        };
        let counter = match refusal {
            Some(Refusal::Crossing) => &mut stats.crossing,
            Some(Refusal::Backward) => &mut stats.backward,
            Some(Refusal::Long) => &mut stats.long,
            Some(Refusal::Switched) => &mut stats.switched,
            None => &mut stats.refused,
        };
        *counter += times;
        stats.streams -= times;
    }

    /// Takes out what was counted since the last time. Some keys may stand there twice.
    pub fn take(&mut self, counts: &mut Vec<(CountKey, Tally)>) {
        self.table.take(&self.contexts, counts);
        self.contexts.clear();
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

/// How many stacks this one stands for. Where an event counts near branches alone, no stack is taken at a far one; the
/// next near branch, whose stack begins right behind it, has the chance of both. Without this, whatever runs shortly before
/// a system call or a return from one is missed: with two in a hundred branches, one stream in fifty.
#[inline(always)]
fn stands_for(entries: &[BranchEntry]) -> u64 {
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
