//! The names that a compiler at run time gives to its functions, from /tmp/perf-PID.map.
//!
//! It only grows, so of two functions at one address the later one counts.
//! A map may have a million lines of which a run hits a hundred, so names stay in the text until they are asked for.

use std::ops::Range;

use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::Symbol;

use crate::byte_source::ByteSource;

/// Real ones have some MiB; names beyond that are left out.
const MAX_LEN: u64 = 32 << 20;
/// Functions beyond this number are left out, so that short lines cannot fill the memory.
pub(super) const MAX_FUNCTIONS: usize = 1 << 20;

/// Functions of one process by their start.
#[derive(Debug, Default)]
pub struct PerfMap {
    pub(super) text: Vec<u8>,
    /// Sorted by start, each start once.
    pub(super) functions: Vec<NamedRange>,
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
            name: String::from_utf8_lossy(name).into_owned(),
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

/// Reads a map, or the beginning of a long one.
pub fn read_perf_map(file: &ByteSource) -> PerfMap {
    let text = file.read(0, file.len().min(MAX_LEN));
    text.map(parse_perf_map).unwrap_or_default()
}

/// Interprets lines of `start length name`, both numbers in hexadecimal; others are skipped.
pub fn parse_perf_map(text: Vec<u8>) -> PerfMap {
    let mut functions = Vec::new();
    let mut line_at = 0;
    for line in text.split(|b| *b == b'\n') {
        functions.extend(parse_line(line, line_at));
        line_at += line.len() + 1;
        if MAX_FUNCTIONS <= functions.len() {
            break;
        }
    }
    // The sort is stable, so that of equal starts the last line is last.
    functions.sort_by_key(|f| f.start);
    functions.dedup_by(|later, kept| {
        let equal = later.start == kept.start;
        if equal {
            *kept = later.clone();
        }
        equal
    });
    PerfMap { text, functions }
}

/// A line that begins at `line_at` of the text.
fn parse_line(line: &[u8], line_at: usize) -> Option<NamedRange> {
    let mut words = line.splitn(3, |b| *b == b' ');
    let mut number = || {
        let word = str::from_utf8(words.next()?).ok()?;
        u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
    };
    let (start, len) = (number()?, number()?);
    let name = words.next().filter(|_| 0 < len)?;
    let name_at = line_at + line.len() - name.len();
    let name = name.trim_ascii_end();
    Some(NamedRange {
        start,
        len,
        name: u32::try_from(name_at).ok()?..u32::try_from(name_at + name.len()).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_lines_count() {
        let text = b"7f10 20 LazyCompile:~a b.js:1\n7f10 30 a, optimised\nbad\n7f80 0 empty\n0x8000 8 x\r\n";
        let map = parse_perf_map(text.to_vec());
        let at = |at| map.function_at(ImageAddr(at)).map(|s| (s.start.0, s.len, s.name));
        assert_eq!(at(0x7f3f), Some((0x7f10, 0x30, "a, optimised".to_owned())));
        assert_eq!(at(0x7f40), None);
        assert_eq!(at(0x7f80), None);
        assert_eq!(at(0x8007), Some((0x8000, 8, "x".to_owned())));
    }
}
