//! The exact counts that the emulated PMU left: names of its files, and what follows from their blocks.
//!
//! The format and its reader are those of `hbbp-sys eval` (crate `hbbp-reference`).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};

pub use hbbp_reference::{Block, KERNEL, Malformed, Reference};

/// Name of the reference file that was the `n`th to be written, from 0.
pub fn file(n: u32) -> String {
    if n == 0 {
        "reference".to_owned()
    } else {
        format!("reference.{n}")
    }
}

/// Reads a file that the emulated PMU wrote.
///
/// # Errors
/// When the file cannot be read, is not a reference file, or ends too early.
pub fn read(path: &Path) -> Result<Reference> {
    let bytes = fs::read(path).with_context(|| format!("failed to read the reference {}", path.display()))?;
    Reference::parse(&bytes).with_context(|| format!("{} is not a whole reference file", path.display()))
}

/// How often each instruction was executed: address to executions, over overlapping blocks.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix_is_weighted_by_executions() {
        // dec ecx; jne -4
        let bytes = vec![0xff, 0xc9, 0x75, 0xfc];
        let blocks = [Block {
            owner: 7,
            n_instructions: 2,
            start: 0x1000,
            executions: 10,
            bytes,
        }];
        assert_eq!(
            mix(&blocks),
            BTreeMap::from([("DEC".to_owned(), 10), ("JNE".to_owned(), 10)])
        );
        assert_eq!(per_address(&blocks), BTreeMap::from([(0x1000, 10), (0x1002, 10)]));
    }
}
