//! What one CPU has counted and not sent to the bank yet: streams, and whole stacks that come again and again.
//!
//! A branch stack makes up to 31 streams, and hot code makes the same ones again and again. An addition to the bank is a
//! helper call, a hash of the whole key, a search and two locked additions; an addition here is a few comparisons.
//!
//! - A loop without choices makes whole stacks that are equal. One that was seen twice is kept as it is ([`StackSlot`]) and
//!   costs a comparison for each address from then on; user space makes its streams.
//! - The streams of other stacks have a table in which each has two places ([`Slot`]). Each slot remembers where the two
//!   next older streams were found that followed it last: mostly it is one of them again, and nothing is hashed.
//! - A stream that finds both its places taken sends the one with fewer hits to the bank and takes over.
//!
//! Each CPU has its own table, and the kernel does not nest programs on perf events, so nothing here is atomic.

use crate::MAX_DEPTH;
use crate::context::Context;
use crate::key::{CountKey, EventTag, Tally, kernel_mask, source_of};

/// Slots for streams, as a power of two. 4096 slots of 64 bytes are 256 KiB for each CPU and bank: both together take what
/// perf takes for its buffers, and hot code stays in the second-level cache. More would be better for large flat programs.
pub const SLOT_BITS: u32 = 12;

/// Slots for streams.
pub const SLOTS: usize = 1 << SLOT_BITS;

/// Slots for stacks, as a power of two. A loop of so many branches has as many stacks that differ; some must share a slot
/// long before, so a stack has two places where it may stand. They are 74 KiB.
pub const STACK_SLOT_BITS: u32 = 7;

/// Slots for stacks.
pub const STACK_SLOTS: usize = 1 << STACK_SLOT_BITS;

/// 2^64 divided by the golden ratio, for Fibonacci hashing (Knuth, The Art of Computer Programming, vol. 3, section 6.4).
const PHI: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stream that has not reached the bank yet, or the branch in an oldest slot; free where it has no hits.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Slot {
    /// The branch that led there, as it stood in the stack; 0 for a branch in an oldest slot.
    pub from: u64,
    /// First address, or the branch in an oldest slot.
    pub start: u64,
    /// What it was counted under ([`Context::ids`]); 0 where the slot is free.
    pub context: u64,
    /// Length of the stream in bytes: less than [`crate::refusal::MAX_STREAM`].
    pub len: u16,
    /// Unused.
    pub padding: u16,
    /// The tag of its count.
    pub event: EventTag,
    /// How often.
    pub hits: u64,
    /// What each time weighs.
    pub unit: u64,
    /// Thread group id and exec id of its count.
    pub owner: [u32; 2],
    /// In how many of them it was the oldest stream of its stack, so that the branch which led there stood in the oldest
    /// slot. At the kernel's bound of 100 000 samples a second they would take half a day to overflow, and a drain comes
    /// every two seconds.
    pub oldest: u32,
    /// Where next older streams were found, by [`slot_of`], the last one first: hints, whatever they are.
    pub next: [u16; 2],
}

/// Source and target of an entry.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Jump {
    /// The branch.
    pub from: u64,
    /// Its target.
    pub to: u64,
}

/// A stack that was seen twice, none of whose streams was refused.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StackSlot {
    /// Newest entry first; those behind `depth` are whatever the buffer held.
    pub entries: [Jump; MAX_DEPTH],
    /// What its streams are counted under.
    pub context: Context,
    /// The number of that for user code ([`Context::ids`]); 0 where no stack is kept here.
    pub id: u64,
    /// The fingerprint of the stack that is kept here, or of the last one that had no place here.
    pub fingerprint: u64,
    /// How often it was seen since it is kept.
    pub hits: u64,
    /// When that began, in ns.
    pub first_time: u64,
    /// Number of entries.
    pub depth: u64,
    /// How many other stacks it has still to see until it gives this one up, if that was not seen again.
    pub patience: u64,
}

/// The table of one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CombineTable {
    /// The slots of streams, by [`slot_of`].
    pub slots: [Slot; SLOTS],
    /// Time of the first hit of each, in ns: it is not asked for again, and stays out of their cache lines.
    pub first_times: [u64; SLOTS],
    /// The slots of stacks, by [`stack_slots_of`].
    pub stacks: [StackSlot; STACK_SLOTS],
}

const _: () = assert!(size_of::<Slot>() == 64);
const _: () = assert!(size_of::<StackSlot>() == 16 * MAX_DEPTH + 80);
const _: () = assert!(size_of::<CombineTable>() == 72 * SLOTS + size_of::<StackSlot>() * STACK_SLOTS);

/// The slot of a stream, or of a branch in an oldest slot, whose `from` and `len` are 0. It may stand in the other one of
/// the pair as well, whose number differs in the lowest bit.
#[inline(always)]
pub const fn slot_of(from: u64, start: u64, len: u64, context: u64) -> usize {
    let mixed = (start ^ from << 20 ^ len << 40 ^ context).wrapping_mul(PHI);
    (mixed >> (64 - SLOT_BITS)) as usize
}

/// The two slots where a stack with this fingerprint may stand.
#[inline(always)]
pub const fn stack_slots_of(fingerprint: u64) -> [usize; 2] {
    [
        (fingerprint >> (64 - STACK_SLOT_BITS)) as usize,
        (fingerprint >> (64 - 2 * STACK_SLOT_BITS)) as usize & (STACK_SLOTS - 1),
    ]
}

/// Takes another address into the fingerprint of a stack. It finds a place and no more: what is counted as equal has been
/// compared.
#[inline(always)]
pub const fn fingerprint(before: u64, address: u64) -> u64 {
    (before ^ address).wrapping_mul(PHI)
}

