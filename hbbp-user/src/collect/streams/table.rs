//! The table of streams: how often each was seen, found by one multiplication and a look at one line of memory.
//!
//! Slots are searched in a row from the one that a hash names. Where a stream stands behind another one that is seen less
//! often, the two change places, so that hot streams stand where they are looked for first ([`Table::follow`]).
//! The hash is no secret: a process that makes streams of one hash has the search end after [`LONGEST`] slots.

use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::{CountKey, Tally};

use super::context::{Ids, OLDEST, Under, Weights, of_ring};
use super::refusal::{Refusal, refusal};

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
    /// Whether any of them is a stream that cannot have run.
    has_impossible: bool,
}

/// One stream, or one branch that stood in oldest slots; free where it has no hits.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Slot {
    /// The branch that led there; 0 for a branch in an oldest slot.
    from: u64,
    /// First address, or the branch in an oldest slot.
    start: u64,
    /// Address of the branch at its end; 0 for a branch in an oldest slot.
    end: u64,
    /// The number of its context.
    pub(super) id: u64,
    pub(super) hits: u64,
    pub(super) weight: u64,
    first_time: u64,
    /// How often it was the oldest stream of its stack, so that the branch which led there stood in the oldest slot.
    oldest: u64,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// Slots at the start: 2 MiB. Fewer would be moved soon, and of more the kernel would have to give pages for a few slots each.
pub(super) const FEW: usize = 1 << 15;

/// A search ends after so many slots. Streams that nobody has made for that have far fewer used ones before them in a table
/// that is three quarters full.
const LONGEST: usize = 1024;

impl Table {
    /// With room for so many.
    pub(super) fn new(most: u32) -> Self {
        Self {
            slots: vec![Slot::default(); FEW],
            used: Vec::new(),
            most: usize::try_from(most).unwrap_or(usize::MAX).max(1),
            has_impossible: false,
        }
    }

    /// Whether half of its room is used.
    pub(super) fn is_half_full(&self) -> bool {
        self.most / 2 < self.used.len()
    }

    /// Counts the stream that ends at `end`, and those at the sources of these branches, as long as each stands where it is
    /// looked for first. Returns the first one that does not, and leaves the branches behind it.
    #[inline(always)]
    pub(super) fn follow(
        &mut self,
        older: &mut &[BranchEntry],
        end: &mut u64,
        ids: &Ids,
        each: Each,
    ) -> Option<Missed> {
        let slots = self.slots.as_mut_slice();
        let mut rest = *older;
        // Two in one round, which spares a tenth of the time.
        let missed = loop {
            if let [first, second, later @ ..] = rest {
                if let Some(missed) = hit(slots, first, end, ids, each) {
                    rest = rest.get(1..).unwrap_or_default();
                    break Some(missed);
                }
                rest = later;
                if let Some(missed) = hit(slots, second, end, ids, each) {
                    break Some(missed);
                }
            } else {
                let last = rest.first();
                rest = &[];
                break last.and_then(|last| hit(slots, last, end, ids, each));
            }
        };
        *older = rest;
        missed
    }

    /// Adds to the count of a stream, wherever it stands. Returns whether there was room.
    pub(super) fn add(&mut self, stream: Stream, id: u64, each: Each) -> bool {
        let home = place_of(stream, id) & (self.slots.len() - 1);
        self.add_missed(Missed { stream, id, home }, each)
    }

    /// The same for one that was looked for.
    #[inline(never)]
    pub(super) fn add_missed(&mut self, missed: Missed, each: Each) -> bool {
        let Missed { stream, id, home } = missed;
        let mask = self.slots.len() - 1;
        for behind in 0..LONGEST {
            let place = (home + behind) & mask;
            let Some(slot) = self.slots.get_mut(place) else {
                break;
            };
            if slot.hits == 0 {
                return self.begin(place, missed, each);
            }
            if slot.is_of(stream, id) {
                slot.add(each);
                let hits = slot.hits;
                if self.slots.get(home).is_some_and(|home| home.hits < hits) {
                    // The one that stands where this one belongs came first, and is seen less often. It may stand behind
                    // its own place too, as all places between are used.
                    self.slots.swap(home, place);
                }
                return true;
            }
        }
        false
    }

    /// Takes a free slot.
    #[inline(always)]
    fn begin(&mut self, place: usize, missed: Missed, each: Each) -> bool {
        let Some(slot) = self.slots.get_mut(place) else {
            return false;
        };
        if self.most <= self.used.len() {
            return false;
        }
        let Missed { stream, id, .. } = missed;
        let Stream { from, start, end } = stream;
        *slot = Slot {
            from,
            start,
            end,
            id,
            hits: each.times,
            weight: each.weight,
            first_time: each.time,
            oldest: 0,
        };
        self.has_impossible |= slot.refusal().is_some();
        self.used.push(place as u32);
        if self.slots.len() / 4 * 3 < self.used.len() {
            self.grow();
        }
        true
    }

