//! The streams of one stack, from its newest entry to its oldest, into the combining table of the CPU
//! ([`hbbp_ebpf::combine`]), and what leaves that into the bank.
//!
//! These are two loops, one after the other with what was evicted in the work space, because the verifier walks the ways
//! through a loop for each way through the loop around it.

use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::combine::{CombineTable, SLOTS, Slot, slot_of};
use hbbp_ebpf::context::{NOWHERE, WATCHED, number_of_oldest};
use hbbp_ebpf::refusal::refusal;
use hbbp_ebpf::stat::{Outcome, StackStats};
use hbbp_ebpf::{CountKey, EventTag, MAX_DEPTH, is_kernel};

use crate::count;
use crate::maps::{BANK, DUPLICATED_HEADS, SWITCH};
use crate::work::Work;

/// Where the streams of one stack go.
pub(crate) struct Walk<'a> {
    pub(crate) table: &'a mut CombineTable,
    pub(crate) work: &'a mut Work,
    pub(crate) stats: &'a mut StackStats,
    /// The number of the context for kernel code.
    pub(crate) kernel_id: u64,
    /// Start and length of the function that changes tasks.
    switch: [u64; 2],
}

/// A stream between its neighbours in a stack.
#[derive(Clone, Copy)]
struct Stream {
    from: u64,
    start: u64,
    len: u64,
}

impl<'a> Walk<'a> {
    #[inline(always)]
    pub(crate) fn new(
        table: &'a mut CombineTable,
        work: &'a mut Work,
        stats: &'a mut StackStats,
        kernel_id: u64,
    ) -> Self {
        Self {
            table,
            work,
            stats,
            kernel_id,
            switch: SWITCH.get(0).copied().unwrap_or_default(),
        }
    }

    /// Counts the streams of a stack of `n` entries, and the branch in its oldest slot. A stream behind the one that it
    /// stood behind last time, as nearly all of a loop do, costs four comparisons and an addition.
    #[inline(always)]
    pub(crate) fn count(mut self, n: u64) {
        // All, until one is refused.
        self.stats.streams += n - 1;
        let [newest, next] = [self.work.stack[0], self.work.stack[1]];
        let mut i = 1;
        if DUPLICATED_HEADS.load() != 0 && 1 < n && newest.is_same(&next) {
            self.stats.streams -= 1;
            self.stats.duplicated += 1;
            i = 2;
        }
        let mut end = newest.from;
        let mut id = NOWHERE;
        // Any slot: its hints lead somewhere else, and are corrected.
        let mut slot: *mut Slot = &raw mut self.table.slots[0];
        // One more than there are: what stands behind the last entry is nowhere in the table, so that the way that nearly
        // all streams go needs no look at `n`.
        while i <= MAX_DEPTH {
            let (from, start) = (self.work.stack[i].from, self.work.stack[i].to);
            let stream = Stream {
                from,
                start,
                len: end.wrapping_sub(start),
            };
            if let Some(next) = self.followed(slot, 0, stream, id) {
                slot = next;
            } else if let Some(next) = self.followed(slot, 1, stream, id) {
                slot = next;
            } else if self.work.stack[i].is_same(&BranchEntry::END) {
                break;
            } else if let Some(judged) = self.judge(start, end) {
                id = judged & !WATCHED;
                slot = self.find(slot, stream, judged);
            }
            end = from;
            i += 1;
        }
        self.oldest(n, slot);
        self.flush();
    }

    /// Counts a stream if it is where this hint of the slot before it leads.
    #[inline(always)]
    fn followed(&mut self, slot: *mut Slot, hint: usize, stream: Stream, id: u64) -> Option<*mut Slot> {
        // SAFETY: `slot` points into the table.
        let place = unsafe { (*slot).next[hint] };
        let next = &mut self.table.slots[usize::from(place) & (SLOTS - 1)];
        if next.from == stream.from
            && next.start == stream.start
            && u64::from(next.len) == stream.len
            && next.context == id
        {
            next.hits += 1;
            return Some(next);
        }
        None
    }

    /// The number of the context of a stream, with [`WATCHED`] next to a change of tasks; none where it is refused.
    #[inline(always)]
    fn judge(&mut self, start: u64, end: u64) -> Option<u64> {
        let [switch, len] = self.switch;
        let watched = end.wrapping_sub(switch) < len;
        if watched {
            self.work.switched.set(1);
        }
        if let Some(refusal) = refusal(start, end, self.work.switched.get() != 0) {
            self.stats.streams -= 1;
            self.stats.refuse(refusal);
            return None;
        }
        let id = if is_kernel(start) {
            self.kernel_id
        } else {
            self.work.user_id
        };
        Some(if watched { id | WATCHED } else { id })
    }

