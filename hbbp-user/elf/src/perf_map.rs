//! The names that a compiler at run time gives to its functions, from /tmp/perf-PID.map.
//!
//! It only grows, so it is read from its end: the newest line of an address counts. What a newer function overwrote, even in
//! part, exists no more, and its name would be that of other code.
//! A map may have a million lines of which a run hits a hundred, so names stay bytes until they are asked for.

use std::collections::BTreeMap;
use std::ops::Range;

use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::Symbol;

use crate::byte_source::{ByteSource, text};

/// Real maps have some MiB, those of servers that compile for days some hundred. What is older has no name.
const MAX_LEN: u64 = 128 << 20;
/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;
/// A longer line is read as far as this.
const MAX_LINE: usize = 64 << 10;
/// Names take no more bytes than this.
const MAX_TEXT: usize = 32 << 20;
/// Functions beyond this number are left out, so that short lines cannot fill the memory.
pub(super) const MAX_FUNCTIONS: usize = 1 << 20;

/// Functions of one process by their start.
#[derive(Debug, Default)]
pub struct PerfMap {
    /// Their names.
    pub(super) text: Vec<u8>,
    /// Sorted by start; none overlaps another.
    pub(super) functions: Vec<NamedRange>,
    /// Whether there were older lines that were not read.
    pub(super) is_cut: bool,
}

/// A function and the offset of its name in the text.
#[derive(Clone, Debug)]
pub(super) struct NamedRange {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) name: Range<u32>,
}

impl PerfMap {
    /// Bytes of memory that it takes.
    pub fn size(&self) -> usize {
        self.text.len() + self.functions.len() * size_of::<NamedRange>()
    }

    /// Whether there were older lines that were not read, so that functions without a name may have had one.
    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The function that contains `at`.
    pub fn function_at(&self, at: ImageAddr) -> Option<Symbol> {
        let n_before = self.functions.partition_point(|f| f.start <= at.0);
        let function = self.functions.get(n_before.checked_sub(1)?)?;
        let name = self
            .text
            .get(function.name.start as usize..function.name.end as usize)?;
        (at.0 - function.start < function.len).then(|| Symbol {
            start: ImageAddr(function.start),
            len: function.len,
            name: text(name),
        })
    }

    /// The addresses around `at`, which is in no function, up to the nearest functions.
    pub fn gap_at(&self, at: ImageAddr) -> Range<ImageAddr> {
        let n_before = self.functions.partition_point(|f| f.start <= at.0);
        let before = n_before.checked_sub(1).and_then(|n| self.functions.get(n));
        let start = before.map_or(0, |f| f.start.saturating_add(f.len));
        let end = self.functions.get(n_before).map_or(u64::MAX, |f| f.start);
        ImageAddr(start.min(at.0))..ImageAddr(end)
    }
}

/// Reads a map from its end. A line is `start length name`, both numbers in hexadecimal; others are skipped, and so is a last
/// line without an end, which is still being written.
pub fn read_perf_map(file: &ByteSource) -> PerfMap {
    let mut reading = Reading::default();
    let least = file.len().saturating_sub(MAX_LEN);
    let mut end = file.len();
    // The end of the line that begins before what was read.
    let mut rest = Vec::new();
    let mut is_unfinished = true;
    while least < end && !reading.is_full() {
        let start = end.saturating_sub(PIECE).max(least);
        let Some(mut piece) = file.read(start, end - start) else {
            break;
        };
        piece.append(&mut rest);
        let mut lines = piece.rsplit(|b| *b == b'\n').peekable();
        if is_unfinished {
            lines.next();
            is_unfinished = lines.peek().is_none();
        }
        while let Some(line) = lines.next() {
            if lines.peek().is_none() && 0 < start {
                rest = line.get(..MAX_LINE).unwrap_or(line).to_vec();
            } else {
                reading.add_older(line);
            }
        }
        end = start;
    }
    reading.functions.sort_unstable_by_key(|function| function.start);
    PerfMap {
        text: reading.text,
        functions: reading.functions,
        is_cut: 0 < end,
    }
}

/// What was read so far, from the newest line on.
#[derive(Debug, Default)]
struct Reading {
    text: Vec<u8>,
    functions: Vec<NamedRange>,
    /// Addresses of all functions, named or overwritten: end by start. Neighbours are one.
    taken: BTreeMap<u64, u64>,
}

impl Reading {
    fn is_full(&self) -> bool {
        MAX_FUNCTIONS <= self.functions.len() || MAX_TEXT <= self.text.len()
    }

    /// Adds a function that is older than all before, unless one of them overwrote it.
    fn add_older(&mut self, line: &[u8]) {
        let Some((range, name)) = parse_line(line).filter(|_| !self.is_full()) else {
            return;
        };
        let name_at = u32::try_from(self.text.len());
        let name_end = u32::try_from(self.text.len() + name.len());
        if let (true, Ok(name_at), Ok(name_end)) = (self.take(&range), name_at, name_end) {
            self.text.extend_from_slice(name);
            self.functions.push(NamedRange {
                start: range.start,
                len: range.end - range.start,
                name: name_at..name_end,
            });
        }
    }

