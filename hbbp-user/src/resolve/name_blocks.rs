//! Names of functions, read from the file block by block.
//!
//! A name is a few bytes long and a call that reads it costs as much as copying thousands; those of a run lie in a table
//! that is small beside it.

use std::collections::HashMap;

use super::source::{ByteSource, LONGEST_NAME, text};

/// What is read at once.
const BLOCK: u64 = 4096;
/// Blocks that are held; a table of names is rarely longer than so many, and what is beyond is read anew.
const MOST: usize = 512;

/// Blocks of one file by their numbers.
#[derive(Debug, Default)]
pub struct NameBlocks {
    blocks: HashMap<u64, Vec<u8>>,
}

impl NameBlocks {
    /// The same as [`ByteSource::read_name`] of the file, which must always be the same one.
    pub fn read_name(&mut self, source: &ByteSource, offset: u64) -> Option<String> {
        self.in_block(source, offset).or_else(|| source.read_name(offset))
    }

    /// A name that ends in the block where it begins.
    fn in_block(&mut self, source: &ByteSource, offset: u64) -> Option<String> {
        let nth = offset / BLOCK;
        if !self.blocks.contains_key(&nth) {
            let start = nth * BLOCK;
            let bytes = source.read(start, source.len().checked_sub(start)?.min(BLOCK))?;
            if MOST <= self.blocks.len() {
                self.blocks.clear();
            }
            self.blocks.insert(nth, bytes);
        }
        let behind = self
            .blocks
            .get(&nth)?
            .get(usize::try_from(offset % BLOCK).ok()?..)?;
        let end = behind.iter().take(LONGEST_NAME).position(|b| *b == 0)?;
        Some(text(behind.get(..end)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn names_are_those_that_are_read_one_by_one(
            lens in prop::collection::vec(prop_oneof![0usize..40, 1000usize..1100, 3000usize..5000], 0..12),
            asked in prop::collection::vec(0u64..20_000, 1..20),
        ) {
            let mut bytes = Vec::new();
            for (len, letter) in lens.iter().zip(b'a'..) {
                bytes.extend(std::iter::repeat_n(letter, *len));
                bytes.push(0);
            }
            bytes.pop();
            let source = ByteSource::Memory(bytes);
            let mut blocks = NameBlocks::default();
            for offset in asked {
                prop_assert_eq!(blocks.read_name(&source, offset), source.read_name(offset));
            }
        }
    }
}
