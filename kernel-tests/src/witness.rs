//! What the witness saw: samples as an eBPF program got them, written in the guest and read on the host.
//!
//! The witness (`src/bin/guest-witness.rs`) leaves `/out/samples`, [`Seen::BYTES`] for each sample in the order of
//! their arrival, and `/out/witness`, the number of runs of its program.

use anyhow::{Result, bail};

use crate::layout::{Branch, MAX_DEPTH};

/// One run of the eBPF program. The fields lie in the map's value in this order, eight bytes each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `ctx->regs.ip`.
    pub ip: u64,
    /// `ctx->regs.flags`.
    pub flags: u64,
    /// `ctx->sample_period`.
    pub period: u64,
    /// Thread group of the current task.
    pub tgid: u32,
    /// The current task.
    pub pid: u32,
    /// CPU of the sample.
    pub cpu: u32,
    /// [`crate::layout::EVENT_INSTRUCTIONS`] or [`crate::layout::EVENT_TAKEN`].
    pub event: u32,
    /// What `bpf_read_branch_records` returned: bytes, or a negative error number.
    pub result: i64,
    /// The entries it read, newest first.
    pub stack: Vec<Branch>,
    /// The third word of each entry: `struct perf_branch_entry`'s bit fields.
    pub details: Vec<u64>,
}

/// The `spec` field of an entry's details: 0 unknown, 1 `PERF_BR_SPEC_WRONG_PATH`.
pub fn spec(details: u64) -> u64 {
    // After mispred, predicted, in_tx, abort (1 bit each), cycles (16) and type (4).
    details >> 24 & 3
}

/// `regs.flags` of a sample whose IP is exact (`PERF_EFLAGS_EXACT`).
pub const EFLAGS_EXACT: u64 = 1 << 3;

impl Seen {
    /// Bytes before the stack.
    pub const HEADER: usize = 48;
    /// A `struct perf_branch_entry`.
    pub const ENTRY: usize = 24;
    /// A whole value.
    pub const BYTES: usize = Self::HEADER + MAX_DEPTH * Self::ENTRY;

    /// Interprets the file of samples.
    ///
    /// # Errors
    /// When its last sample is cut.
    pub fn parse(bytes: &[u8]) -> Result<Vec<Self>> {
        let samples = bytes.chunks_exact(Self::BYTES);
        if !samples.remainder().is_empty() {
            bail!("the witness' last sample is cut");
        }
        Ok(samples.map(Self::of).collect())
    }

    fn of(bytes: &[u8]) -> Self {
        let word = |at: usize| {
            let word = bytes.get(at..at + 8).unwrap_or_default();
            word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let result = word(40).cast_signed();
        let entries = usize::try_from(result).unwrap_or(0) / Self::ENTRY;
        let entry = |index: usize| {
            let at = Self::HEADER + index * Self::ENTRY;
            Branch {
                from: word(at),
                to: word(at + 8),
            }
        };
        Self {
            ip: word(0),
            flags: word(8),
            period: word(16),
            tgid: (word(24) >> 32) as u32,
            pid: word(24) as u32,
            cpu: word(32) as u32,
            event: (word(32) >> 32) as u32,
            result,
            stack: (0..entries).map(entry).collect(),
            details: (0..entries)
                .map(|index| word(Self::HEADER + index * Self::ENTRY + 16))
                .collect(),
        }
    }
}
