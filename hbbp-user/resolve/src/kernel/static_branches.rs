//! The static branches of the kernel image: the table that the kernel itself patches them by, from live memory.
//!
//! Layout of Linux 6.1 to 6.18 (include/linux/jump_label.h, `struct jump_entry`): distances of 32 bits from the field
//! to the site and to its target. A distance of 64 bits leads from the field to the key; its two lowest bits are
//! flags. Entries of text that was freed after the boot have the site 0. The keys of tracepoints are the first but one
//! field of `struct tracepoint` (include/linux/tracepoint-defs.h). These are in a section of their own, whose symbols
//! bound them. Tables of kernel modules are not read.

use super::image_marks::ImageMarks;
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::{ModuleIdx, StaticBranch, Text};

/// Bytes of an entry, and of the most entries that are read: five times those of a distribution's kernel.
const ENTRY: usize = 16;
const MAX_TABLE: u64 = 100_000 * ENTRY as u64;
/// A tracepoint is shorter than this number of bytes; the last one ends no later.
const MAX_TRACEPOINT: u64 = 256;

/// Sites in the order of their addresses, each with whether it is that of a tracepoint.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct StaticBranches(Vec<(Va, bool)>);

impl StaticBranches {
    /// Reads the table between the marks; empty if it has no symbols or cannot be read.
    pub(super) fn read(marks: &ImageMarks, read: impl FnOnce(Va, &mut [u8]) -> bool) -> Self {
        let (Some(start), Some(end)) = (marks.jump_table, marks.jump_table_end) else {
            return Self::default();
        };
        let len = end.since(start).filter(|len| *len <= MAX_TABLE);
        let len = len.and_then(|len| usize::try_from(len).ok()).unwrap_or(0);
        let mut table = vec![0; len];
        if len == 0 || !read(start, &mut table) {
            return Self::default();
        }
        Self::parse(start, &table, marks)
    }

    fn parse(start: Va, table: &[u8], marks: &ImageMarks) -> Self {
        let entries = table
            .as_chunks::<ENTRY>()
            .0
            .iter()
            .zip((start.0..).step_by(ENTRY));
        let mut sites: Vec<(Va, bool)> = entries
            .filter_map(|(entry, at)| {
                let (site, remainder) = entry.split_first_chunk()?;
                let site = i64::from(i32::from_le_bytes(*site));
                let key = i64::from_le_bytes(*remainder.last_chunk()?) & !3;
                let key = Va(at.wrapping_add(8).wrapping_add_signed(key));
                let is_tracepoint = marks.tracepoints.is_some_and(|(first, last)| {
                    first <= key && key.0 < last.0.saturating_add(MAX_TRACEPOINT)
                });
                (site != 0).then_some((Va(at.wrapping_add_signed(site)), is_tracepoint))
            })
            .collect();
        sites.sort_unstable();
        sites.dedup_by_key(|(site, _)| *site);
        Self(sites)
    }

    /// Those in text of the kernel image, which is this module.
    pub(super) fn in_text(&self, module: ModuleIdx, text: &[Text]) -> Vec<StaticBranch> {
        let mut found: Vec<StaticBranch> = Vec::new();
        for text in text.iter().filter(|text| text.module == module) {
            let end = text.start.0.saturating_add(text.bytes.len() as u64);
            let from = self.0.partition_point(|(site, _)| site.0 < text.start.0);
            let inside = self.0.iter().skip(from).take_while(|(site, _)| site.0 < end);
            found.extend(inside.map(|(site, tracepoint)| StaticBranch {
                module,
                addr: ImageAddr(site.0),
                tracepoint: *tracepoint,
            }));
        }
        // Versions of one text range have the same sites.
        found.sort_unstable();
        found.dedup();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: Va = Va(0xffff_ffff_8280_0000);
    const TEXT: u64 = 0xffff_ffff_8100_0000;
    const KEY: u64 = 0xffff_ffff_8290_0000;

    fn entry(nth: u64, site: u64, key: u64) -> Vec<u8> {
        let at = TABLE.0 + 16 * nth;
        let site = if site == 0 { 0 } else { site.wrapping_sub(at) };
        let key = key.wrapping_sub(at + 8) | 1;
        [&site.to_le_bytes()[..4], &[0; 4], &key.to_le_bytes()].concat()
    }

    fn marks(len: u64) -> ImageMarks {
        ImageMarks {
            jump_table: Some(TABLE),
            jump_table_end: Some(Va(TABLE.0 + len)),
            tracepoints: Some((Va(KEY + 0x1000), Va(KEY + 0x1040))),
            ..ImageMarks::default()
        }
    }

    #[test]
    fn sites_have_the_kind_of_their_key() {
        let table = [
            entry(0, TEXT + 0x50, KEY + 0x1048),
            entry(1, TEXT + 0x10, KEY),
            entry(2, 0, KEY),
            entry(3, TEXT + 0x2000, KEY + 0x1008),
        ]
        .concat();
        let read = |at, bytes: &mut [u8]| {
            bytes.copy_from_slice(&table);
            at == TABLE
        };
        let branches = StaticBranches::read(&marks(table.len() as u64), read);
        let expected = [(0x10, false), (0x50, true), (0x2000, true)];
        assert_eq!(
            branches.0,
            expected.map(|(at, tracepoint)| (Va(TEXT + at), tracepoint))
        );

        let text = |module, start, len| Text {
            module: ModuleIdx(module),
            start: ImageAddr(start),
            bytes: vec![0x90; len],
            since: 0,
        };
        let texts = [
            text(0, TEXT, 0x50),
            text(0, TEXT, 0x50),
            text(1, TEXT + 0x50, 9),
            text(0, TEXT + 0x1fff, 2),
        ];
        let found = branches.in_text(ModuleIdx(0), &texts);
        let found: Vec<_> = found.iter().map(|it| (it.addr.0 - TEXT, it.tracepoint)).collect();
        assert_eq!(found, [(0x10, false), (0x2000, true)]);
    }

    #[test]
    fn a_table_that_cannot_be_is_not_read() {
        let none = StaticBranches::default();
        assert_eq!(StaticBranches::read(&ImageMarks::default(), |_, _| true), none);
        assert_eq!(
            StaticBranches::read(&marks(u64::MAX - TABLE.0), |_, _| true),
            none
        );
        assert_eq!(StaticBranches::read(&marks(32), |_, _| false), none);
    }
}
