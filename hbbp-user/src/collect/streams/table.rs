//! The table of streams: how often each was seen, found by one multiplication and a look at one line of memory.
//!
//! Slots are searched in a row from the one that a hash names. Where a stream stands behind another one that is seen less
//! often, the two change places, so that hot streams stand where they are looked for first ([`Table::follow`]).

use std::slice;

use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::{CountKey, Tally, is_kernel};

use super::context::{Contexts, Ids, OLDEST, Under, of_ring};

/// A stream, and the branch that led there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub(super) from: u64,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// What all streams of one stack have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Each {
    pub(super) times: u64,
    /// What each of them weighs, all times together.
    pub(super) weight: u64,
    /// Of the first, in ns.
    pub(super) time: u64,
}

/// A stream that does not stand where it is looked for first, under the number of its context.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missed {
    pub(super) stream: Stream,
    id: u64,
    home: usize,
}

/// Streams and branches in oldest slots.
#[derive(Debug)]
pub(super) struct Table {
    /// A power of two of them, at most three quarters of them used.
    slots: Vec<Slot>,
    /// Those that are used.
    used: Vec<u32>,
    /// So many are used at most.
    most: usize,
}

/// One stream, or one branch that stood in oldest slots; free where it has no hits.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Slot {
    /// The branch that led there; 0 for a branch in an oldest slot.
    from: u64,
    /// First address, or the branch in an oldest slot.
    start: u64,
    /// Address of the branch at its end; 0 for a branch in an oldest slot.
    end: u64,
    /// The number of its context.
    id: u64,
    hits: u64,
    weight: u64,
    first_time: u64,
    /// How often it was the oldest stream of its stack, so that the branch which led there stood in the oldest slot.
    oldest: u64,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// Slots at the start: 2 MiB. Fewer would be moved soon, and of more the kernel would have to give pages for a few slots each.
pub(super) const FEW: usize = 1 << 15;

impl Table {
    /// With room for so many.
    pub(super) fn new(most: u32) -> Self {
        Self {
            slots: vec![Slot::default(); FEW],
            used: Vec::new(),
            most: usize::try_from(most).unwrap_or(usize::MAX).max(1),
        }
    }

    /// Whether half of its room is used.
    pub(super) fn is_half_full(&self) -> bool {
        self.most / 2 < self.used.len()
    }

    /// Counts the stream that ends at `end`, and those at the sources of these branches, as long as each stands where it is
    /// looked for first. Returns the first one that does not; the place of the last one that did is left in `last`.
    #[inline(always)]
    pub(super) fn follow(
        &mut self,
        older: &mut slice::Iter<'_, BranchEntry>,
        end: &mut u64,
        last: &mut Option<usize>,
        (ids, each): (&Ids, Each),
    ) -> Option<Missed> {
        let slots = self.slots.as_mut_slice();
        let mask = slots.len() - 1;
        // By itself, or the compiler moves two ends of the rest.
        let mut rest = older.as_slice();
        let mut missed = None;
        while let Some((entry, older)) = rest.split_first() {
            rest = older;
            let stream = Stream {
                from: entry.from,
                start: entry.to,
                end: *end,
            };
            *end = entry.from;
            let id = of_ring(ids, stream.start);
            let place = place_of(stream, id) & mask;
            match slots.get_mut(place) {
                Some(slot) if slot.is_of(stream, id) => {
                    slot.hits += each.times;
                    slot.weight = slot.weight.wrapping_add(each.weight);
                    *last = Some(place);
                }
                _ => {
                    missed = Some(Missed {
                        stream,
                        id,
                        home: place,
                    });
                    break;
                }
            }
        }
        *older = rest.iter();
        missed
    }

    /// Adds to the count of a stream, wherever it stands. Returns the place; none if it is new and there is no room.
    pub(super) fn add(&mut self, stream: Stream, id: u64, each: Each) -> Option<usize> {
        let home = place_of(stream, id) & (self.slots.len() - 1);
        self.add_missed(Missed { stream, id, home }, each)
    }

