//! A small table in front of the shared bank: it combines equal counts of one CPU before they reach the bank.
//!
//! A branch stack makes up to 31 streams, and hot code makes the same ones again and again.
//! An addition to this table is a multiplication, a comparison and two plain additions; an addition to the shared bank
//! is a helper call, a hash of the whole key, a bucket walk and two locked additions.
//! The table is direct-mapped: a count that meets another one in its slot sends that one to the bank and takes over.
//! Each CPU has its own, and the kernel does not nest programs on perf events, so nothing here is atomic.

use crate::key::{CountKey, Tally};

/// Slots of a table, as a power of two. 1024 slots of 56 bytes are 56 KiB for each CPU and bank, which stays in the
/// second-level cache.
pub const SLOT_BITS: u32 = 10;

/// Slots of a table.
pub const SLOTS: usize = 1 << SLOT_BITS;

/// A count that has not reached the bank yet; free where it has no hits.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Slot {
    /// What is counted.
    pub key: CountKey,
    /// How often.
    pub tally: Tally,
}

/// The table of one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CombineTable {
    /// The slots, by [`slot_of`].
    pub slots: [Slot; SLOTS],
}

const _: () = assert!(size_of::<Slot>() == 56 && size_of::<CombineTable>() == 56 * SLOTS);

/// The slot of a key: Fibonacci hashing (Knuth, The Art of Computer Programming, vol. 3, section 6.4) of what differs
/// most between streams. Keys that differ in event or process image alone share a slot, which costs an eviction now
/// and then and saves hashing them each time.
#[inline(always)]
pub const fn slot_of(key: &CountKey) -> usize {
    /// 2^64 divided by the golden ratio.
    const PHI: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (key.address ^ key.source << 20 ^ (key.length as u64) << 40).wrapping_mul(PHI);
    (mixed >> (64 - SLOT_BITS)) as usize
}

impl Slot {
    /// Whether it holds this key, so that a count can be added in place. A free slot has no key of a sample, which are not
    /// all zeros. There is no branch for each word, or the verifier would walk four ways from here on.
    #[inline(always)]
    pub const fn holds(&self, key: &CountKey) -> bool {
        let [address, source, task, rest] = self.key.words();
        let wanted = key.words();
        (address ^ wanted[0] | source ^ wanted[1] | task ^ wanted[2] | rest ^ wanted[3]) == 0
    }

    /// Takes over the slot; returns what it held, which is nothing if it had no hits.
    #[inline(always)]
    pub const fn replace(&mut self, key: &CountKey, tally: Tally) -> Self {
        let evicted = *self;
        self.key = *key;
        self.tally = tally;
        evicted
    }
}

#[cfg(feature = "user")]
// SAFETY: repr(C), no padding (asserted above), any bit pattern is a value.
unsafe impl aya::Pod for CombineTable {}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(address: u64, length: u32) -> CountKey {
        CountKey {
            address,
            length,
            ..CountKey::default()
        }
    }

    fn tally(hits: u64) -> Tally {
        Tally {
            hits,
            weight: hits * 10,
            first_time: 7,
        }
    }

    #[test]
    fn a_slot_hands_out_what_it_held() {
        let mut slot = Slot::default();
        assert!(!slot.holds(&key(1, 2)), "a free slot holds nothing");
        assert_eq!(slot.replace(&key(1, 2), tally(3)).tally.hits, 0);
        assert!(slot.holds(&key(1, 2)) && !slot.holds(&key(1, 3)));
        let evicted = slot.replace(&key(9, 2), tally(1));
        assert_eq!((evicted.key, evicted.tally), (key(1, 2), tally(3)));
    }

    #[test]
    fn neighbouring_streams_find_different_slots() {
        let mut seen = [0u8; SLOTS];
        for i in 0..SLOTS as u64 {
            let slot = slot_of(&key(0xffff_ffff_8100_0000 + 16 * i, 12));
            seen[slot] += 1;
        }
        assert!(seen.iter().all(|n| *n < 8), "some slot is far too popular");
        assert_ne!(slot_of(&key(0x40_0000, 3)), slot_of(&key(0x40_0000, 9)));
    }
}
