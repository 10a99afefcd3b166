//! the count map: a hash table that all CPUs fill and user space reads through a mapping.
//!
//! It is our own, in a plain array, because of what the kernel's hash map costs. A drain of that is a syscall that
//! copies entry by entry. While it runs, the kernel skips programs on perf events on that CPU without any count, so the
//! drain never samples itself. An addition is a helper call, a multiplication for each word of the key, and a look
//! at a cache line or two.
//!
//! A key has a bucket of sixteen slots, and where that is full, the bucket after it. Slots are filled in order and
//! never freed while programs use the count map, so the first free one ends the search. A slot is claimed by a
//! compare-and-exchange of its state, and filled before that says whose it is, by the hash of the key. A CPU that meets
//! one being filled does not wait for it, as it may be in an NMI: it goes on to the next, or to the bucket after, and
//! the key may then have two slots, whose sum user space takes.

use crate::key::Tally;

/// What a slot holds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Slot {
    /// [`FREE`], [`CLAIMED`] or [`state_of`] the key's hash.
    pub state: u64,
    /// What is counted: [`crate::CountKey::words`].
    pub key: [u64; 4],
    /// How often.
    pub tally: Tally,
}

impl Slot {
    /// Whether it is unclaimed.
    pub const fn is_free(&self) -> bool {
        self.state == FREE
    }
}

/// The slot is unclaimed.
pub const FREE: u64 = 0;
/// Some CPU is filling it. No key has that.
pub const CLAIMED: u64 = 1;

/// Slots of a bucket: one call of the kernel finds all of them, and the verifier walks every path through them.
pub const SLOTS: usize = 16;

/// Slots that lie together, on a cache line each.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Bucket {
    /// In the order in which they are filled.
    pub slots: [Slot; SLOTS],
}

const _: () = assert!(size_of::<Slot>() == 64 && size_of::<Bucket>() == 64 * SLOTS);

/// Buckets of a count map that has room for `counts`: half of the slots stay free then. Keys that find [`TRIED`] full buckets
/// before that are fewer than one in ten thousand, and none is when half as many are counted (seen in a test below).
pub const fn buckets_for(counts: u32) -> u32 {
    let buckets = counts.div_ceil(SLOTS as u32 / 2);
    if buckets == 0 { 1 } else { buckets }
}

/// Buckets that may hold a key: its own and those after it.
pub const TRIED: u32 = 2;

/// The state of a slot that holds a key with this hash: neither [`FREE`] nor [`CLAIMED`].
#[inline(always)]
pub const fn state_of(hash: u64) -> u64 {
    hash | 2
}

/// The hash of a key, which begins with the seed of the run.
///
/// Each word is multiplied by an odd constant that spreads its bits, and the upper half of the product is folded into the
/// lower one. The constants are those of SplitMix64 and of MurmurHash3's finalizer.
#[inline(always)]
pub const fn hash(words: &[u64; 4], seed: u64) -> u64 {
    let [address, tid, image, event] = *words;
    let mut mixed = (address ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 32 ^ tid).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 32 ^ image).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed = (mixed ^ mixed >> 32 ^ event).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed
}

/// The bucket, of this number of buckets, of a key with this hash: a multiplication replaces a division (Lemire, Fast
/// Random Integer Generation in an Interval, 2019).
#[inline(always)]
pub const fn bucket_of(hash: u64, n_buckets: u32) -> u32 {
    (((hash >> 32) * n_buckets as u64) >> 32) as u32
}

/// The bucket after another, of this number of buckets.
#[inline(always)]
pub const fn bucket_behind(bucket: u32, n_buckets: u32) -> u32 {
    if bucket + 1 < n_buckets { bucket + 1 } else { 0 }
}

#[cfg(feature = "user")]
// SAFETY: repr(C), no padding (asserted above), any bit pattern is a value.
unsafe impl aya::Pod for Bucket {}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::key::{CountKey, EventTag};
    use std::vec;

    /// Instruction pointers of a few threads of a few processes, at steps of 4 bytes.
    fn keys(n: u64) -> impl Iterator<Item = CountKey> {
        (0..n).map(|i| CountKey {
            address: 0xffff_ffff_8100_0000 + 4 * (i / 8),
            tgid: 4000 + (i / 4 % 2) as u32,
            tid: 4000 + (i / 2 % 4) as u32,
            event: EventTag::new(1, 0).in_interval((i % 2) as u32),
            ..CountKey::default()
        })
    }

    #[test]
    fn as_many_keys_as_there_is_room_for_find_a_slot() {
        for (counts, n_keys, seed) in [
            (1, 1, 0),
            (64, 32, 1),
            (1 << 14, 1 << 13, u64::MAX),
            (1 << 16, 1 << 15, 0),
            (1 << 16, 1 << 16, 0x1234_5678_9abc_def0),
        ] {
            let mut refused = 0u32;
            let n_buckets = buckets_for(counts);
            let mut filled = vec![0usize; n_buckets as usize];
            for key in keys(n_keys) {
                let mut bucket = bucket_of(hash(&key.words(), seed), n_buckets);
                let found = (0..TRIED).any(|_| {
                    let has_room = filled[bucket as usize] < SLOTS;
                    if has_room {
                        filled[bucket as usize] += 1;
                    } else {
                        bucket = bucket_behind(bucket, n_buckets);
                    }
                    has_room
                });
                refused += u32::from(!found);
            }
            let most = if n_keys == u64::from(counts) {
                counts / 10_000
            } else {
                0
            };
            assert!(refused <= most, "{refused} of {n_keys} in {counts}");
        }
    }

    #[test]
    fn a_state_says_whether_a_slot_is_taken() {
        assert!(Slot::default().is_free());
        assert!((0..4).all(|hash| ![FREE, CLAIMED].contains(&state_of(hash))));
    }

    #[test]
    fn every_word_of_a_key_counts() {
        let n = 1 << 30;
        let base = CountKey::default();
        let others = [
            CountKey { address: 1, ..base },
            CountKey { tgid: 1, ..base },
            CountKey { exec_id: 1, ..base },
            CountKey { tid: 1, ..base },
            CountKey {
                event: EventTag(1),
                ..base
            },
        ];
        let seed = 7;
        for other in others {
            let [base, other] = [base, other].map(|key| bucket_of(hash(&key.words(), seed), n));
            assert_ne!(base, other);
        }
        let seeded = [1, 2].map(|seed| bucket_of(hash(&base.words(), seed), n));
        assert_ne!(seeded[0], seeded[1]);
        assert_eq!((bucket_behind(3, 5), bucket_behind(4, 5)), (4, 0));
    }
}
