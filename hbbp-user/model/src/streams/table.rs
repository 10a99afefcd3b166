//! The table of streams: how often each was seen, found by one multiplication and a look at one line of memory.
//!
//! Slots are searched in a row from the one that a hash names. Where a stream comes after a rarer one, the two are
//! swapped, so that hot streams are in the slot that is searched first ([`Table::follow`]). The hash is not a secret: a
//! process that makes streams of one hash can lengthen the search only to [`LONGEST`] slots.

use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::stream::{Refusal, Stream};

use super::owner::{Ids, OLDEST, of_ring};
use super::sums::Sums;

/// A stream that is not in its first slot, under the number of its owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missed<D> {
    pub(super) stream: Stream,
    pub(super) detail: D,
    id: u64,
    home: usize,
}

/// The branch at which the next stream ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Younger<D> {
    /// Its own address.
    from: u64,
    /// What it reports of the stream.
    detail: D,
}

impl<D> Younger<D> {
    #[inline(always)]
    pub(super) fn of<S: Sums<Detail = D>>(branch: &BranchEntry) -> Self {
        Self {
            from: branch.from,
            detail: S::detail(branch),
        }
    }
}

/// Streams and branches in oldest slots.
#[derive(Debug)]
pub(super) struct Table<S> {
    /// A power of two of them, at most three quarters of them used.
    slots: Vec<Slot<S>>,
    /// Those that are used.
    used: Vec<u32>,
    /// Most that may be used.
    capacity: usize,
    /// Whether any of them is a stream that cannot have run.
    has_impossible: bool,
}

/// One stream, or one branch from oldest slots; free where it has no hits. A line of memory where the sums take 24
/// bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Slot<S> {
    /// The branch that led there; 0 for a branch in an oldest slot.
    pub(super) from: u64,
    /// First address, or the branch in an oldest slot.
    pub(super) start: u64,
    /// Address of the branch at its end; 0 for a branch in an oldest slot.
    end: u64,
    /// The number of its owner.
    pub(super) id: u64,
    /// How often it was the oldest stream of its stack, so that the branch which led there was in the oldest slot.
    pub(super) oldest: u64,
    pub(super) sums: S,
}

/// Slots at the start: 2 MiB. Fewer would be moved soon, and of more the kernel would have to give pages for a few slots each.
pub(super) const FEW: usize = 1 << 15;

/// Most slots that a search looks at. Streams that are not chosen to collide have far fewer used slots before them in a
/// table that is three quarters full.
const LONGEST: usize = 1024;