    /// The same for one that was looked for.
    #[inline(never)]
    pub(super) fn add_missed(&mut self, missed: Missed, each: Each) -> Option<usize> {
        let Missed { stream, id, home } = missed;
        let mask = self.slots.len() - 1;
        let mut place = home;
        loop {
            let slot = self.slots.get_mut(place)?;
            if slot.hits == 0 {
                break;
            }
            if slot.is_of(stream, id) {
                slot.hits += each.times;
                slot.weight = slot.weight.wrapping_add(each.weight);
                let hits = slot.hits;
                if self.slots.get(home)?.hits < hits {
                    // The one that stands where this one belongs came first, and is seen less often. It may stand behind
                    // its own place too, as all places between are used.
                    self.slots.swap(home, place);
                    place = home;
                }
                return Some(place);
            }
            place = (place + 1) & mask;
        }
        if self.most <= self.used.len() {
            return None;
        }
        let Stream { from, start, end } = stream;
        *self.slots.get_mut(place)? = Slot {
            from,
            start,
            end,
            id,
            hits: each.times,
            weight: each.weight,
            first_time: each.time,
            oldest: 0,
        };
        self.used.push(place as u32);
        if self.slots.len() / 4 * 3 < self.used.len() {
            return self.grow(place);
        }
        Some(place)
    }

    /// Makes room for four times as many. Returns where the slot at `place` stands now.
    #[cold]
    fn grow(&mut self, place: usize) -> Option<usize> {
        let more = vec![Slot::default(); 4 * self.slots.len()];
        let mask = more.len() - 1;
        let fewer = std::mem::replace(&mut self.slots, more);
        let mut stands = None;
        for used in &mut self.used {
            let before = *used as usize;
            let slot = *fewer.get(before)?;
            let mut place_now = place_of(slot.stream(), slot.id) & mask;
            while self.slots.get(place_now)?.hits != 0 {
                place_now = (place_now + 1) & mask;
            }
            *self.slots.get_mut(place_now)? = slot;
            *used = place_now as u32;
            if before == place {
                stands = Some(place_now);
            }
        }
        stands
    }

    /// Counts the branch in an oldest slot with the stream that it led to, where that is the one at `place`.
    #[inline(always)]
    pub(super) fn add_oldest(&mut self, place: usize, from: u64, times: u64) -> bool {
        match self.slots.get_mut(place) {
            // Of one ring, as both are counted under one number then.
            Some(slot) if slot.from == from && is_kernel(slot.start) == is_kernel(from) => {
                slot.oldest += times;
                true
            }
            _ => false,
        }
    }

    /// Takes out what was counted since the last time. Some keys may stand there twice.
    pub(super) fn take(&mut self, contexts: &Contexts, counts: &mut Vec<(CountKey, Tally)>) {
        counts.reserve(self.used.len());
        for place in self.used.drain(..) {
            let Some(slot) = self.slots.get_mut(place as usize) else {
                continue;
            };
            let slot = std::mem::take(slot);
            if let Some(under) = contexts.get(slot.id) {
                slot.push(under, counts);
            }
        }
    }
}

impl Slot {
    #[inline(always)]
    const fn is_of(&self, stream: Stream, id: u64) -> bool {
        self.start == stream.start && self.from == stream.from && self.end == stream.end && self.id == id
    }

    const fn stream(&self) -> Stream {
        let Self { from, start, end, .. } = *self;
        Stream { from, start, end }
    }

    /// Adds what it counted, and where it is a stream also the branch that led there in oldest slots.
    fn push(&self, under: &Under, counts: &mut Vec<(CountKey, Tally)>) {
        let tally = Tally {
            hits: self.hits,
            weight: self.weight,
            first_time: self.first_time,
        };
        if self.id & OLDEST != 0 {
            counts.push((under.oldest(self.start), tally));
            return;
        }
        let length = self.end.wrapping_sub(self.start) as u32;
        counts.push((under.stream(self.from, self.start, length), tally));
        if self.oldest != 0 {
            let oldest = Tally {
                hits: self.oldest,
                weight: 0,
                ..tally
            };
            counts.push((under.oldest(self.from), oldest));
        }
    }
}

/// Where to look for a stream first.
#[inline(always)]
const fn place_of(stream: Stream, id: u64) -> usize {
    // Factors of 31 bits, as they stand in one instruction then: those of MurmurHash3's finalizer without their sign. Addresses
    // that differ in their lower bits have products that differ in all above.
    const SOURCE: u64 = 0x05eb_ca6b;
    const ALL: u64 = 0x42b2_ae35;
    let Stream { from, start, end } = stream;
    // Neighbours differ in their lower bits, and multiples of eight in the sum with the others move these apart.
    let ends = start.wrapping_add(end.wrapping_mul(8));
    ((ends ^ from.wrapping_mul(SOURCE) ^ id).wrapping_mul(ALL) >> 20) as usize
}