impl Slot {
    /// Whether it is that of a stream under the context with the number `id`. There is no branch for each part, or the
    /// verifier would walk four ways from here on.
    #[inline(always)]
    pub const fn is_of(&self, from: u64, start: u64, len: u64, id: u64) -> bool {
        (self.from ^ from | self.start ^ start | self.len as u64 ^ len | self.context ^ id) == 0
    }

    /// What it stands for in the bank, where its first hit was at `first_time`.
    #[inline(always)]
    pub const fn count(&self, first_time: u64) -> (CountKey, Tally) {
        let [tgid, exec_id] = self.owner;
        let key = CountKey {
            address: self.start,
            source: source_of(self.start, self.from),
            tgid,
            exec_id,
            event: self.event,
            length: self.len as u32,
        };
        let tally = Tally {
            hits: self.hits,
            weight: self.hits.wrapping_mul(self.unit),
            first_time,
        };
        (key, tally)
    }

    /// Whether the branch that led there, if it is the one at `address`, is counted as the stream is.
    #[inline(always)]
    pub const fn is_led_by(&self, address: u64) -> bool {
        self.from == address && kernel_mask(self.from ^ self.start) == 0
    }
}

impl StackSlot {
    /// What it stands for in the bank: its streams and the branch in its oldest slot.
    pub fn counts(&self) -> impl Iterator<Item = (CountKey, Tally)> {
        let depth = usize::try_from(self.depth).unwrap_or(0);
        let entries = self.entries.get(..depth).unwrap_or(&[]);
        let streams = entries.windows(2).map(|pair| {
            let [younger, older] = pair else {
                return (CountKey::default(), 0);
            };
            let len = younger.from.wrapping_sub(older.to);
            (
                self.context.stream(older.from, older.to, len as u32),
                self.context.unit,
            )
        });
        let oldest = entries.last().map(|oldest| (self.context.oldest(oldest.from), 0));
        streams.chain(oldest).map(|(key, unit)| {
            let tally = Tally {
                hits: self.hits,
                weight: self.hits.wrapping_mul(unit),
                first_time: self.first_time,
            };
            (key, tally)
        })
    }
}

#[cfg(feature = "user")]
// SAFETY: repr(C), no padding (asserted above), any bit pattern is a value.
unsafe impl aya::Pod for CombineTable {}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: u64 = 0xffff_ffff_8100_0000;

    #[test]
    fn neighbouring_streams_find_different_slots() {
        let mut seen = [0u8; SLOTS];
        for i in 0..SLOTS as u64 {
            seen[slot_of(KERNEL, KERNEL + 16 * i, 12, 6)] += 1;
        }
        assert!(seen.iter().all(|n| *n < 8), "some slot is far too popular");
        assert_ne!(
            slot_of(0x50_0000, 0x40_0000, 3, 2),
            slot_of(0x50_0000, 0x40_0000, 9, 2)
        );
    }

    #[test]
    fn a_slot_stands_for_a_count() {
        let slot = Slot {
            from: 0x1000,
            start: KERNEL,
            len: 7,
            event: EventTag::stream(1).in_interval(3),
            hits: 5,
            unit: 10,
            owner: [0, 0],
            ..Slot::default()
        };
        let (key, tally) = slot.count(9);
        assert_eq!((key.address, key.source, key.length), (KERNEL, 0, 7));
        assert_eq!((tally.hits, tally.weight, tally.first_time), (5, 50, 9));
        assert!(
            !slot.is_led_by(0x1000),
            "the branch is user code, and counted as such"
        );
        let slot = Slot {
            from: KERNEL + 9,
            oldest: 2,
            ..slot
        };
        assert!(slot.is_led_by(KERNEL + 9) && !slot.is_led_by(KERNEL + 8));
        let key = slot.count(9).0.of_oldest();
        assert_eq!((key.address, key.source, key.length), (KERNEL + 9, 0, 0));
        assert_eq!(key.event, EventTag::oldest(1).in_interval(3));
    }

    #[test]
    fn a_kept_stack_stands_for_its_streams_and_its_oldest_branch() {
        let context = Context {
            user: [7, 1],
            kernel: [0, 0],
            event: 2,
            interval: 4,
            unit: 100,
        };
        let mut slot = StackSlot {
            context,
            hits: 3,
            depth: 3,
            ..StackSlot::default()
        };
        slot.entries[0] = Jump {
            from: 0x1020,
            to: 0x9999,
        };
        slot.entries[1] = Jump {
            from: KERNEL + 5,
            to: 0x1000,
        };
        slot.entries[2] = Jump {
            from: 0x2000,
            to: KERNEL,
        };
        let counts: [_; 3] = core::array::from_fn(|n| slot.counts().nth(n).expect("three"));
        let [(user, weighed), (kernel, _), (oldest, unweighed)] = counts;
        assert_eq!(
            (user.address, user.source, user.length),
            (0x1000, KERNEL + 5, 0x20)
        );
        assert_eq!((user.tgid, user.event.interval()), (7, 4));
        assert_eq!((kernel.address, kernel.source, kernel.length), (KERNEL, 0, 5));
        assert_eq!((kernel.tgid, kernel.event.interval()), (0, 4));
        assert_eq!(
            (oldest.address, oldest.tgid, oldest.event.is_oldest()),
            (0x2000, 7, true)
        );
        assert_eq!((weighed.hits, weighed.weight, unweighed.weight), (3, 300, 0));
        assert_eq!(slot.counts().count(), 3);
        slot.depth = 99;
        assert_eq!(slot.counts().count(), 0, "no such stack");
    }
}
