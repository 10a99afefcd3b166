//! The contract between the kernel half and the user half of hbbp-sys.
//!
//! What both sides must agree on stands here and nowhere else: keys and values of the maps, the counters, the names
//! of programs, maps and constants.
//! Everything is `repr(C)` without padding, and a size assertion stands beside each layout: the object and its loader
//! are built from the same sources in one build, so a layout may change freely as long as both sides compile.
//! Logic of the programs that does not need the kernel is a plain function here, with unit tests on the host.
#![no_std]

pub mod key;
pub mod stat;

pub use key::{CountKey, EventTag, Tally, is_kernel};
pub use stat::EventStats;

/// Names by which user space finds what the object defines. The kernel keeps 15 characters of a program's or map's.
pub mod name {
    /// Program on the event with tag `n`: counts the instruction pointer of the sample.
    pub const ON_IP: [&str; super::MAX_EVENTS] = ["on_ip_0", "on_ip_1", "on_ip_2", "on_ip_3"];
    /// Raw tracepoint program, run by hand: copies kernel text to user space.
    pub const READ_TEXT: &str = "read_text";
    /// Array of one map: the bank that is counted in now.
    pub const BANK: &str = "BANK";
    /// One [`super::EventStats`] for each event and CPU.
    pub const EVENT_STATS: &str = "EVENT_STATS";
    /// One window of [`super::TEXT_WINDOW`] bytes, mapped by user space.
    pub const TEXT: &str = "TEXT";
    /// `u64`: offset of `self_exec_id` in the kernel's `task_struct`, 0 where it is not known.
    pub const EXEC_ID_OFFSET: &str = "EXEC_ID_OFFSET";
    /// `u32`: 1 where kernel addresses are counted for each process image, 0 where once for the system.
    pub const SPLIT_KERNEL: &str = "SPLIT_KERNEL";
}

/// How many events one run samples at the most: two, on two kinds of core.
pub const MAX_EVENTS: usize = 4;

/// Bytes of kernel text that one run of the text program copies.
pub const TEXT_WINDOW: usize = 1 << 20;
