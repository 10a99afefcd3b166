//! The names that a compiler at run time gives to its functions, from /tmp/perf-PID.map.
//!
//! The file lies below the root of the process and is called after its id in its own pid namespace.
//! Anyone may write to that folder, so the file must be a regular one of the same owner as the process.
//! It only grows, so of two functions at one address the later one counts.
//! A map may have a million lines of which a run hits a hundred, so names stay in the text until they are asked for.

mod wire;

use std::ops::Range;
use std::os::unix::fs::MetadataExt;

use procfs::process::Process;

use crate::addr::ImageAddr;
use crate::snapshot::Symbol;

use super::mapped_file::open_below_process;
use crate::resolve::elf::byte_source::ByteSource;
use crate::resolve::parser::Parser;

/// Real ones have some MiB; names beyond that are left out.
const MAX_LEN: u64 = 32 << 20;
/// Functions beyond this number are left out, so that short lines cannot fill the memory.
const MAX_FUNCTIONS: usize = 1 << 20;

/// Functions of one process by their start.
#[derive(Debug, Default)]
pub struct PerfMap {
    text: Vec<u8>,
    /// Sorted by start, each start once.
    functions: Vec<NamedRange>,
}

/// A function and the place of its name in the text.
#[derive(Clone, Debug)]
struct NamedRange {
    start: u64,
    len: u64,
    name: Range<u32>,
}

impl PerfMap {
    /// Has the map of a process parsed; empty where there is none, or none that can be trusted.
    pub fn read(tgid: u32, parser: &Parser) -> Self {
        let file = open_trusted(tgid);
        file.map(|file| parser.perf_map(&file)).unwrap_or_default()
    }

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
pub(in crate::resolve) fn read_perf_map(file: &ByteSource) -> PerfMap {
    let text = file.read(0, file.len().min(MAX_LEN));
    text.map(parse_perf_map).unwrap_or_default()
}

fn open_trusted(tgid: u32) -> Option<ByteSource> {
    let process = Process::new(i32::try_from(tgid).ok()?).ok()?;
    let owner = process.uid().ok()?;
    let inner = process.status().ok()?.nspid?.into_iter().next_back()?;
    let file = open_below_process(tgid, &format!("/tmp/perf-{inner}.map")).ok()?;
    let trusted = match &file.source {
        ByteSource::File(file, _) => file.metadata().ok()?.uid() == owner,
        ByteSource::Memory(_) => false,
    };
    trusted.then_some(file.source)
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
    // The sort is stable, so that of equal starts the last line stands last.
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
    use std::fs;
    use std::process::{Child, Command, Stdio};

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

    /// Ends the processes of a namespace when it is dropped.
    struct Namespace(Child);

    impl Drop for Namespace {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn map_is_called_after_the_id_in_the_namespace() {
        const MAP: &str = "/tmp/perf-1.map";
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--kill-child", "sleep", "600"]);
        let spawned = unshare.stderr(Stdio::null()).spawn().map(Namespace);
        let Ok(mut outer) = spawned.inspect_err(|_| println!("skipped: no unshare")) else {
            return;
        };
        let pid = outer.0.id();
        let children = format!("/proc/{pid}/task/{pid}/children");
        let inner = loop {
            if outer.0.try_wait().expect("it was spawned").is_some() {
                println!("skipped: no pid namespace can be made here");
                return;
            }
            let children = fs::read_to_string(&children).unwrap_or_default();
            if let Some(inner) = children.split_whitespace().next() {
                break inner.parse().expect("a process id");
            }
        };
        fs::write(MAP, "1000 10 contained\n").expect("write");
        let found = PerfMap::read(inner, &Parser::Here).function_at(ImageAddr(0x1008));
        fs::remove_file(MAP).expect("clean up");
        assert_eq!(found.map(|s| s.name).as_deref(), Some("contained"));
    }

    #[test]
    fn own_map() {
        let path = format!("/tmp/perf-{}.map", std::process::id());
        fs::write(&path, "1000 10 compiled\n").expect("write");
        let found = PerfMap::read(std::process::id(), &Parser::Here).function_at(ImageAddr(0x1008));
        fs::remove_file(&path).expect("clean up");
        assert_eq!(found.map(|s| s.name).as_deref(), Some("compiled"));
        assert!(PerfMap::read(u32::MAX, &Parser::Here).functions.is_empty());
    }
}