    /// Makes room for four times as many.
    #[cold]
    fn grow(&mut self) {
        let more = vec![Slot::default(); 4 * self.slots.len()];
        let mask = more.len() - 1;
        let fewer = std::mem::replace(&mut self.slots, more);
        for used in &mut self.used {
            let Some(slot) = fewer.get(*used as usize) else {
                continue;
            };
            let mut place = place_of(slot.stream(), slot.id) & mask;
            while let Some(free) = self.slots.get_mut(place) {
                if free.hits == 0 {
                    *free = *slot;
                    break;
                }
                place = (place + 1) & mask;
            }
            *used = place as u32;
        }
    }

    /// Counts the branch in an oldest slot with this stream, to which it led, where that was counted. Returns whether it was.
    #[inline(always)]
    pub(super) fn add_oldest(&mut self, stream: Stream, id: u64, times: u64) -> bool {
        let mask = self.slots.len() - 1;
        let home = place_of(stream, id) & mask;
        for behind in 0..LONGEST {
            match self.slots.get_mut((home + behind) & mask) {
                Some(slot) if slot.hits != 0 => {
                    if slot.is_of(stream, id) {
                        slot.oldest += times;
                        return true;
                    }
                }
                _ => return false,
            }
        }
        false
    }

    /// Whether any stream was counted that cannot have run.
    pub(super) const fn has_impossible(&self) -> bool {
        self.has_impossible
    }

    pub(super) const fn n_used(&self) -> usize {
        self.used.len()
    }

    /// What was counted since the last time.
    pub(super) fn used(&self) -> impl Iterator<Item = &Slot> {
        self.used
            .iter()
            .filter_map(|place| self.slots.get(*place as usize))
    }

    /// Takes out what was counted since the last time.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Slot> {
        self.has_impossible = false;
        let Self { slots, used, .. } = self;
        used.drain(..)
            .filter_map(|place| slots.get_mut(place as usize).map(std::mem::take))
    }
}

/// Counts the stream that ends at `end` if it stands where it is looked for first, and moves `end` to the branch that led
/// there.
#[inline(always)]
fn hit(slots: &mut [Slot], entry: &BranchEntry, end: &mut u64, ids: &Ids, each: Each) -> Option<Missed> {
    let stream = Stream {
        from: entry.from,
        start: entry.to,
        end: *end,
    };
    *end = entry.from;
    let id = of_ring(ids, stream.start);
    let home = place_of(stream, id) & (slots.len() - 1);
    match slots.get_mut(home) {
        Some(slot) if slot.is_of(stream, id) => {
            slot.add(each);
            None
        }
        _ => Some(Missed { stream, id, home }),
    }
}

impl Slot {
    #[inline(always)]
    const fn add(&mut self, each: Each) {
        self.hits += each.times;
        self.weight = self.weight.wrapping_add(each.weight);
    }

    #[inline(always)]
    const fn is_of(&self, stream: Stream, id: u64) -> bool {
        self.start == stream.start && self.from == stream.from && self.end == stream.end && self.id == id
    }

    const fn stream(&self) -> Stream {
        let Self { from, start, end, .. } = *self;
        Stream { from, start, end }
    }

    /// Why it cannot have run; `None` where it can, and for a branch in an oldest slot.
    #[inline(always)]
    pub(super) const fn refusal(&self) -> Option<Refusal> {
        if self.id & OLDEST == 0 {
            refusal(self.start, self.end)
        } else {
            None
        }
    }

    /// Adds what it counted unless it is refused, and where it is a stream also the branch that led there in oldest slots.
    pub(super) fn push(
        &self,
        under: &Under,
        weights: &Weights,
        refusal: Option<Refusal>,
        counts: &mut Vec<(CountKey, Tally)>,
    ) {
        let tally = Tally {
            hits: self.hits,
            weight: weights.made_up(self.weight),
            first_time: self.first_time,
        };
        if self.id & OLDEST != 0 {
            counts.push((under.oldest(self.start), tally));
            return;
        }
        if refusal.is_none() {
            let length = self.end.wrapping_sub(self.start) as u32;
            counts.push((under.stream(self.from, self.start, length), tally));
        }
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

/// Where to look for a stream first. Neighbours differ in their lower bits, and multiples of eight in the sum move these
/// apart; numbers of contexts are spread already. Another multiplication of all makes no fewer collide.
#[inline(always)]
const fn place_of(stream: Stream, id: u64) -> usize {
    // An odd factor of 31 bits, as it stands in one instruction then: of MurmurHash3's finalizer, without its sign.
    const SPREAD: u64 = 0x05eb_ca6b;
    let Stream { from, start, end } = stream;
    let ends = start.wrapping_add(end.wrapping_mul(8));
    (ends ^ from.wrapping_mul(SPREAD) ^ id) as usize
}
