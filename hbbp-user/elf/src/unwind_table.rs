//! Ranges of functions from the search table of unwind information, one at a time.
//!
//! A stripped file has a function of `.eh_frame` for each that it was made of, and a run hits a hundred of them.
//! `.eh_frame_hdr` has their starts in order, each with the offset of its entry, which says how long it is. So the
//! table is kept as it is in the file, and an entry is read where its function is hit (Linux Standard Base 5.0,
//! sections 10.6.1 and 10.6.2).

use std::cell::Cell;

use hbbp_model::addr::{FileOff, ImageAddr};

use super::byte_source::ByteSource;
use super::layout::SymbolFile;
use super::unwind::{HEAD, MAX_ENTRIES, encoding, range_len, u32_at};

/// Version 1; the frame pointer as pcrel sdata4, the number as udata4, the table as datarel sdata4. Linkers write no other.
const USUAL_HEAD: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

/// The search table of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct UnwindTable {
    /// Address of `.eh_frame_hdr`: what all of it is relative to.
    pub(super) address: u64,
    /// Its offset in the file. Entries lie in the same segment, as far from it as in memory.
    pub(super) offset: u64,
    /// In the order of their starts.
    pub(super) entries: Vec<Entry>,
    /// The common entry that was read last, by its offset, and how it encodes addresses.
    common: Cell<Option<(u64, Option<u8>)>>,
}

/// A function: where it starts, and where its entry lies, from the table on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    pub(super) start: i32,
    pub(super) frame: i32,
}

impl UnwindTable {
    pub(super) const fn new(address: u64, offset: u64, entries: Vec<Entry>) -> Self {
        Self {
            address,
            offset,
            entries,
            common: Cell::new(None),
        }
    }

    /// Reads the table; `None` if a file has none, or an unusual encoding, or where it is not next to its entries.
    pub(super) fn read(own: SymbolFile<'_>) -> Option<Self> {
        let header = own.layout.eh_frame_hdr?;
        let entries = entries(&own.source.read(header.offset.0, header.len)?)?;
        let table = Self::new(header.start.0, header.offset.0, entries);
        let first = table.entries.first()?.frame;
        let beside = FileOff(table.offset.wrapping_add_signed(first.into()));
        let is_there = own.layout.file_off(ImageAddr(table.at_distance(first))) == Some(beside);
        is_there.then_some(table)
    }

    fn at_distance(&self, distance: i32) -> u64 {
        self.address.wrapping_add_signed(distance.into())
    }

    /// Number of functions that start at `at` or before.
    fn n_until(&self, at: u64) -> usize {
        self.entries
            .partition_point(|entry| self.at_distance(entry.start) <= at)
    }

    /// Where the next function after `at` starts.
    pub(super) fn next_start(&self, at: u64) -> Option<u64> {
        let entry = self.entries.get(self.n_until(at))?;
        // A file may have its table in any order.
        Some(self.at_distance(entry.start)).filter(|start| at < *start)
    }

    /// Start and length of the last function that starts at `at` or before.
    pub(super) fn read_last_until(&self, at: u64, own: &ByteSource) -> Option<(u64, u64)> {
        let entry = self.entries.get(self.n_until(at).checked_sub(1)?)?;
        let len = self.read_len(own, self.offset.wrapping_add_signed(entry.frame.into()))?;
        Some((self.at_distance(entry.start), len))
    }

    /// The length of the function whose entry lies at this offset of the file.
    fn read_len(&self, own: &ByteSource, offset: u64) -> Option<u64> {
        let head = read_head(own, offset)?;
        let back = u32_at(&head, 4).filter(|back| *back != 0)?;
        let common = offset.checked_add(4)?.checked_sub(back.into())?;
        let encoding = match self.common.get() {
            Some((at, encoding)) if at == common => encoding,
            _ => {
                let encoding = read_head(own, common).and_then(|head| encoding(&head));
                self.common.set(Some((common, encoding)));
                encoding
            }
        };
        range_len(&head, encoding?).filter(|len| 0 < *len)
    }

    /// Memory in bytes.
    pub(super) fn n_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }
}

