//! The names that a compiler at run time gives to its functions, from /tmp/perf-PID.map, or from a [jitdump](super::jit_dump).
//!
//! Such a file only grows, so it is read from its end: the newest line of an address counts. What a newer function overwrote, even in
//! part, exists no more, and its name would be that of other code.
//! A map may have a million lines of which a run hits a hundred, so names stay in the file until they are asked for.

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::ops::Range;

use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::Symbol;

use crate::byte_source::{ByteSource, text};
use crate::jit_dump::{DumpedFunction, JitDump, is_jit_dump, name_at, read_jit_dump};

/// Real maps have some MiB, those of servers that compile for days some hundred. What is older has no name.
const MAX_LEN: u64 = 128 << 20;
/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;
/// A longer line is read as far as this.
const MAX_LINE: u64 = 64 << 10;
/// Few lines are longer than this.
const SHORT_LINE: u64 = 512;
/// Functions beyond this number are left out, so that short lines cannot fill the memory.
pub(super) const MAX_FUNCTIONS: usize = 1 << 20;

/// Functions of one process by their start.
#[derive(Debug, Default)]
pub struct PerfMap {
    /// Sorted by start; none overlaps another.
    pub(super) functions: Vec<Line>,
    /// Where the names are.
    pub(super) format: NameFormat,
    /// Whether there were older lines that were not read.
    pub(super) is_cut: bool,
    /// Functions that were put where others had been, by their start: when, in ns of CLOCK_MONOTONIC. A perf map does not say.
    pub(super) replacing: BTreeMap<u64, u64>,
}

/// What names are in.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum NameFormat {
    /// The lines of a perf map.
    #[default]
    Lines,
    /// The records of a jitdump.
    Records,
}

/// A function, and the offset of its line or record in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) offset: u64,
}

impl PerfMap {
    /// Bytes of memory that it takes.
    pub fn size(&self) -> usize {
        self.functions.len() * size_of::<Line>()
    }

