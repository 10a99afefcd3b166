//! Call chains: who called the code that a sample of time is of, as the kernel unwinds it.
//!
//! The table of chains is filled as the count map is ([`crate::count_map`]): a chain has a few slots, which are claimed
//! by a compare-and-exchange and never freed while programs use the table. It is our own, and not a map of stack
//! traces. In such a map a chain has a single slot, which another may occupy, and a syscall for each chain empties it.
//! No such map is deeper than `kernel.perf_event_max_stack` (kernel/bpf/stackmap.c, `stack_map_alloc`).

use crate::key::Tally;

/// Words of a chain as the kernel hands it over: 127 addresses, the default of `kernel.perf_event_max_stack`, of the kernel
/// and of user code together, and a mark before each of both parts.
pub const WORDS: usize = 129;

/// Room for one part of a chain, of the kernel or of user code.
pub const PART: usize = 128;

/// A chain and how often it was sampled.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// As in [`crate::count_map::Slot`].
    pub state: u64,
    /// The sampled address.
    pub ip: u64,
    /// The running process image, and the event: as in [`crate::stack::Context`], both.
    pub image: u64,
    /// See [`Self::image`].
    pub kind: u64,
    /// What is on top of the stack of user code, 0 where that cannot be read: the return address of a function without a
    /// frame.
    pub top: u64,
    /// How many words there are.
    pub n: u64,
    /// How often it was sampled.
    pub tally: Tally,
    /// What the kernel unwound, innermost first: the address that was interrupted, then return addresses. Marks say where the
    /// part of the kernel begins and that of user code (`enum perf_callchain_context`, include/uapi/linux/perf_event.h).
    pub words: [u64; WORDS],
}

const _: () = assert!(size_of::<Chain>() == 8 * 9 + 8 * WORDS);

/// Slots of a chain, in the order of the search.
pub const TRIED: u32 = 8;

/// Whether a word is a mark and no address (`PERF_CONTEXT_MAX`).
pub const fn is_mark(word: u64) -> bool {
    4095_u64.wrapping_neg() <= word
}

/// What the programs of one CPU count of chains. `runs` is the sum of the others.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ChainStats {
    /// Samples whose chain was asked for.
    pub runs: u64,
    /// Chains that were counted.
    pub counted: u64,
    /// Chains without a slot in the table.
    pub full: u64,
    /// Chains whose slots were claimed by others at the same moment.
    pub raced: u64,
    /// Samples for which the kernel has no chain.
    pub none: u64,
}

impl Chain {
    /// Whether the slot is unclaimed.
    pub const fn is_free(&self) -> bool {
        self.state == crate::count_map::FREE
    }

    /// Its addresses.
    pub fn addresses(&self) -> impl Iterator<Item = u64> {
        let n = usize::try_from(self.n).unwrap_or(WORDS).min(WORDS);
        let words = self.words.get(..n).unwrap_or(&self.words);
        words.iter().copied().filter(|word| !is_mark(*word))
    }
}

/// Mixes another word into the hash of a chain, as [`crate::count_map::hash`] does.
#[inline(always)]
pub const fn mixed(hash: u64, word: u64) -> u64 {
    (hash ^ hash >> 32 ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[cfg(feature = "user")]
mod pod {
    // SAFETY: repr(C), no padding (asserted above), any bit pattern is a value.
    unsafe impl aya::Pod for super::Chain {}
    // SAFETY: repr(C) of numbers of one size, any bit pattern is a value.
    unsafe impl aya::Pod for super::ChainStats {}
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    #[test]
    fn addresses_are_the_words_without_marks() {
        let mut chain = Chain {
            state: 2,
            ip: 5,
            image: 0,
            kind: 0,
            top: 0,
            n: 5,
            tally: Tally::default(),
            words: [9; WORDS],
        };
        let (kernel, user) = (128_u64.wrapping_neg(), 512_u64.wrapping_neg());
        chain.words[..5].copy_from_slice(&[kernel, 0xffff_ffff_8100_0000, user, 5, 6]);
        let addresses: Vec<u64> = chain.addresses().collect();
        assert_eq!(addresses, [0xffff_ffff_8100_0000, 5, 6]);
        chain.n = u64::MAX;
        assert_eq!(chain.addresses().count(), WORDS - 2);
    }
}
