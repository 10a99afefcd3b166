//! Counts as the collector takes them: they name a task by what the kernel knows of it, not yet a process image.

use hbbp_model::addr::Va;
use hbbp_model::snapshot::{BranchCount, EventIdx, IpCount, ProcessIdx, StreamCount};

/// What the kernel knows of the task that was hit.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TaskKey {
    /// Thread group id in our pid namespace, `u32::MAX` outside of it; 0 in the idle task.
    pub tgid: u32,
    /// `self_exec_id` of the task, truncated to 32 bits.
    pub exec_id: u32,
}

impl TaskKey {
    /// The idle task.
    pub const KERNEL: Self = Self { tgid: 0, exec_id: 0 };
}

/// A count as it was taken, before its process image is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Raw {
    /// The task that was hit.
    pub task: TaskKey,
    /// Id of the thread where threads were counted separately, else 0.
    pub tid: u32,
    /// Time in ns of the first sample of this count in its interval, or of the first sample of its task.
    pub first_time: u64,
    /// What was counted.
    pub sort: Sort,
    /// The event that sampled it.
    pub event: EventIdx,
    /// The sampled address, the first instruction of a stream, or the source of a branch.
    pub start: Va,
    /// The last instruction of a stream.
    pub end: Va,
    /// Source of the branch that led to a stream; 0 if it is unknown.
    pub source: Va,
    /// Samples or occurrences.
    pub hits: u64,
    /// Their weight: in units of the event for addresses, in parts of [`WEIGHT_ONE`] for streams.
    pub weight: u64,
}

/// What a count is of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sort {
    /// Samples of an instruction pointer.
    Ip {
        /// Whether the processor vouches for the address.
        exact: bool,
    },
    /// A stream between two neighbouring entries of a branch stack.
    Stream,
    /// A branch in the oldest slot of a branch stack.
    Oldest,
    /// The newest branch of a branch stack that was refused.
    Refused,
}

/// Weights of streams are in parts of this: 256 are one unit of the event.
pub const WEIGHT_ONE: u64 = 256;

impl Raw {
    /// As a row, of this process image.
    pub(super) const fn ip(&self, process: ProcessIdx, exact: bool) -> IpCount {
        IpCount {
            event: self.event,
            process,
            ip: self.start,
            exact,
            hits: self.hits,
            weight: self.weight,
        }
    }

    /// As a row, of this process image.
    #[expect(
        clippy::cast_precision_loss,
        reason = "weights of one interval stay far below 2^53, and what is beyond is a rounding error"
    )]
    pub(super) const fn stream(&self, process: ProcessIdx) -> StreamCount {
        StreamCount {
            event: self.event,
            process,
            start: self.start,
            end: self.end,
            source: Some(self.source),
            hits: self.hits,
            weight: self.weight as f64 / WEIGHT_ONE as f64,
            cycles: None,
        }
    }

    /// As a row, of this process image.
    pub(super) const fn oldest(&self, process: ProcessIdx) -> BranchCount {
        BranchCount {
            event: self.event,
            process,
            from: self.start,
            to: Va(0),
            hits: self.hits,
            oldest: self.hits,
            mispredicted: None,
        }
    }
}

/// A call chain as it was taken, before its process image is known.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RawChain {
    /// The task that was sampled.
    pub task: TaskKey,
    /// As in [`Raw`], all of them.
    pub tid: u32,
    /// Time in ns of the first sample of this chain since the last drain.
    pub first_time: u64,
    /// The event that sampled it.
    pub event: EventIdx,
    /// The sampled address.
    pub ip: Va,
    /// As in [`hbbp_model::snapshot::ChainCount`].
    pub frames: Vec<Va>,
    /// As in [`hbbp_model::snapshot::ChainCount`], or an arbitrary value.
    pub top: Va,
    /// Samples.
    pub hits: u64,
    /// Their weight, in units of the event.
    pub weight: u64,
}

/// What one drain returns. Counts of neighbouring addresses should be adjacent: then most are resolved like the one
/// before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawInterval<I> {
    /// Start in ns of CLOCK_MONOTONIC.
    pub start: u64,
    /// End in ns of CLOCK_MONOTONIC.
    pub end: u64,
    /// The counts, each once.
    pub counts: I,
}