    /// Whether there were older lines that were not read, so that functions without a name may have had one.
    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The function that contains `at`, with its name from the file that this was read from; `None` where the line is not
    /// there any more, and where the function was put over others at `since` or later, in ns of CLOCK_MONOTONIC.
    pub fn function_at(&self, at: ImageAddr, file: &ByteSource, since: u64) -> Option<Symbol> {
        let n_before = self.functions.partition_point(|f| f.start <= at.0);
        let function = self.functions.get(n_before.checked_sub(1)?)?;
        let name = || match self.format {
            NameFormat::Lines => {
                let line = line_at(function.offset, file)?;
                let (range, name) = parse_line(&line)?;
                let is_same = range.start == function.start && range.end - range.start == function.len;
                is_same.then(|| text(name))
            }
            NameFormat::Records => name_at(function.offset, function.len, file),
        };
        let replaced = self.replacing.get(&function.start);
        let is_inside = at.0 - function.start < function.len && replaced.is_none_or(|time| *time < since);
        Some(Symbol {
            start: ImageAddr(function.start),
            len: function.len,
            name: is_inside.then(name)??,
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

/// The line at an offset, as far as lines are read.
fn line_at(offset: u64, file: &ByteSource) -> Option<Vec<u8>> {
    let left = file.len().checked_sub(offset)?;
    let read = |most: u64| {
        let mut line = file.read(offset, left.min(most))?;
        let end = line.iter().position(|b| *b == b'\n');
        line.truncate(end.unwrap_or(line.len()));
        (end.is_some() || most == MAX_LINE).then_some(line)
    };
    read(SHORT_LINE).or_else(|| read(MAX_LINE))
}

/// Reads the functions of a jitdump as they are now: the newest one of an address counts.
fn read_newest(file: &ByteSource) -> PerfMap {
    let dump = read_jit_dump(file);
    let range = |function: &DumpedFunction| function.address..function.address.saturating_add(function.len);
    let mut older = Reading::default();
    let mut replacing = BTreeMap::new();
    for function in &dump.functions {
        if !older.take(&range(function)) {
            // No time is known to be earlier than one of another clock.
            let time = if dump.has_times { function.time } else { u64::MAX };
            replacing.insert(function.address, time);
        }
    }
    let mut reading = Reading::default();
    for function in dump.functions.iter().rev() {
        reading.add(range(function), function.record);
    }
    // The newest functions are those that are missing, and they may have overwritten others.
    if dump.is_cut {
        reading.functions.clear();
    }
    PerfMap {
        replacing,
        ..reading.map(NameFormat::Records, dump.is_cut)
    }
}

/// Reads a perf map or a jitdump.
pub(crate) fn read_compiled(file: &ByteSource) -> PerfMap {
    if is_jit_dump(file) {
        read_newest(file)
    } else {
        read_perf_map(file)
    }
}

/// The functions of a jitdump by the offsets of their code, in the file with their names.
pub fn by_code(dump: &JitDump) -> PerfMap {
    let mut reading = Reading::default();
    for function in &dump.functions {
        reading.add(
            function.code..function.code.saturating_add(function.len),
            function.record,
        );
    }
    reading.map(NameFormat::Records, false)
}

/// Reads a map from its end. A line is `start length name`, both numbers in hexadecimal; others are skipped, and so is a last
/// line without an end, which is still being written.
pub fn read_perf_map(file: &ByteSource) -> PerfMap {
    let mut reading = Reading::default();
    let least = file.len().saturating_sub(MAX_LEN);
    let mut end = file.len();
    let mut is_unfinished = true;
    while least < end && reading.functions.len() < MAX_FUNCTIONS {
        let start = end.saturating_sub(PIECE).max(least);
        let Some(piece) = file.read(start, end - start) else {
            break;
        };
        let lines = Lines {
            rest: &piece,
            offset: start,
        };
        let lines: Vec<(u64, &[u8])> = lines.collect();
        // The line that begins before the piece is read with the one before, unless it is longer than a piece.
        let n_cut = usize::from(0 < start);
        for (offset, line) in lines.iter().skip(n_cut).rev() {
            let is_whole = line.ends_with(b"\n");
            if is_whole || !is_unfinished {
                reading.add_older(*offset, line);
            }
            is_unfinished &= !is_whole;
        }
        end = match lines.get(n_cut) {
            Some((first, _)) if least < start => *first,
            _ => start,
        };
    }
    reading.map(NameFormat::Lines, 0 < end)
}

/// The lines of a piece with their offsets, each with its end, where the piece has that.
struct Lines<'a> {
    rest: &'a [u8],
    offset: u64,
}

impl<'a> Iterator for Lines<'a> {
    type Item = (u64, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let mut after = self.rest;
        let len = after.skip_until(b'\n').ok().filter(|len| 0 < *len)?;
        let (line, rest) = self.rest.split_at(len);
        let offset = self.offset;
        (self.rest, self.offset) = (rest, offset.saturating_add(u64::try_from(len).unwrap_or(0)));
        Some((offset, line))
    }
}

/// What was read so far, from the newest line on.
#[derive(Debug, Default)]
struct Reading {
    functions: Vec<Line>,
    /// Addresses of all functions, named or overwritten: end by start. Neighbours are one.
    taken: BTreeMap<u64, u64>,
}

impl Reading {
    /// Adds a function that is older than all before, unless one of them overwrote it.
    fn add_older(&mut self, offset: u64, line: &[u8]) {
        let Some((range, _)) = parse_line(line).filter(|_| self.functions.len() < MAX_FUNCTIONS) else {
            return;
        };
        self.add(range, offset);
    }

    fn add(&mut self, range: Range<u64>, offset: u64) {
        if self.take(&range) {
            self.functions.push(Line {
                start: range.start,
                len: range.end - range.start,
                offset,
            });
        }
    }

    fn map(mut self, format: NameFormat, is_cut: bool) -> PerfMap {
        self.functions.sort_unstable_by_key(|function| function.start);
        PerfMap {
            functions: self.functions,
            format,
            is_cut,
            replacing: BTreeMap::new(),
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

    fn map_of(text: &str) -> (PerfMap, ByteSource) {
        let file = ByteSource::Memory(text.as_bytes().to_vec());
        (read_perf_map(&file), file)
    }

    fn at((map, file): &(PerfMap, ByteSource), at: u64) -> Option<(u64, u64, String)> {
        let found = map.function_at(ImageAddr(at), file, u64::MAX);
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
        assert!(!map.0.is_cut());
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
        assert_eq!(map.0.functions.len(), 60_000);
        assert_eq!(at(&map, 0x10_0000), Some((0x10_0000, 8, "newest".to_owned())));
        for n in (1..60_000).step_by(7) {
            let name = format!("method number {n} of many");
            assert_eq!(at(&map, 0x10_0008 + n * 16).map(|(.., name)| name), Some(name));
        }
    }

    /// A line that is longer than a piece, and than what is read of a line, still overwrites what is older.
    #[test]
    fn longest_lines_count() {
        let long = "x".repeat(2 * PIECE as usize + 77);
        let map = map_of(&format!(
            "1000 10 old\n2000 10 other\n1008 4 {long}\n3000 8 last\n"
        ));
        assert_eq!(at(&map, 0x1001), None);
        let (start, len, name) = at(&map, 0x1008).unwrap();
        assert!((start, len) == (0x1008, 4) && name.starts_with("xxx"));
        assert_eq!(at(&map, 0x2000), Some((0x2000, 0x10, "other".to_owned())));
        assert_eq!(at(&map, 0x3007), Some((0x3000, 8, "last".to_owned())));
    }

    #[test]
    fn newest_functions_of_a_jitdump_count() {
        use crate::jit_dump::tests::{head, load, moved};
        let old = load(1, 0x1000, "old", &[1; 16]);
        let hot = load(2, 0x1008, "hot", &[2; 16]);
        let bytes = [head(7), old, hot, moved(3, 0x1008, 0x3000, 16)].concat();
        let file = ByteSource::Memory(bytes);
        let map = (read_compiled(&file), file);
        assert_eq!(at(&map, 0x1000), None);
        assert_eq!(at(&map, 0x1017), Some((0x1008, 16, "hot".to_owned())));
        assert_eq!(at(&map, 0x3000), Some((0x3000, 16, "hot".to_owned())));
        let is_named = |at, since| map.0.function_at(ImageAddr(at), &map.1, since).is_some();
        assert!(!is_named(0x1008, 2) && is_named(0x1008, 3) && is_named(0x3000, 0));
        let dump = read_jit_dump(&map.1);
        let codes = (by_code(&dump), map.1);
        let named = dump.functions.iter().map(|it| at(&codes, it.code).unwrap().2);
        assert_eq!(named.collect::<Vec<_>>(), ["old", "hot", "hot"]);
    }

    /// The file was replaced after it was read.
    #[test]
    fn names_of_another_file_are_not_taken() {
        let (map, _) = map_of("1000 10 old\n");
        let other = |text: &str| ByteSource::Memory(text.as_bytes().to_vec());
        assert_eq!(
            map.function_at(ImageAddr(0x1000), &other("2000 10 new\n"), 0),
            None
        );
        assert_eq!(map.function_at(ImageAddr(0x1000), &other(""), 0), None);
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
