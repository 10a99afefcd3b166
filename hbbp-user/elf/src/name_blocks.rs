//! Names of functions, read from the file block by block.
//!
//! A name is a few bytes long and a call that reads it costs as much as copying thousands; those of a run are in one
//! table, which is small in comparison.

use std::ffi::CStr;

use super::byte_source::{ByteSource, LONGEST_NAME, text};

/// What is read at once.
const BLOCK: u64 = 4096;
/// Blocks that are held; a table of names is rarely longer, and what is beyond is read anew.
const MOST: usize = 512;

/// Blocks of one file.
#[derive(Debug, Default)]
pub(crate) struct NameBlocks {
    /// Number and bytes of the last block that was read of those that share a slot.
    places: Vec<Option<(u64, Vec<u8>)>>,
}

impl NameBlocks {
    /// The same as [`ByteSource::read_name`] of the file, which must always be the same one.
    pub(crate) fn read_name(&mut self, source: &ByteSource, offset: u64) -> Option<String> {
        self.in_block(source, offset).or_else(|| source.read_name(offset))
    }

    /// Memory of the blocks in bytes.
    pub(crate) fn n_bytes(&self) -> usize {
        let held = self.places.iter().flatten();
        held.map(|(_, bytes)| bytes.capacity()).sum::<usize>()
            + self.places.capacity() * size_of::<Option<(u64, Vec<u8>)>>()
    }

    /// A name that ends in the block where it begins.
    fn in_block(&mut self, source: &ByteSource, offset: u64) -> Option<String> {
        let nth = offset / BLOCK;
        if self.places.is_empty() {
            self.places.resize_with(MOST, || None);
        }
        let place = self.places.get_mut(usize::try_from(nth).ok()? % MOST)?;
        if place.as_ref().is_none_or(|(number, _)| *number != nth) {
            let start = nth * BLOCK;
            let bytes = source.read(start, source.len().checked_sub(start)?.min(BLOCK))?;
            *place = Some((nth, bytes));
        }
        let (_, bytes) = place.as_ref()?;
        let from = bytes.get(usize::try_from(offset % BLOCK).ok()?..)?;
        let longest = from.get(..LONGEST_NAME).unwrap_or(from);
        Some(text(CStr::from_bytes_until_nul(longest).ok()?.to_bytes()))
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
