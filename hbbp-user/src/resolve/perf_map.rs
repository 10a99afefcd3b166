//! The names that a compiler at run time gives to its functions, from /tmp/perf-PID.map.
//!
//! The file lies below the root of the process and is called after its id in its own pid namespace.
//! Anyone may write to that folder, so the file must be a regular one of the same owner as the process.
//! It only grows, so of two functions at one address the later one counts.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::addr::ImageAddr;
use crate::snapshot::Symbol;

use super::mapped_file::open_below_process;
use super::source::ByteSource;

/// Real ones have some MiB; names beyond that are left out.
const MAX_LEN: u64 = 32 << 20;

/// Functions of one process by their start.
#[derive(Debug, Default)]
pub struct PerfMap {
    functions: BTreeMap<u64, (u64, String)>,
}

impl PerfMap {
    /// Reads the map of a process; empty where there is none, or none that can be trusted.
    pub fn read(tgid: u32) -> Self {
        read_trusted(tgid)
            .map(|text| parse_perf_map(&text))
            .unwrap_or_default()
    }

    /// The function that contains `at`.
    pub fn function_at(&self, at: ImageAddr) -> Option<Symbol> {
        let (start, (len, name)) = self.functions.range(..=at.0).next_back()?;
        let inside = at.0 - start < *len;
        inside.then(|| Symbol {
            start: ImageAddr(*start),
            len: *len,
            name: name.clone(),
        })
    }
}

fn read_trusted(tgid: u32) -> Option<Vec<u8>> {
    let owner = fs::metadata(format!("/proc/{tgid}")).ok()?.uid();
    let status = fs::read_to_string(format!("/proc/{tgid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let inner = ids.split_ascii_whitespace().next_back()?;
    let file = open_below_process(tgid, &format!("/tmp/perf-{inner}.map")).ok()?;
    let len = file.source.len().min(MAX_LEN);
    let trusted = match &file.source {
        ByteSource::File(file, _) => file.metadata().ok()?.uid() == owner,
        ByteSource::Memory(_) => false,
    };
    if trusted { file.source.read(0, len) } else { None }
}

/// Interprets lines of `start length name`, both numbers in hexadecimal; others are skipped.
pub fn parse_perf_map(text: &[u8]) -> PerfMap {
    let mut map = PerfMap::default();
    for line in String::from_utf8_lossy(text).lines() {
        let mut words = line.splitn(3, ' ');
        let mut number = || {
            let word = words.next()?;
            u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
        };
        let (start, len) = (number(), number());
        if let (Some(start), Some(len), Some(name)) = (start, len.filter(|len| 0 < *len), words.next()) {
            map.functions.insert(start, (len, name.trim().to_owned()));
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_lines_count() {
        let map = parse_perf_map(
            b"7f10 20 LazyCompile:~a b.js:1\n7f10 30 a, optimised\nbad\n7f80 0 empty\n0x8000 8 x\n",
        );
        let at = |at| map.function_at(ImageAddr(at)).map(|s| (s.start.0, s.len, s.name));
        assert_eq!(at(0x7f3f), Some((0x7f10, 0x30, "a, optimised".to_owned())));
        assert_eq!(at(0x7f40), None);
        assert_eq!(at(0x7f80), None);
        assert_eq!(at(0x8007), Some((0x8000, 8, "x".to_owned())));
    }

    #[test]
    fn own_map() {
        let path = format!("/tmp/perf-{}.map", std::process::id());
        fs::write(&path, "1000 10 compiled\n").expect("write");
        let found = PerfMap::read(std::process::id()).function_at(ImageAddr(0x1008));
        fs::remove_file(&path).expect("clean up");
        assert_eq!(found.map(|s| s.name).as_deref(), Some("compiled"));
        assert!(PerfMap::read(u32::MAX).functions.is_empty());
    }
}
