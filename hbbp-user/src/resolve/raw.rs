//! Counts as the collector takes them: they name a task by what the kernel knows of it, not yet a process image.

use crate::snapshot::{BranchCount, IpCount, StreamCount};

/// What the kernel knows of the task that was hit.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TaskKey {
    /// Thread group id in our pid namespace, `u32::MAX` outside of it; 0 for counts of the kernel that are not split by
    /// process.
    pub tgid: u32,
    /// `self_exec_id` of the task, cut to 32 bits.
    pub exec_id: u32,
}

impl TaskKey {
    /// Counts of the kernel that are not split by process.
    pub const KERNEL: Self = Self { tgid: 0, exec_id: 0 };
}

/// A count whose `process` field does not count yet: the resolver fills it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Raw<T> {
    /// The task that was hit.
    pub task: TaskKey,
    /// Time in ns of the first sample of this count in its interval, or of the first sample of its task.
    pub first_time: u64,
    /// The count.
    pub count: T,
}

/// What one drain returns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawInterval {
    /// Start in ns of CLOCK_MONOTONIC.
    pub start: u64,
    /// End in ns of CLOCK_MONOTONIC.
    pub end: u64,
    /// Samples of an instruction pointer.
    pub ips: Vec<Raw<IpCount>>,
    /// Streams between two neighbouring entries of a branch stack.
    pub streams: Vec<Raw<StreamCount>>,
    /// Branches seen in branch stacks.
    pub branches: Vec<Raw<BranchCount>>,
}
