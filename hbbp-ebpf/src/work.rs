//! What a branch program works on: too large for the 512 bytes of its own stack, so it lies in a map.
//!
//! The numbers that change from entry to entry lie there too, behind volatile accesses: the verifier follows constants
//! through registers and the stack and would walk the loop once for each value that a counter can have, but what is
//! loaded from a map is any number to it.

use hbbp_ebpf::MAX_DEPTH;
use hbbp_ebpf::branch::BranchEntry;

/// The work space of one CPU.
#[repr(C)]
pub(crate) struct Work {
    /// The branch stack of the sample at hand, newest entry first.
    pub(crate) stack: [BranchEntry; MAX_DEPTH],
    /// Entries kept so far.
    pub(crate) kept: Number,
    /// See [`Work::unknown`].
    pub(crate) number: Number,
    /// Whether a context switch was met.
    pub(crate) switched: Number,
    /// Time of the sample in ns, once it was asked for.
    pub(crate) time: Number,
}

impl Work {
    /// A number, as one that the verifier knows nothing about. It may live in a register then.
    #[inline(always)]
    pub(crate) fn unknown(&mut self, value: u64) -> u64 {
        self.number.set(value);
        self.number.get()
    }
}

/// A number that the verifier knows nothing about.
#[repr(transparent)]
pub(crate) struct Number(u64);

impl Number {
    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        // SAFETY: a reference is valid for reading.
        unsafe { (&raw const self.0).read_volatile() }
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, value: u64) {
        // SAFETY: a unique reference is valid for writing.
        unsafe { (&raw mut self.0).write_volatile(value) }
    }
}
