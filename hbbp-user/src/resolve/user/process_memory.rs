//! Executable memory without a file, copied from live processes through /proc/PID/mem.
//!
//! A copy is a plain read: the process is not stopped, and what it has not touched reads as an error or as zeros.
//! Such memory is named, if at all, by the compiler that wrote it ([`super::perf_map`]).

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use procfs::process::Process;

use crate::addr::Va;

use super::page_map::PageMap;
use super::perf_map::PerfMap;
use crate::resolve::parser::Parser;

/// Processes whose memory is open at one time.
const MAX_OPEN: usize = 64;
/// Bytes of names that are held at one time; processes beyond that have none until the next drain.
const MAX_NAMES: usize = 64 << 20;

/// The memory of live processes, opened on demand and closed after each drain.
#[derive(Debug, Default)]
pub struct ProcessMemory {
    /// Parses their names.
    pub(super) parser: Parser,
    open: HashMap<u32, Option<File>>,
    names: HashMap<u32, PerfMap>,
    names_size: usize,
    /// The pages of the process that was asked for last; `None` where they cannot be read.
    pages: Option<(u32, Option<PageMap>)>,
}

impl ProcessMemory {
    /// Fills `bytes` with the memory of process `tgid` from `at` on; `false` where it is gone, unreadable or refused.
    pub fn read(&mut self, tgid: u32, at: Va, bytes: &mut [u8]) -> bool {
        if MAX_OPEN <= self.open.len() && !self.open.contains_key(&tgid) {
            self.open.clear();
        }
        let file = self
            .open
            .entry(tgid)
            .or_insert_with(|| Process::new(i32::try_from(tgid).ok()?).ok()?.mem().ok());
        file.as_ref()
            .is_some_and(|file| file.read_exact_at(bytes, at.0).is_ok())
    }

    /// Whether memory of process `tgid` that shows a file may differ from it, because it was written to.
    pub fn may_be_written(&mut self, tgid: u32, range: &Range<Va>) -> bool {
        let pages = match &mut self.pages {
            Some((of, pages)) if *of == tgid => pages,
            other => &mut other.insert((tgid, PageMap::open(tgid))).1,
        };
        pages.as_mut().is_none_or(|pages| pages.may_be_written(range))
    }

    /// The names that the compiler of process `tgid` gives to its functions.
    pub fn names(&mut self, tgid: u32) -> &PerfMap {
        self.names.entry(tgid).or_insert_with(|| {
            let names = if self.names_size < MAX_NAMES {
                PerfMap::read(tgid, &self.parser)
            } else {
                PerfMap::default()
            };
            self.names_size += names.size();
            names
        })
    }

    /// Closes all of it: process ids may be used again until the next drain.
    pub fn close(&mut self) {
        self.open.clear();
        self.names.clear();
        self.names_size = 0;
        self.pages = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory() {
        let text = *b"some bytes on the stack";
        let mut copy = [0; 23];
        let mut memory = ProcessMemory::default();
        let at = Va(u64::try_from(text.as_ptr().addr()).expect("64 bits"));
        assert!(memory.read(std::process::id(), at, &mut copy));
        assert_eq!(copy, text);
        assert!(!memory.read(std::process::id(), Va(16), &mut copy));
        assert!(!memory.read(u32::MAX, at, &mut copy));
        memory.close();
        assert!(memory.open.is_empty());
    }
}