    /// Takes addresses; whether all of them were free.
    fn take(&mut self, range: &Range<u64>) -> bool {
        let (mut start, mut end) = (range.start, range.end);
        let mut is_free = true;
        while let Some((&from, &to)) = self
            .taken
            .range(..=end)
            .next_back()
            .filter(|(_, to)| start <= **to)
        {
            is_free &= to == range.start || from == range.end;
            start = start.min(from);
            end = end.max(to);
            self.taken.remove(&from);
        }
        self.taken.insert(start, end);
        is_free
    }
}

fn parse_line(line: &[u8]) -> Option<(Range<u64>, &[u8])> {
    let mut words = line.splitn(3, |b| *b == b' ');
    let mut number = || {
        let word = str::from_utf8(words.next()?).ok()?;
        u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
    };
    let (start, len) = (number()?, number()?);
    let end = start.checked_add(len)?;
    let name = words.next().filter(|_| 0 < len)?;
    Some((start..end, name.trim_ascii_end()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn map_of(text: &str) -> PerfMap {
        read_perf_map(&ByteSource::Memory(text.as_bytes().to_vec()))
    }

    fn at(map: &PerfMap, at: u64) -> Option<(u64, u64, String)> {
        let found = map.function_at(ImageAddr(at));
        found.map(|symbol| (symbol.start.0, symbol.len, symbol.name))
    }

    #[test]
    fn later_lines_count() {
        let map = map_of(
            "7f10 20 LazyCompile:~a b.js:1\n7f10 30 a, optimised\nbad\n7f80 0 empty\n0x8000 8 x\r\n9000 10 cut",
        );
        assert_eq!(at(&map, 0x7f3f), Some((0x7f10, 0x30, "a, optimised".to_owned())));
        assert_eq!(at(&map, 0x7f40), None);
        assert_eq!(at(&map, 0x7f80), None);
        assert_eq!(at(&map, 0x8007), Some((0x8000, 8, "x".to_owned())));
        assert_eq!(at(&map, 0x9000), None, "its line is still being written");
        assert!(!map.is_cut());
    }

    /// Methods that lay where a newer one is now are gone, the one below which it begins as well as those inside.
    #[test]
    fn overwritten_functions_have_no_name() {
        let map =
            map_of("1000 80 before\n1040 5 old1\n1045 5 old2\n10a0 10 after\n1040 18 hot\n1058 8 next\n");
        for inside in [0x1040, 0x1046, 0x1057] {
            assert_eq!(at(&map, inside), Some((0x1040, 0x18, "hot".to_owned())));
        }
        assert_eq!(at(&map, 0x1058), Some((0x1058, 8, "next".to_owned())));
        assert_eq!((at(&map, 0x1000), at(&map, 0x1060)), (None, None));
        assert_eq!(at(&map, 0x10a0), Some((0x10a0, 0x10, "after".to_owned())));
    }

    /// More than is read at once, and lines that cross from one piece to the next.
    #[test]
    fn long_maps_are_read_from_their_end() {
        let mut long: String = (0..60_000)
            .map(|n| format!("{:x} 10 method number {n} of many\n", 0x10_0000 + n * 16))
            .collect();
        let lines = 2 * PIECE as usize;
        assert!(lines < long.len() && long.len() < 3 * PIECE as usize);
        long.push_str("100000 8 newest\n");
        let map = map_of(&long);
        assert_eq!(map.functions.len(), 60_000);
        assert_eq!(at(&map, 0x10_0000), Some((0x10_0000, 8, "newest".to_owned())));
        for n in (1..60_000).step_by(7) {
            let name = format!("method number {n} of many");
            assert_eq!(at(&map, 0x10_0008 + n * 16).map(|(.., name)| name), Some(name));
        }
    }

    proptest! {
        /// No name but that of the last writer of each byte, and none of a function that lost a byte.
        #[test]
        fn names_are_those_of_the_code_that_is_there(
            drawn in prop::collection::vec((0u64..64, 1u64..12), 0..40),
        ) {
            let lines = drawn.iter().zip(0..).map(|((start, len), nth)| format!("{start:x} {len:x} f{nth}\n"));
            let map = map_of(&lines.collect::<String>());
            let mut writers = [None; 80];
            for ((start, len), nth) in drawn.iter().zip(0usize..) {
                (*start..start + len).for_each(|byte| writers[byte as usize] = Some(nth));
            }
            for (byte, writer) in (0..).zip(writers) {
                let is_whole = |nth: &usize| {
                    let (start, len) = drawn[*nth];
                    (start..start + len).all(|byte| writers[byte as usize] == Some(*nth))
                };
                let expected = writer.filter(is_whole).map(|nth| format!("f{nth}"));
                prop_assert_eq!(at(&map, byte).map(|(.., name)| name), expected);
            }
        }
    }
}