impl<S: Sums> Table<S> {
    /// With capacity for this number of streams and branches.
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            slots: vec![Slot::default(); FEW],
            used: Vec::new(),
            capacity: usize::try_from(capacity).unwrap_or(usize::MAX).max(1),
            has_impossible: false,
        }
    }

    /// Whether half of its capacity is used.
    pub(super) fn is_half_full(&self) -> bool {
        self.capacity / 2 < self.used.len()
    }

    /// Counts the stream that ends at the younger branch, and those at the sources of these branches, as long as each
    /// is in its first slot. Returns the first one that does not, and leaves the branches after it.
    #[inline(always)]
    pub(super) fn follow(
        &mut self,
        older: &mut &[BranchEntry],
        younger: &mut Younger<S::Detail>,
        ids: &Ids,
        each: S::Each,
    ) -> Option<Missed<S::Detail>> {
        let slots = self.slots.as_mut_slice();
        let mut remaining = *older;
        // Two in one round, which spares a tenth of the time.
        let missed = loop {
            if let [first, second, later @ ..] = remaining {
                if let Some(missed) = hit(slots, first, younger, ids, each) {
                    remaining = remaining.get(1..).unwrap_or_default();
                    break Some(missed);
                }
                remaining = later;
                if let Some(missed) = hit(slots, second, younger, ids, each) {
                    break Some(missed);
                }
            } else {
                let last = remaining.first();
                remaining = &[];
                break last.and_then(|last| hit(slots, last, younger, ids, each));
            }
        };
        *older = remaining;
        missed
    }

    /// Adds to the count of a stream, wherever it is. Returns whether there was capacity.
    pub(super) fn add(&mut self, stream: Stream, id: u64, each: S::Each, detail: S::Detail) -> bool {
        let home = home_of(stream, id) & (self.slots.len() - 1);
        let missed = Missed {
            stream,
            detail,
            id,
            home,
        };
        self.add_missed(missed, each)
    }

    /// The same for one that was looked for.
    #[inline(never)]
    pub(super) fn add_missed(&mut self, missed: Missed<S::Detail>, each: S::Each) -> bool {
        let Missed {
            stream,
            detail,
            id,
            home,
        } = missed;
        let mask = self.slots.len() - 1;
        for distance in 0..LONGEST {
            let at = (home + distance) & mask;
            let Some(slot) = self.slots.get_mut(at) else {
                break;
            };
            if slot.is_free() {
                return self.begin(at, missed, each);
            }
            if slot.is_of(stream, id) {
                slot.sums.add(&each, detail);
                let hits = slot.sums.hits();
                if self.slots.get(home).is_some_and(|home| home.sums.hits() < hits) {
                    // The one in this one's slot came first, and is rarer. It may be after its own slot too, as all
                    // slots between are used.
                    self.slots.swap(home, at);
                }
                return true;
            }
        }
        false
    }

    /// Takes a free slot.
    #[inline(always)]
    fn begin(&mut self, at: usize, missed: Missed<S::Detail>, each: S::Each) -> bool {
        let Some(slot) = self.slots.get_mut(at) else {
            return false;
        };
        if self.capacity <= self.used.len() {
            return false;
        }
        let Stream { from, start, end } = missed.stream;
        *slot = Slot {
            from,
            start,
            end,
            id: missed.id,
            oldest: 0,
            sums: S::begin(&each, missed.detail),
        };
        self.has_impossible |= slot.refusal().is_some();
        self.used.push(at as u32);
        if self.slots.len() / 4 * 3 < self.used.len() {
            self.grow();
        }
        true
    }

    /// Moves to four times as many slots.
    #[cold]
    fn grow(&mut self) {
        let more = vec![Slot::default(); 4 * self.slots.len()];
        let mask = more.len() - 1;
        let fewer = std::mem::replace(&mut self.slots, more);
        for used in &mut self.used {
            let Some(slot) = fewer.get(*used as usize) else {
                continue;
            };
            let mut at = home_of(slot.stream(), slot.id) & mask;
            while let Some(free) = self.slots.get_mut(at) {
                if free.is_free() {
                    *free = *slot;
                    break;
                }
                at = (at + 1) & mask;
            }
            *used = at as u32;
        }
    }

    /// Counts the branch in an oldest slot with this stream, to which it led, where that was counted. Returns whether it was.
    #[inline(always)]
    pub(super) fn add_oldest(&mut self, stream: Stream, id: u64, times: u64) -> bool {
        let mask = self.slots.len() - 1;
        let home = home_of(stream, id) & mask;
        for distance in 0..LONGEST {
            match self.slots.get_mut((home + distance) & mask) {
                Some(slot) if !slot.is_free() => {
                    if slot.is_of(stream, id) {
                        slot.oldest = slot.oldest.saturating_add(times);
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

    /// What was counted since the last time.
    pub(super) fn used(&self) -> impl Iterator<Item = &Slot<S>> {
        self.used
            .iter()
            .filter_map(|place| self.slots.get(*place as usize))
    }

    /// Takes out what was counted since the last time.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Slot<S>> {
        self.has_impossible = false;
        let Self { slots, used, .. } = self;
        used.drain(..)
            .filter_map(|at| slots.get_mut(at as usize).map(std::mem::take))
    }
}

/// Counts the stream that ends at the younger branch if it is in its first slot, and goes on to the branch that led
/// there.
#[inline(always)]
fn hit<S: Sums>(
    slots: &mut [Slot<S>],
    entry: &BranchEntry,
    younger: &mut Younger<S::Detail>,
    ids: &Ids,
    each: S::Each,
) -> Option<Missed<S::Detail>> {
    let Younger { from: end, detail } = *younger;
    let stream = Stream {
        from: entry.from,
        start: entry.to,
        end,
    };
    *younger = Younger::of::<S>(entry);
    let id = of_ring(ids, stream.start);
    let home = home_of(stream, id) & (slots.len() - 1);
    match slots.get_mut(home) {
        Some(slot) if slot.is_of(stream, id) => {
            slot.sums.add(&each, detail);
            None
        }
        _ => Some(Missed {
            stream,
            detail,
            id,
            home,
        }),
    }
}

impl<S: Sums> Slot<S> {
    fn is_free(&self) -> bool {
        self.sums.hits() == 0
    }

    #[inline(always)]
    const fn is_of(&self, stream: Stream, id: u64) -> bool {
        self.start == stream.start && self.from == stream.from && self.end == stream.end && self.id == id
    }

    pub(super) const fn stream(&self) -> Stream {
        let Self { from, start, end, .. } = *self;
        Stream { from, start, end }
    }

    /// Why it cannot have run; `None` if it can, and for a branch in an oldest slot.
    #[inline(always)]
    pub(super) const fn refusal(&self) -> Option<Refusal> {
        if self.id & OLDEST == 0 {
            self.stream().refusal()
        } else {
            None
        }
    }
}

/// The first slot of a stream. Neighbours differ in their lower bits, which multiples of eight in the sum spread;
/// numbers of owners are spread already. Another multiplication of all does not reduce collisions.
#[inline(always)]
const fn home_of(stream: Stream, id: u64) -> usize {
    // An odd factor of 31 bits, so that it is an immediate operand: of MurmurHash3's finalizer, without its sign.
    const SPREAD: u64 = 0x05eb_ca6b;
    let Stream { from, start, end } = stream;
    let ends = start.wrapping_add(end.wrapping_mul(8));
    (ends ^ from.wrapping_mul(SPREAD) ^ id) as usize
}
