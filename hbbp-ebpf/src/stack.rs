//! Branch stacks in transit to user space: cached ones, which recur, and all others.
//!
//! A loop without choices makes stacks that are equal. One that was seen twice is cached ([`CachedStack`]) and costs a
//! comparison for each address from then on. All other stacks go, as they are, into a ring of the CPU ([`Stack`]), and user
//! space makes their streams: native code needs a half to a third of the instructions that a program needs for that, which
//! can neither keep much in registers nor call anything.
//!
//! Each CPU has its own ring and its own cache of stacks, and the kernel does not nest programs on perf events.
//! So nothing here is atomic but the two ends of the ring ([`crate::cpu::Cpu`]).

use crate::MAX_DEPTH;
use crate::branch::BranchEntry;

/// What the streams of a stack are counted under.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Context {
    /// The running process image: thread group id below, exec id above; see [`crate::CountKey`].
    pub image: u64,
    /// The number of the event in the lowest 8 bits, the thread id where threads are counted separately, and the interval of
    /// kernel code in the upper half. Thread ids have 22 bits (`PID_MAX_LIMIT` in include/linux/threads.h).
    pub kind: u64,
    /// The period of the sample, in units of the event.
    pub period: u64,
}

/// A stack in the ring of its CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Stack {
    /// Newest entry first; those after `depth` have old contents of the ring.
    pub entries: [BranchEntry; MAX_DEPTH],
    /// What its streams are counted under.
    pub context: Context,
    /// Number of entries; those after the first empty one are none.
    pub depth: u64,
    /// Time of the sample in ns of CLOCK_MONOTONIC.
    pub time: u64,
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

/// A stack that was seen twice, and how often since then.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CachedStack {
    /// As in [`Stack`].
    pub entries: [Jump; MAX_DEPTH],
    /// As in [`Stack`].
    pub context: Context,
    /// As in [`Stack`]; 0 where no stack is cached here.
    pub depth: u64,
    /// The fingerprint of the stack that is cached here, or of the last one that was not.
    pub fingerprint: u64,
    /// How often it was seen since it is cached.
    pub hits: u64,
    /// When that began, in ns of CLOCK_MONOTONIC.
    pub first_time: u64,
    /// How many other stacks it has still to see until it gives this one up, if that was not seen again.
    pub patience: u64,
}

/// Slots for cached stacks, as a power of two. A loop of N branches has N different stacks; some share a slot long
/// before the cache is full, so that each stack has two possible slots. They take 72 KiB.
pub const CACHE_BITS: u32 = 7;

/// Slots for cached stacks.
pub const CACHE_SLOTS: usize = 1 << CACHE_BITS;

/// The cached stacks of one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CachedStacks {
    /// By [`slots_of`].
    pub slots: [CachedStack; CACHE_SLOTS],
}

const _: () = assert!(size_of::<Context>() == 24);
const _: () = assert!(size_of::<Stack>() == 24 * MAX_DEPTH + 40);
const _: () = assert!(size_of::<CachedStack>() == 16 * MAX_DEPTH + 64);
const _: () = assert!(size_of::<CachedStacks>() == size_of::<CachedStack>() * CACHE_SLOTS);

/// 2^64 divided by the golden ratio, for Fibonacci hashing (Knuth, The Art of Computer Programming, vol. 3, section 6.4).
const PHI: u64 = 0x9e37_79b9_7f4a_7c15;

/// Takes another number into the fingerprint of a stack. It finds a slot and no more: what is counted as equal has been
/// compared.
#[inline(always)]
pub const fn fingerprint(before: u64, number: u64) -> u64 {
    (before ^ number).wrapping_mul(PHI)
}

/// The two possible slots of a stack with this fingerprint.
#[inline(always)]
pub const fn slots_of(fingerprint: u64) -> [usize; 2] {
    [
        (fingerprint >> (64 - CACHE_BITS)) as usize,
        (fingerprint >> (64 - 2 * CACHE_BITS)) as usize & (CACHE_SLOTS - 1),
    ]
}

/// Bits of [`Context::kind`] that hold the event, and those with the thread id.
const EVENT_BITS: u32 = 8;
const TID: u64 = (u32::MAX as u64) >> EVENT_BITS << EVENT_BITS;

