//! Why a recording cannot be read, in sentences that say what to do.

use std::io;

/// Bytes that end too early or contradict themselves.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("truncated or inconsistent")]
pub(super) struct Damaged;

/// Why a recording is refused.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("read error")]
    Io(#[from] io::Error),
    /// Neither perf.data nor any of the texts.
    #[error(
        "unknown format; expected a profile of hbbp-sys, perf.data, `perf script -F ip,brstack` output, or BOLT \
         pre-aggregated text"
    )]
    Unknown,
    /// perf.data of version 1 (perf before 2.6.33 or so).
    #[error("perf.data version 1 (PERFFILE, before 2010) is not supported: record again")]
    Version1,
    /// Written by a big-endian machine.
    #[error("recorded on a big-endian machine; only x86 recordings are supported")]
    BigEndian,
    /// Recorded on another architecture.
    #[error("recorded on {0}; only x86 recordings are supported")]
    Foreign(String),
    /// `perf record --threads` writes a directory.
    #[error(
        "part of a `perf record --threads` directory, most of whose records are in other files: name the directory"
    )]
    Part,
    /// Call-stack mode.
    #[error(
        "branch stacks of event {0} were recorded in call-stack mode (--call-graph lbr), which drops \
         returned calls: record with -b (or -j any)"
    )]
    CallStack(String),
    /// Filtered branches.
    #[error(
        "branch stacks of event {0} were recorded with a branch filter (-j), which drops branches: record \
         with -b (or -j any)"
    )]
    Filtered(String),
    /// Several events whose records cannot be distinguished.
    #[error("samples of several events cannot be distinguished (no sample ids): record one event at a time")]
    Ambiguous,
    /// No event, or none that says anything about executions.
    #[error("no samples with addresses or branch stacks: record with -b, or sample an instructions event")]
    Empty,
    /// Samples of virtual machines alone.
    #[error(
        "all {0} samples are of virtual machines, whose programs the recording does not know: record in the guest"
    )]
    OnlyGuests(u64),
    /// No branch stacks, where they are what is wanted.
    #[error("no sample has a branch stack: record with -b (or -j any)")]
    NoStacks,
    /// A header that contradicts the file.
    #[error("damaged {0}: truncated or inconsistent")]
    Header(&'static str),
    /// A record that contradicts the file.
    #[error("damaged record at byte {offset} ({what}); the rest of the file cannot be trusted")]
    Record {
        /// Offset in the file.
        offset: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Text that is wrong.
    #[error("cannot parse line {line}: {what}")]
    Line {
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong with it.
        what: &'static str,
    },
}
