//! What a branch program works on: too large for the 512 bytes of its own stack, so it lies in a map.
//!
//! The numbers that change from entry to entry lie there too, behind volatile accesses: the verifier follows constants
//! through registers and the stack and would walk the loop once for each value that a counter can have, but what is
//! loaded from a map is any number to it.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use hbbp_ebpf::MAX_DEPTH;
use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::context::Context;
use hbbp_ebpf::{CountKey, Tally};

/// Room for a stack and what stands behind it: a power of two, as an index is bounded by a mask.
pub(crate) const ROOM: usize = 2 * MAX_DEPTH;

/// The work space of one CPU.
#[repr(C)]
pub(crate) struct Work {
    /// The branch stack of the sample at hand, newest entry first, and behind the last one a [`BranchEntry::END`].
    pub(crate) stack: [BranchEntry; ROOM],
    /// What its streams are counted under.
    pub(crate) context: Context,
    /// The number of that for user code.
    pub(crate) user_id: u64,
    /// Entries kept so far.
    pub(crate) kept: Number,
    /// See [`Work::unknown`].
    pub(crate) number: Number,
    /// Where the stack is to be kept whole; no place where it is none or beyond.
    pub(crate) place: Number,
    /// Whether a context switch was met.
    pub(crate) switched: Number,
    /// Time of the sample in ns; 0 until it is asked for.
    time: Number,
    /// What left the combining table on the way: no more than the streams of a stack and its oldest branch.
    pub(crate) evicted: [Evicted; MAX_DEPTH],
    pub(crate) n_evicted: Number,
}

/// A count that left the combining table, as numbers that the verifier knows nothing about.
#[repr(C)]
pub(crate) struct Evicted {
    key: [Number; 4],
    hits: Number,
    weight: Number,
    first_time: Number,
    oldest: Number,
}

/// What an index has at most; to the verifier, who does not know how many there are.
const MASK: usize = MAX_DEPTH - 1;

impl Work {
    /// Begins with a stack.
    #[inline(always)]
    pub(crate) fn begin(&mut self) {
        self.switched.set(0);
        self.time.set(0);
        self.n_evicted.set(0);
    }

    /// The time of the sample. It is asked for once, and only where something new is counted.
    #[inline(always)]
    pub(crate) fn time(&mut self) -> u64 {
        let time = self.time.get();
        if time != 0 {
            return time;
        }
        // SAFETY: the helper takes no arguments and is safe in NMI context.
        self.time.set(unsafe { bpf_ktime_get_ns() });
        self.time.get()
    }

    #[inline(always)]
    pub(crate) fn push_evicted(&mut self, key: &CountKey, tally: &Tally, oldest: u32) {
        let n = self.n_evicted.get();
        let evicted = &mut self.evicted[n as usize & MASK];
        let [address, source, image, rest] = key.words();
        evicted.key[0].set(address);
        evicted.key[1].set(source);
        evicted.key[2].set(image);
        evicted.key[3].set(rest);
        evicted.hits.set(tally.hits);
        evicted.weight.set(tally.weight);
        evicted.first_time.set(tally.first_time);
        evicted.oldest.set(oldest.into());
        self.n_evicted.set(n + 1);
    }

    /// A number, as one that the verifier knows nothing about. It may live in a register then.
    #[inline(always)]
    pub(crate) fn unknown(&mut self, value: u64) -> u64 {
        self.number.set(value);
        self.number.get()
    }
}

impl Evicted {
    #[inline(always)]
    pub(crate) fn key(&self) -> [u64; 4] {
        let [address, source, image, rest] = &self.key;
        [address.get(), source.get(), image.get(), rest.get()]
    }

    /// In how many of its hits it was the oldest stream.
    #[inline(always)]
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest.get()
    }

    #[inline(always)]
    pub(crate) fn tally(&self) -> Tally {
        Tally {
            hits: self.hits.get(),
            weight: self.weight.get(),
            first_time: self.first_time.get(),
        }
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