    /// Counts a stream where it belongs, and lets the slot before it lead there.
    #[inline(always)]
    fn find(&mut self, before: *mut Slot, stream: Stream, id: u64) -> *mut Slot {
        let (place, is_there) = self.place_of(stream, id);
        // SAFETY: `before` points into the table.
        let hints = unsafe { &mut (*before).next };
        hints[1] = hints[0];
        hints[0] = place as u16;
        if is_there {
            let slot = &mut self.table.slots[place];
            slot.hits += 1;
            return slot;
        }
        let unit = self.work.context.unit;
        let Stream { from, start, len } = stream;
        let key = self.work.context.stream(from, start, len as u32);
        self.begin(place, &key, from, id, unit)
    }

    /// The slot of a stream, and whether it holds it: where neither of the two does that may, it is that with fewer hits.
    #[inline(always)]
    fn place_of(&mut self, stream: Stream, id: u64) -> (usize, bool) {
        /// Set in the number of a slot that holds the stream.
        const THERE: usize = SLOTS;
        let Stream { from, start, len } = stream;
        let place = slot_of(from, start, len, id) & (SLOTS - 1);
        let (slot, other) = (&self.table.slots[place], &self.table.slots[place ^ 1]);
        let mut found = place;
        if slot.is_of(from, start, len, id) {
            found |= THERE;
        } else if other.is_of(from, start, len, id) {
            found = place ^ 1 | THERE;
        } else if other.hits < slot.hits {
            found = place ^ 1;
        }
        // To the verifier, all ways are one from here on.
        let found = self.work.unknown(found as u64) as usize;
        (found & (SLOTS - 1), found & THERE != 0)
    }

    /// Takes a slot for another count, and sends what it held to the bank.
    #[inline(always)]
    fn begin(&mut self, place: usize, key: &CountKey, from: u64, id: u64, unit: u64) -> *mut Slot {
        let now = self.work.time();
        let slot = &mut self.table.slots[place & (SLOTS - 1)];
        let first_time = &mut self.table.first_times[place & (SLOTS - 1)];
        if slot.hits != 0 {
            let (key, tally) = slot.count(*first_time);
            self.work.push_evicted(&key, &tally, slot.oldest);
        }
        *first_time = now;
        slot.from = from;
        slot.start = key.address;
        slot.context = id;
        slot.len = key.length as u16;
        slot.event = key.event;
        slot.hits = 1;
        slot.unit = unit;
        slot.owner = [key.tgid, key.exec_id];
        slot.oldest = 0;
        slot
    }

    /// Adds the branch in the oldest slot, where `last` is the slot of the last stream that was counted. Mostly the branch
    /// led to that one, and is counted with it.
    #[inline(always)]
    fn oldest(&mut self, n: u64, last: *mut Slot) {
        // The mask says to the verifier what `n` says to the reader.
        let address = self.work.stack[(n as usize - 1) & (MAX_DEPTH - 1)].from;
        let id = if is_kernel(address) {
            self.kernel_id
        } else {
            self.work.user_id
        };
        // SAFETY: `last` points into the table.
        let last = unsafe { &mut *last };
        if last.is_led_by(address) && last.context & !WATCHED == id {
            last.oldest += 1;
            return;
        }
        let id = number_of_oldest(id);
        let oldest = Stream {
            from: 0,
            start: address,
            len: 0,
        };
        let (place, is_there) = self.place_of(oldest, id);
        if is_there {
            self.table.slots[place].hits += 1;
        } else {
            let key = self.work.context.oldest(address);
            self.begin(place, &key, 0, id, 0);
        }
    }

    /// Counts in the bank what left the combining table.
    #[inline(always)]
    fn flush(&mut self) {
        let n = self.work.n_evicted.get();
        if n == 0 {
            return;
        }
        let bank = BANK.get(0);
        for i in 0..MAX_DEPTH {
            if n <= i as u64 {
                break;
            }
            if bank.is_some_and(|bank| count::add_evicted(bank, self.work, i) == Outcome::Counted) {
                continue;
            }
            let evicted = &self.work.evicted[i];
            let hits = evicted.tally().hits;
            let [.., rest] = evicted.key();
            if EventTag(rest as u32).is_oldest() {
                self.stats.refused_oldest += hits;
            } else {
                self.stats.refused += hits;
                self.stats.refused_oldest += evicted.oldest();
            }
        }
    }
}
