//! The debug trace of the emulated PMU: all branches of the marked spans, and all samples.
//!
//! A span starts with the earlier branches that stacks may still contain. The trace continues while the driver
//! runs, where the reference is frozen.
//!
//! Per CPU one file of [`Entry`] and one of [`Sample`], or one of [`Stack`] alone, without a header, little-endian. A stack that the
//! guest delivered is true when it is a run of consecutive entries; a sample's eventing IP is true when
//! it is the instruction that the trace shows at the sample's count.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::layout::{Branch, MAX_DEPTH};

/// Name of a CPU's file of branches.
pub fn branch_file(cpu: usize) -> String {
    format!("branches.{cpu}")
}

/// Name of a CPU's file of samples.
pub fn sample_file(cpu: usize) -> String {
    format!("samples.{cpu}")
}

/// Name of a CPU's file of stacks.
pub fn stack_file(cpu: usize) -> String {
    format!("stacks.{cpu}")
}

/// A record as the emulated PMU wrote it, faults and all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Number of events that the record represents.
    pub period: u64,
    /// Bit i: entry i is of a path that was not taken in the end.
    pub wrong_path: u64,
    /// The entries, newest first.
    pub entries: Vec<Branch>,
}

/// A branch that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number among the recorded branches of the CPU, from 1; 0 for one that was taken while the CPU was frozen.
    pub number: u64,
    /// Instructions the CPU had executed with this branch; 0 for the branches before the span.
    pub executed: u64,
    /// From where to where.
    pub branch: Branch,
}

impl Entry {
    /// Whether it is in branch stacks.
    pub const fn is_recorded(&self) -> bool {
        self.number != 0
    }
}

/// An overflow whose record was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Events that the counter had counted at the overflow, over all the times that it was switched on.
    pub counted: u64,
    /// Instructions the CPU had executed at the overflow.
    pub executed: u64,
    /// Eventing IP of the record.
    pub ip: u64,
    /// Index of the counter.
    pub counter: u32,
    /// Thread group at the overflow.
    pub tgid: u32,
    /// Number of the newest branch.
    pub branches: u64,
}

impl Entry {
    const BYTES: usize = 32;

    /// As the file has it.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        words([self.number, self.executed, self.branch.from, self.branch.to])
    }
}

impl Sample {
    const BYTES: usize = 40;

    /// As the file has it.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let who = u64::from(self.counter) | u64::from(self.tgid) << 32;
        words([self.counted, self.executed, self.ip, who, self.branches])
    }
}

impl Stack {
    const WORDS: usize = 3 + 2 * MAX_DEPTH;

    /// As the file has it: three numbers, and room for the deepest stack.
    pub fn to_bytes(&self) -> [u8; 8 * Self::WORDS] {
        let mut numbers = [0; Self::WORDS];
        let head = [self.period, self.wrong_path, self.entries.len() as u64];
        let entries = self.entries.iter().flat_map(|entry| [entry.from, entry.to]);
        for (slot, number) in numbers.iter_mut().zip(head.into_iter().chain(entries)) {
            *slot = number;
        }
        words(numbers)
    }
}

/// The stacks of one CPU.
///
/// # Errors
/// When the file cannot be read or its last stack is cut.
pub fn read_stacks(path: &Path) -> Result<Vec<Stack>> {
    let words: Vec<[u64; Stack::WORDS]> = read_words(path)?;
    let stack = |[period, wrong_path, n, rest @ ..]: &[u64; Stack::WORDS]| Stack {
        period: *period,
        wrong_path: *wrong_path,
        entries: rest
            .chunks_exact(2)
            .take(*n as usize)
            .map(|pair| Branch {
                from: pair[0],
                to: pair[1],
            })
            .collect(),
    };
    Ok(words.iter().map(stack).collect())
}

/// The branches of one CPU.
///
/// # Errors
/// When the file cannot be read or its last entry is cut.
pub fn read_branches(path: &Path) -> Result<Vec<Entry>> {
    let words = read_words(path)?;
    Ok(words
        .iter()
        .map(|[number, executed, from, to]| Entry {
            number: *number,
            executed: *executed,
            branch: Branch { from: *from, to: *to },
        })
        .collect())
}

/// The samples of one CPU.
///
/// # Errors
/// When the file cannot be read or its last entry is cut.
pub fn read_samples(path: &Path) -> Result<Vec<Sample>> {
    let words = read_words(path)?;
    Ok(words
        .iter()
        .map(|[counted, executed, ip, who, branches]| Sample {
            counted: *counted,
            executed: *executed,
            ip: *ip,
            counter: *who as u32,
            tgid: (*who >> 32) as u32,
            branches: *branches,
        })
        .collect())
}

fn words<const N: usize, const BYTES: usize>(numbers: [u64; N]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

fn read_words<const N: usize>(path: &Path) -> Result<Vec<[u64; N]>> {
    let bytes =
        std::fs::read(path).with_context(|| format!("failed to read the trace {}", path.display()))?;
    let entries = bytes.chunks_exact(N * 8);
    if !entries.remainder().is_empty() {
        bail!(
            "the last entry of {} is cut: the disk was full or the run was killed",
            path.display()
        );
    }
    Ok(entries
        .map(|entry| {
            let mut numbers = [0; N];
            for (number, bytes) in numbers.iter_mut().zip(entry.chunks_exact(8)) {
                *number = bytes
                    .iter()
                    .rev()
                    .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            }
            numbers
        })
        .collect())
}
