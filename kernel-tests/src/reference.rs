//! The reference file: how often every block of code ran, exactly, in the kernel and in each process.
//!
//! Written by the silicon, read by everything that is compared with it. All numbers are little-endian:
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
//!          executions             u64        times that the whole block ran
//!          n_bytes, bytes         u32, [u8]  the code as it was when it ran         x n_blocks
//! ```
//!
//! A block is a straight run of instructions as the emulator cut it, or the part of one that ran before
//! an exception or between two marks. Blocks overlap; an instruction ran as often as all blocks that
//! cover it. A block whose bytes changed is another block.
//!
//! The rule for REP: a string instruction with a REP prefix is one instruction, whatever its count. It
//! retires when control leaves it for the instruction behind it, and is a block of its own here.
//! An instruction that raised a fault did not retire; a HLT and a software interrupt did.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};

const MAGIC: &[u8; 8] = b"HBBPREF1";

/// Name of the reference file that was the `n`th to be written, from 0.
pub fn file(n: u32) -> String {
    if n == 0 { "reference".to_owned() } else { format!("reference.{n}") }
}

/// Owner of all kernel code.
pub const KERNEL: u32 = u32::MAX;

/// A run of instructions and how often it was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Thread group that ran it, or [`KERNEL`].
    pub owner: u32,
    /// Instructions in `bytes`.
    pub n_instructions: u32,
    /// Virtual address of the first one.
    pub start: u64,
    /// Times that all of them retired.
    pub executions: u64,
    /// The code.
    pub bytes: Vec<u8>,
}

/// Everything that one reference file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    /// Name of each thread group that ran in the span.
    pub processes: BTreeMap<u32, String>,
    /// Instructions retired: in user code, in the kernel.
    pub instructions: [u64; 2],
    /// Near branches taken: in user code, in the kernel.
    pub taken: [u64; 2],
    /// The counts.
    pub blocks: Vec<Block>,
}

impl Reference {
    /// Reads a file that the silicon wrote.
    ///
    /// # Errors
    /// When the file cannot be read, is not a reference file, or ends too early.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("failed to read the reference {}", path.display()))?;
        Self::parse(&bytes).with_context(|| format!("{} is not a whole reference file", path.display()))
    }

    /// Interprets the bytes of a reference file.
    ///
    /// # Errors
    /// When the magic is missing or the bytes end too early.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut rest = bytes.strip_prefix(MAGIC).context("the magic HBBPREF1 is missing")?;
        let n_processes = u32_of(&mut rest)?;
        let n_blocks = u32_of(&mut rest)?;
        let instructions = [u64_of(&mut rest)?, u64_of(&mut rest)?];
        let taken = [u64_of(&mut rest)?, u64_of(&mut rest)?];
        let mut processes = BTreeMap::new();
        for _ in 0..n_processes {
            let tgid = u32_of(&mut rest)?;
            let name = take(&mut rest, 16)?;
            let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
            processes.insert(tgid, name);
        }
        let mut blocks = Vec::new();
        for _ in 0..n_blocks {
            let owner = u32_of(&mut rest)?;
            let n_instructions = u32_of(&mut rest)?;
            let start = u64_of(&mut rest)?;
            let executions = u64_of(&mut rest)?;
            let n_bytes = u32_of(&mut rest)? as usize;
            let bytes = take(&mut rest, n_bytes)?.to_vec();
            blocks.push(Block { owner, n_instructions, start, executions, bytes });
        }
        if !rest.is_empty() {
            bail!("{} bytes follow the last block", rest.len());
        }
        Ok(Self { processes, instructions, taken, blocks })
    }

    /// The bytes of a file that [`Reference::parse`] reads back.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        put_u32(&mut out, self.processes.len() as u32);
        put_u32(&mut out, self.blocks.len() as u32);
        for number in self.instructions.iter().chain(&self.taken) {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for (tgid, name) in &self.processes {
            put_u32(&mut out, *tgid);
            let mut padded = [0; 16];
            for (to, from) in padded.iter_mut().zip(name.bytes()) {
                *to = from;
            }
            out.extend_from_slice(&padded);
        }
        for block in &self.blocks {
            put_u32(&mut out, block.owner);
            put_u32(&mut out, block.n_instructions);
            out.extend_from_slice(&block.start.to_le_bytes());
            out.extend_from_slice(&block.executions.to_le_bytes());
            put_u32(&mut out, block.bytes.len() as u32);
            out.extend_from_slice(&block.bytes);
        }
        out
    }

    /// Thread groups with this name (a process keeps its thread group when it execs).
    pub fn tgids(&self, name: &str) -> Vec<u32> {
        self.processes.iter().filter(|(_, n)| n.as_str() == name).map(|(tgid, _)| *tgid).collect()
    }

    /// The blocks of one owner.
    pub fn of(&self, owner: u32) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(move |block| block.owner == owner)
    }

    /// Instructions that one owner retired, from its blocks.
    pub fn instructions_of(&self, owner: u32) -> u64 {
        self.of(owner).map(|block| u64::from(block.n_instructions) * block.executions).sum()
    }
}

/// How often each instruction ran: address to executions, over overlapping blocks.
pub fn per_address<'a>(blocks: impl IntoIterator<Item = &'a Block>) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for block in blocks {
        for instruction in Decoder::with_ip(64, &block.bytes, block.start, DecoderOptions::NONE) {
            *counts.entry(instruction.ip()).or_insert(0) += block.executions;
        }
    }
    counts
}

/// The instruction mix: mnemonic to executions. Bytes that do not decode count under `INVALID`.
pub fn mix<'a>(blocks: impl IntoIterator<Item = &'a Block>) -> BTreeMap<String, u64> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for block in blocks {
        for instruction in Decoder::with_ip(64, &block.bytes, block.start, DecoderOptions::NONE) {
            let mnemonic: Mnemonic = instruction.mnemonic();
            *counts.entry(format!("{mnemonic:?}").to_uppercase()).or_default() += block.executions;
        }
    }
    counts
}

fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn take<'a>(rest: &mut &'a [u8], n: usize) -> Result<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(n).context("the file ends too early")?;
    *rest = tail;
    Ok(head)
}

fn u32_of(rest: &mut &[u8]) -> Result<u32> {
    Ok(u32::from_le_bytes(take(rest, 4)?.try_into()?))
}

fn u64_of(rest: &mut &[u8]) -> Result<u64> {
    Ok(u64::from_le_bytes(take(rest, 8)?.try_into()?))
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
    fn a_file_reads_back() {
        assert_eq!(Reference::parse(&sample().to_bytes()).unwrap(), sample());
    }

    #[test]
    fn a_short_file_is_refused() {
        let bytes = sample().to_bytes();
        assert!(Reference::parse(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn the_mix_weighs_by_executions() {
        let reference = sample();
        let mix = mix(reference.of(7));
        assert_eq!(mix, BTreeMap::from([("DEC".to_owned(), 10), ("JNE".to_owned(), 10)]));
        assert_eq!(per_address(&reference.blocks), BTreeMap::from([(0x1000, 10), (0x1002, 10)]));
    }
}
