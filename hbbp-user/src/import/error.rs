//! Why a recording cannot be read, in sentences that say what to do.

use std::io;

/// Bytes that end too early or contradict themselves.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("it is cut off or contradicts itself")]
pub(super) struct Damaged;

/// Why a recording is refused.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("it cannot be read")]
    Io(#[from] io::Error),
    /// Neither perf.data nor any of the texts.
    #[error(
        "it is no recording that is known here: neither perf.data, nor the text of `perf script -F ip,brstack`, nor \
         BOLT's pre-aggregated text"
    )]
    Unknown,
    /// perf.data of version 1 (perf before 2.6.33 or so).
    #[error("it is perf.data of version 1 (PERFFILE), which perf stopped writing in 2010: record it again")]
    Version1,
    /// Written by a big-endian machine.
    #[error("it was recorded on a big-endian machine; only recordings of x86 processors can be read")]
    BigEndian,
    /// Recorded on another architecture.
    #[error("it was recorded on a machine of type {0}; only recordings of x86 processors can be read")]
    Foreign(String),
    /// `perf record --threads` writes a folder.
    #[error("it is part of a folder that `perf record --threads` wrote: record without --threads")]
    Folder,
    /// Call-stack mode.
    #[error(
        "the branch stacks of event {0} were recorded in call-stack mode (--call-graph lbr): calls that returned are \
         missing, so nothing tells what ran in between; record with -b (or -j any) instead"
    )]
    CallStack(String),
    /// Filtered branches.
    #[error(
        "the branch stacks of event {0} hold only some kinds of branches (-j with a filter): nothing tells what ran \
         in between; record with -b (or -j any) instead"
    )]
    Filtered(String),
    /// Several events whose records cannot be told apart.
    #[error(
        "it holds several events, and its samples do not say to which of them they belong: record them one by one"
    )]
    Ambiguous,
    /// No event, or none that says anything about executions.
    #[error("it holds no samples with addresses or branch stacks: record with -b, or an instructions event")]
    Empty,
    /// No branch stacks, where they are what is wanted.
    #[error("none of its samples has a branch stack: record with -b (or -j any)")]
    NoStacks,
    /// A header that contradicts the file.
    #[error("its {0} is damaged: it is cut off or contradicts itself")]
    Header(&'static str),
    /// A record that contradicts the file.
    #[error("the record at byte {offset} is damaged ({what}); nothing behind it can be trusted")]
    Record {
        /// Place in the file.
        offset: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Text that is wrong.
    #[error("line {line} is not understood: {what}")]
    Line {
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong with it.
        what: &'static str,
    },
}