impl Entry {
    pub(super) const fn of(bytes: [u8; 8]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self {
            start: i32::from_le_bytes([a, b, c, d]),
            frame: i32::from_le_bytes([e, f, g, h]),
        }
    }

    pub(super) const fn bytes(self) -> [u8; 8] {
        let [a, b, c, d] = self.start.to_le_bytes();
        let [e, f, g, h] = self.frame.to_le_bytes();
        [a, b, c, d, e, f, g, h]
    }
}

/// The entries of `.eh_frame_hdr`; `None` if its encoding is unusual.
fn entries(table: &[u8]) -> Option<Vec<Entry>> {
    let (head, remainder) = table.split_first_chunk::<4>()?;
    let (_frame, remainder) = remainder.split_first_chunk::<4>()?;
    let (n, remainder) = remainder.split_first_chunk::<4>()?;
    if *head != USUAL_HEAD {
        return None;
    }
    let n = usize::try_from(u32::from_le_bytes(*n)).ok()?.min(MAX_ENTRIES);
    let entries = remainder.as_chunks::<8>().0.iter().take(n);
    Some(entries.map(|bytes| Entry::of(*bytes)).collect())
}

/// The first bytes of an entry; fewer where the file ends.
fn read_head(source: &ByteSource, offset: u64) -> Option<Vec<u8>> {
    let left = source.len().checked_sub(offset)?;
    source.read(offset, left.min(HEAD as u64))
}

#[cfg(test)]
mod tests {
    use super::super::layout::read_layout;
    use super::super::unwind::read_unwind_ranges;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn number_of_entries_is_that_of_the_table() {
        let mut table = vec![1, 0x1b, 0x03, 0x3b, 9, 9, 9, 9, 2, 0, 0, 0];
        for start in [-0x1000_i32, 0x20] {
            table.extend(start.to_le_bytes());
            table.extend([7, 0, 0, 0]);
        }
        let expected = [-0x1000, 0x20].map(|start| Entry { start, frame: 7 });
        assert_eq!(entries(&table).unwrap(), expected);
        assert!(expected.iter().all(|entry| Entry::of(entry.bytes()) == *entry));
        table[8] = 0xff;
        assert_eq!(entries(&table).unwrap(), expected, "the count lies");
        table[3] = 0x0b;
        assert_eq!(entries(&table), None);
        assert_eq!(entries(&[]), None);
    }

    #[test]
    fn functions_are_those_of_all_entries() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let len = file.metadata().unwrap().len();
        let source = ByteSource::File(file, len);
        let layout = read_layout(&source).unwrap();
        let own = SymbolFile {
            source: &source,
            layout: &layout,
        };
        let table = UnwindTable::read(own).unwrap();
        let mut ranges = read_unwind_ranges(own);
        ranges.sort_unstable();
        assert!(1000 < ranges.len() && ranges.len() == table.entries.len());
        for (start, len) in ranges.iter().step_by(17) {
            for inside in [*start, start + len - 1] {
                assert_eq!(table.read_last_until(inside, &source), Some((*start, *len)));
            }
        }
        let (last, len) = *ranges.last().unwrap();
        assert_eq!(table.next_start(ranges[0].0 - 1), Some(ranges[0].0));
        assert_eq!(table.next_start(ranges[0].0), Some(ranges[1].0));
        assert_eq!(table.next_start(last), None);
        assert_eq!(table.read_last_until(last + len, &source), Some((last, len)));
        assert_eq!(table.read_last_until(ranges[0].0 - 1, &source), None);
    }

    proptest! {
        #[test]
        fn any_bytes_end(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            entries in prop::collection::vec((any::<i32>(), -20..300_i32), 0..8),
            at in any::<u64>(),
        ) {
            let entries = entries.into_iter().map(|(start, frame)| Entry { start, frame }).collect();
            let table = UnwindTable::new(0x1_0000, 0, entries);
            let source = ByteSource::Memory(bytes);
            let near = at % 0x2_0000;
            table.read_last_until(near, &source);
            prop_assert!(table.next_start(near).is_none_or(|next| near < next));
        }
    }
}
