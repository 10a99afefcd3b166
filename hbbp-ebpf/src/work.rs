//! A count in transit to the count map, as numbers that are opaque to the verifier.
//!
//! They lie in a map, and accesses are volatile: the verifier follows constants through registers and the stack, and would
//! check the code after them once for each value. A value that is loaded from a map is any number to it.

use hbbp_ebpf::chain::PART;
use hbbp_ebpf::cpu::{Cpu, WORK};
use hbbp_ebpf::{CountKey, Tally};

/// The work space of one CPU.
#[repr(C)]
pub(crate) struct Work {
    key: [Number; 4],
    weight: Number,
    first_time: Number,
    /// See [`Work::unknown`].
    number: Number,
}

const _: () = assert!(size_of::<Work>() == size_of::<[u64; WORK]>());

impl Work {
    /// The work space of a CPU. It lies with what the CPU counts, so that no other map is looked up for a sample.
    #[inline(always)]
    pub(crate) fn of(cpu: &mut Cpu) -> &mut Self {
        // SAFETY: as many numbers as these (asserted above), any of which is a value.
        unsafe { &mut *(&raw mut cpu.work).cast() }
    }

    /// Takes one sample that counts under a key.
    #[inline(always)]
    pub(crate) fn set(&mut self, key: &CountKey, weight: u64, time: u64) {
        let [address, tid, image, event] = key.words();
        self.key[0].set(address);
        self.key[1].set(tid);
        self.key[2].set(image);
        self.key[3].set(event);
        self.weight.set(weight);
        self.first_time.set(time);
    }

    /// The key of the sample.
    #[inline(always)]
    pub(crate) fn key(&self) -> [u64; 4] {
        let [address, tid, image, event] = &self.key;
        [address.get(), tid.get(), image.get(), event.get()]
    }

    /// What the sample counts.
    #[inline(always)]
    pub(crate) fn tally(&self) -> Tally {
        Tally {
            hits: 1,
            weight: self.weight.get(),
            first_time: self.first_time.get(),
        }
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

/// A chain in transit to the table.
#[repr(C)]
pub(crate) struct ChainWork {
    pub(crate) n: Number,
    pub(crate) hash: Number,
    pub(crate) number: Number,
    pub(crate) top: Number,
    /// The kernel's part, followed by that of user code.
    pub(crate) words: [u64; 2 * PART],
}
