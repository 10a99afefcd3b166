//! What one CPU counts of its samples, and the two ends of its ring of branch stacks; user space maps it.
//!
//! The ring has one writer, the programs of its CPU, and one reader, user space. The reader owns what lies between `tail` and
//! `head`; the entry at `head` belongs to the programs, so that a stack is read right into it, and one entry of the ring
//! stays free for that. Neither end goes back: an index is their value modulo the size.

use crate::MAX_EVENTS;
use crate::stat::EventStats;

/// Numbers that the programs on eventing IPs work on.
pub const WORK: usize = 7;

/// One CPU.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    /// How the samples of each event ended.
    pub events: [EventStats; MAX_EVENTS],
    /// Stacks that were ever put into the ring. The programs write it.
    pub head: u64,
    /// How many counts it began in a count map.
    pub begun: u64,
    /// From 1 on, which of the rings and tables of branch stacks are its own; 0 where it has none. User space writes it before
    /// events run there. CPUs that never come online need no memory so.
    pub place: u64,
    /// The interval that kernel code is counted in. User space begins another when kernel text was patched: the counts before and
    /// after are separate then without a drain. All CPUs have the same one, but for the moment in which it is written.
    pub interval: u64,
    /// A bit for each process whose counts carry the [moment](crate::key::MOMENT), by its thread group id modulo 64. User space
    /// writes it.
    pub turning: u64,
    /// For the next line of cache: the reader writes there.
    pub padding: u64,
    /// Stacks that were ever read. User space writes it.
    pub tail: u64,
    /// What the programs on eventing IPs work on; nothing for user space.
    pub work: [u64; WORK],
}

const _: () = assert!(size_of::<Cpu>() == 448 && core::mem::offset_of!(Cpu, tail) == 384);

/// After this number of stacks beyond a quarter of the ring the programs wake user space again, in case that a first time failed.
pub const WAKE_AGAIN: u64 = 64;

#[cfg(feature = "user")]
// SAFETY: repr(C), no padding (asserted above), any bit pattern is a value.
unsafe impl aya::Pod for Cpu {}
