//! What a branch program works on: too large for the 512 bytes of its own stack, so it lies in a map.
//!
//! The numbers that change from entry to entry lie there too, behind volatile accesses: the verifier follows constants
//! through registers and the stack and would walk the loop once for each value that a counter can have, but what is
//! loaded from a map is any number to it.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use hbbp_ebpf::MAX_DEPTH;
use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::combine::Slot;

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
    /// Time of the sample in ns.
    pub(crate) time: Number,
    /// The runs of streams of the stack. There is one less than entries: the last stays empty.
    pub(crate) runs: [Run; MAX_DEPTH],
    pub(crate) n_runs: Number,
    /// What left the combining table on the way: no more than the streams of a stack and its oldest branch.
    pub(crate) evicted: [Slot; MAX_DEPTH],
    pub(crate) n_evicted: Number,
}

/// Equal streams that follow each other, and the branch that leads to them.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Run {
    pub(crate) from: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) n: u64,
}

/// What an index has at most; to the verifier, who does not know how many there are.
const MASK: usize = MAX_DEPTH - 1;

impl Work {
    /// Begins with a stack.
    #[inline(always)]
    pub(crate) fn begin(&mut self) {
        self.switched.set(0);
        // SAFETY: the helper takes no arguments and is safe in NMI context.
        self.time.set(unsafe { bpf_ktime_get_ns() });
        self.n_runs.set(0);
        self.n_evicted.set(0);
    }

    /// The last run; an empty one before the first, which equals no stream.
    #[inline(always)]
    pub(crate) fn last_run(&mut self) -> &mut Run {
        let last = (self.n_runs.get() as usize).wrapping_sub(1);
        &mut self.runs[last & MASK]
    }

    #[inline(always)]
    pub(crate) fn push_run(&mut self, run: Run) {
        let n = self.n_runs.get();
        self.runs[n as usize & MASK] = run;
        self.n_runs.set(n + 1);
    }

    #[inline(always)]
    pub(crate) fn push_evicted(&mut self, slot: Slot) {
        let n = self.n_evicted.get();
        self.evicted[n as usize & MASK] = slot;
        self.n_evicted.set(n + 1);
    }

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
