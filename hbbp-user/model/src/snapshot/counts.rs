//! The rows of a snapshot that hold what was counted: eventing IPs, streams, taken branches and call chains.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::{EventIdx, ProcessIdx};
use crate::addr::Va;

/// How often an eventing IP was sampled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IpCount {
    /// The event that sampled it.
    pub event: EventIdx,
    /// The running process image; that of the kernel in its idle task, and for kernel code that was counted once for the system.
    pub process: ProcessIdx,
    /// The sampled address.
    pub ip: Va,
    /// Whether the processor marked the address as exact (`PERF_EFLAGS_EXACT`).
    pub exact: bool,
    /// Samples.
    pub hits: u64,
    /// Sum of the periods of these samples, in units of the event.
    pub weight: u64,
}

/// How often a stream was seen: straight-line execution from a branch target to the next taken branch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamCount {
    /// The event whose samples carried the branch stacks.
    pub event: EventIdx,
    /// The running process image.
    pub process: ProcessIdx,
    /// Target of the older branch: the first instruction of the stream.
    pub start: Va,
    /// Source of the younger branch: the address of the stream's last instruction.
    pub end: Va,
    /// Source of the older branch, the predecessor of the stream; 0 if it is unknown, as for kernel code that was
    /// entered from user code. Equal streams with several sources are several rows and one stream. `None` if branches
    /// were counted separately, in [`super::Interval::branches`].
    pub source: Option<Va>,
    /// Occurrences.
    pub hits: u64,
    /// Sum of period / (N-1) over the stacks of N entries that held it (paper section III.B), in units of the event. Of bursts
    /// ([`super::Event::is_of_bursts`]), the sum of period / cycles of the model.
    pub weight: f64,
    /// Sum of the cycles that the hardware gave for the younger branch; `None` if they are not known.
    pub cycles: Option<NonZeroU64>,
}

/// How often a taken branch was seen in branch stacks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BranchCount {
    /// The event whose samples carried the branch stacks.
    pub event: EventIdx,
    /// The running process image.
    pub process: ProcessIdx,
    /// Address of the branch instruction.
    pub from: Va,
    /// Its target; 0 if only sources were counted.
    pub to: Va,
    /// Occurrences in any slot.
    pub hits: u64,
    /// Occurrences in the oldest slot, where no stream can end (the paper's `entry[0]`, section III.C).
    pub oldest: u64,
    /// Occurrences that the hardware flagged as mispredicted; `None` if predictions are not known.
    pub mispredicted: Option<u64>,
}

/// How often a call chain was sampled.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChainCount {
    /// The event that sampled it, one of time.
    pub event: EventIdx,
    /// The running process image; the kernel where the chain has no user code.
    pub process: ProcessIdx,
    /// The sampled address, as in [`IpCount`].
    pub ip: Va,
    /// What the kernel unwound, innermost first: the address that was interrupted, which is `ip` but for skid, and the return
    /// addresses of those that had called, in the kernel and then in user code. The kernel unwinds its own part by ORC
    /// (arch/x86/kernel/unwind_orc.c), and user code by frame pointers (`perf_callchain_user` in arch/x86/events/core.c):
    /// where code keeps none, addresses are missing or were never return addresses.
    pub frames: Arc<[Va]>,
    /// The value on top of the user stack: the return address of a function that keeps no frame. 0 where it is not
    /// known, or is not text.
    pub top: Va,
    /// Samples.
    pub hits: u64,
    /// Sum of the periods of these samples, in units of the event.
    pub weight: u64,
}

/// What was counted between two drains.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    /// Start in ns of CLOCK_MONOTONIC.
    pub start: u64,
    /// End in ns of CLOCK_MONOTONIC.
    pub end: u64,
    /// Whether it was split from the interval before it within one drain, where kernel text was patched.
    pub continues: bool,
    /// Samples of an instruction pointer.
    pub ips: Vec<IpCount>,
    /// Streams between two neighbouring entries of a branch stack.
    pub streams: Vec<StreamCount>,
    /// Branches of branch stacks that are not known from streams: those in the oldest slot, and all where the streams
    /// have no [`StreamCount::source`]. [`super::Snapshot::taken_branches`] combines both.
    pub branches: Vec<BranchCount>,
    /// Call chains of samples that are in [`Self::ips`] as well; empty if callers were not requested.
    pub chains: Vec<ChainCount>,
    /// Samples whose branch stack was refused ([`super::Loss::StacksFull`]), at its newest branch, as far as that is known; they have no
    /// part in any estimate.
    pub refused: Vec<IpCount>,
}