impl Context {
    /// Of these parts.
    #[inline(always)]
    pub const fn new([tgid, exec_id, tid]: [u32; 3], event: u32, interval: u32, period: u64) -> Self {
        Self {
            image: tgid as u64 | (exec_id as u64) << 32,
            kind: event as u64 | (tid as u64) << EVENT_BITS | (interval as u64) << 32,
            period,
        }
    }

    /// Thread group id, exec id and thread id.
    #[inline(always)]
    pub const fn task(&self) -> [u32; 3] {
        let tid = self.kind as u32 >> EVENT_BITS;
        [self.image as u32, (self.image >> 32) as u32, tid]
    }

    /// The same event and interval, of no task.
    #[inline(always)]
    pub const fn of_no_task(&self) -> Self {
        Self {
            image: 0,
            kind: self.kind & !TID,
            period: self.period,
        }
    }

    /// The number of the event.
    #[inline(always)]
    pub const fn event(&self) -> u32 {
        self.kind as u32 & ((1 << EVENT_BITS) - 1)
    }

    /// The interval of kernel code.
    #[inline(always)]
    pub const fn interval(&self) -> u32 {
        (self.kind >> 32) as u32
    }

    /// Whether it is the same. Parts have no branches of their own, which costs more than it saves.
    #[inline(always)]
    pub const fn is_same(&self, other: &Self) -> bool {
        (self.image ^ other.image | self.kind ^ other.kind | self.period ^ other.period) == 0
    }
}

impl CachedStack {
    /// Whether anything was ever written to it. Any number is a fingerprint, also that of a free slot.
    pub const fn is_used(&self) -> bool {
        (self.fingerprint | self.hits) != 0
    }

    /// The entries as in [`Stack`], addresses only, without the processor's flags.
    pub fn entries(&self) -> [BranchEntry; MAX_DEPTH] {
        self.entries
            .map(|Jump { from, to }| BranchEntry { from, to, flags: 0 })
    }
}

#[cfg(feature = "user")]
mod pod {
    // SAFETY: repr(C), no padding (asserted above), any bit pattern is a value.
    unsafe impl aya::Pod for super::Stack {}
    // SAFETY: as above.
    unsafe impl aya::Pod for super::CachedStacks {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_its_parts() {
        let context = Context::new([7, u32::MAX, 1 << 22], 5, 9, 1009);
        assert_eq!(context.task(), [7, u32::MAX, 1 << 22]);
        assert_eq!(context.of_no_task(), Context::new([0; 3], 5, 9, 1009));
        assert_eq!(
            (context.event(), context.interval(), context.period),
            (5, 9, 1009)
        );
        let others = [
            Context::new([8, u32::MAX, 1 << 22], 5, 9, 1009),
            Context::new([7, 1, 1 << 22], 5, 9, 1009),
            Context::new([7, u32::MAX, 1], 5, 9, 1009),
            Context::new([7, u32::MAX, 1 << 22], 4, 9, 1009),
            Context::new([7, u32::MAX, 1 << 22], 5, 8, 1009),
            Context::new([7, u32::MAX, 1 << 22], 5, 9, 1013),
        ];
        assert!(context.is_same(&context) && others.iter().all(|other| !context.is_same(other)));
    }

    #[test]
    fn stack_with_the_fingerprint_of_a_free_slot() {
        let mut place = CachedStack::default();
        assert!(!place.is_used());
        place.hits = 1;
        assert!(place.is_used());
        (place.hits, place.fingerprint) = (0, 1);
        assert!(place.is_used());
    }

    #[test]
    fn neighbouring_stacks_find_different_slots() {
        let mut seen = [0u32; CACHE_SLOTS];
        for n in 0..CACHE_SLOTS as u64 {
            let [first, second] = slots_of(fingerprint(1, 0xffff_ffff_8100_0000 + 16 * n));
            assert!(first < CACHE_SLOTS && second < CACHE_SLOTS);
            seen[first] += 1;
        }
        assert!(seen.iter().all(|n| *n < 6), "some slot is far too popular");
    }
}
