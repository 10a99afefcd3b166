//! The reference file: exact execution counts of every block of code, in the kernel and in each process.
//!
//! Written by the emulated machine (`kernel-tests`), read by `hbbp-sys eval`.
//! All numbers are little-endian:
//!
//! ```text
//! "HBBPREF1"                      8 bytes
//! n_processes, n_blocks           u32, u32
//! instructions user, kernel       u64, u64   retired in the marked spans
//! taken branches user, kernel     u64, u64   near ones, in the marked spans
//! process: tgid, name             u32, [u8; 16] padded with zeros      x n_processes
//! block:   owner                  u32        tgid, or 0xffff_ffff for the kernel
//!          n_instructions         u32
//!          start                  u64        virtual address of the first instruction
//!          executions             u64        times that the whole block was executed
//!          n_bytes, bytes         u32, [u8]  the code as it was executed            x n_blocks
//! ```
//!
//! A block is a translation block of the emulator, or its part that was executed before an exception or between two
//! marks. Blocks overlap: an instruction was executed as often as all blocks that cover it together. A block whose
//! bytes changed is a separate block.
//!
//! A string instruction with a REP prefix is one instruction, whatever its count. It retires when
//! control passes to the next instruction, and is a block of its own here.
//! An instruction that raised a fault did not retire; a HLT and a software interrupt did.

use std::collections::BTreeMap;
use std::fmt;

const MAGIC: &[u8; 8] = b"HBBPREF1";

/// Owner of all kernel code.
pub const KERNEL: u32 = u32::MAX;

/// A straight-line run of instructions and its execution count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Thread group that executed it, or [`KERNEL`].
    pub owner: u32,
    /// Instructions in `bytes`.
    pub n_instructions: u32,
    /// Virtual address of the first one.
    pub start: u64,
    /// Number of times that all of them retired.
    pub executions: u64,
    /// The code.
    pub bytes: Vec<u8>,
}

/// The contents of a reference file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    /// Name of each thread group in the span.
    pub processes: BTreeMap<u32, String>,
    /// Instructions retired: in user code, in the kernel.
    pub instructions: [u64; 2],
    /// Near branches taken: in user code, in the kernel.
    pub taken: [u64; 2],
    /// The counts.
    pub blocks: Vec<Block>,
}

/// Why bytes are not a valid reference file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Malformed {
    /// The magic is missing.
    NoMagic,
    /// The file is truncated.
    EndsEarly,
    /// Number of bytes after the last block.
    GoesOn(usize),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMagic => write!(f, "not a reference file (no magic HBBPREF1)"),
            Self::EndsEarly => write!(f, "the reference file is truncated"),
            Self::GoesOn(n) => write!(f, "the reference file has {n} trailing bytes"),
        }
    }
}

impl std::error::Error for Malformed {}

impl Reference {
    /// Parses a reference file. Stated lengths are checked against the data before anything is allocated.
    ///
    /// # Errors
    /// When the magic is missing, the bytes end too early, or more follow the last block.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut remainder = Remainder(bytes.strip_prefix(MAGIC).ok_or(Malformed::NoMagic)?);
        let n_processes = remainder.u32()?;
        let n_blocks = remainder.u32()?;
        let instructions = [remainder.u64()?, remainder.u64()?];
        let taken = [remainder.u64()?, remainder.u64()?];
        let mut processes = BTreeMap::new();
        for _ in 0..n_processes {
            let tgid = remainder.u32()?;
            let name: [u8; 16] = remainder.array()?;
            let name = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
            processes.insert(tgid, name);
        }
        let mut blocks = Vec::new();
        for _ in 0..n_blocks {
            blocks.push(Block {
                owner: remainder.u32()?,
                n_instructions: remainder.u32()?,
                start: remainder.u64()?,
                executions: remainder.u64()?,
                bytes: remainder.sized()?,
            });
        }
        match remainder.0.len() {
            0 => Ok(Self {
                processes,
                instructions,
                taken,
                blocks,
            }),
            n => Err(Malformed::GoesOn(n)),
        }
    }

    /// The bytes of a file that [`Reference::parse`] reads back.
    pub fn to_bytes(&self) -> Vec<u8> {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
        let mut out = MAGIC.to_vec();
        out.extend(count(self.processes.len()));
        out.extend(count(self.blocks.len()));
        for number in self.instructions.iter().chain(&self.taken) {
            out.extend(number.to_le_bytes());
        }
        for (tgid, name) in &self.processes {
            out.extend(tgid.to_le_bytes());
            let mut padded = [0; 16];
            for (to, from) in padded.iter_mut().zip(name.bytes()) {
                *to = from;
            }
            out.extend(padded);
        }
        for block in &self.blocks {
            out.extend(block.owner.to_le_bytes());
            out.extend(block.n_instructions.to_le_bytes());
            out.extend(block.start.to_le_bytes());
            out.extend(block.executions.to_le_bytes());
            out.extend(count(block.bytes.len()));
            out.extend(&block.bytes);
        }
        out
    }

    /// Thread groups with this name (a process keeps its thread group when it execs).
    pub fn tgids(&self, name: &str) -> Vec<u32> {
        let named = self.processes.iter().filter(|(_, n)| n.as_str() == name);
        named.map(|(tgid, _)| *tgid).collect()
    }

    /// The blocks of one owner.
    pub fn of(&self, owner: u32) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(move |block| block.owner == owner)
    }

    /// Instructions that one owner retired, from its blocks.
    pub fn instructions_of(&self, owner: u32) -> u64 {
        let retired = |block: &Block| block.executions.saturating_mul(block.n_instructions.into());
        self.of(owner)
            .fold(0, |sum: u64, block| sum.saturating_add(retired(block)))
    }
}

/// The remainder of the file.
struct Remainder<'a>(&'a [u8]);

impl Remainder<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.0.split_first_chunk().ok_or(Malformed::EndsEarly)?;
        self.0 = tail;
        Ok(*head)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// Bytes preceded by their length.
    fn sized(&mut self) -> Result<Vec<u8>, Malformed> {
        let n = self.u32()? as usize;
        let (head, tail) = self.0.split_at_checked(n).ok_or(Malformed::EndsEarly)?;
        self.0 = tail;
        Ok(head.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Reference {
        Reference {
            processes: BTreeMap::from([(7, "loop".to_owned())]),
            instructions: [20, 0],
            taken: [9, 0],
            blocks: vec![Block {
                owner: 7,
                n_instructions: 2,
                start: 0x1000,
                executions: 10,
                // dec ecx; jne -4
                bytes: vec![0xff, 0xc9, 0x75, 0xfc],
            }],
        }
    }

    #[test]
    fn reference_file_round_trips() {
        assert_eq!(Reference::parse(&sample().to_bytes()), Ok(sample()));
        assert_eq!(
            (sample().instructions_of(7), sample().tgids("loop")),
            (20, vec![7])
        );
    }

    #[test]
    fn damaged_reference_files_are_rejected() {
        let bytes = sample().to_bytes();
        assert_eq!(Reference::parse(b"HBBPREF0"), Err(Malformed::NoMagic));
        for len in 8..bytes.len() {
            assert_eq!(Reference::parse(&bytes[..len]), Err(Malformed::EndsEarly));
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Reference::parse(&longer), Err(Malformed::GoesOn(1)));
        let mut greedy = bytes;
        greedy[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Reference::parse(&greedy), Err(Malformed::EndsEarly));
    }
}
