//! Executable memory without a file, copied from live processes through /proc/PID/mem.
//!
//! A copy is a plain read: the process is not stopped, and what it has not touched reads as an error or as zeros.
//! Such memory is named, if at all, by the compiler that wrote it ([`hbbp_elf::perf_map`]).

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use procfs::process::Process;

use hbbp_model::addr::Va;

use super::map_file::{MapStamp, open_trusted};
use super::page_map::PageMap;
use super::process_image::Generation;
use hbbp_elf::parser::{Answer, Parser};
use hbbp_elf::perf_map::PerfMap;

/// Processes whose memory is open at one time.
const MAX_OPEN: usize = 64;
/// Bytes of names that are held at one time; processes beyond that have none.
const MAX_NAMES: usize = 64 << 20;

/// The names of a process.
#[derive(Debug)]
struct Names {
    map: Answer<PerfMap>,
    /// The file that they are of, as it was then; `None` if there is none.
    stamp: Option<MapStamp>,
    /// The drains since they were asked for.
    unused: Unused,
}

/// Whether names were asked for lately.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Unused {
    /// In this drain, in which the file was looked at.
    No,
    /// In the last one.
    Since,
}

/// The memory of live processes, opened on demand and closed after each drain.
#[derive(Debug, Default)]
pub struct ProcessMemory {
    /// Parses their names.
    pub(super) parser: Parser,
    open: HashMap<u32, Option<File>>,
    names: HashMap<(u32, Generation), Names>,
    /// The pages of the last process that was read; `None` if they cannot be read.
    pages: Option<(u32, Option<PageMap>)>,
}

impl ProcessMemory {
    /// Fills `bytes` with the memory of process `tgid` from `at` on; `false` if it is gone, unreadable or refused.
    pub(crate) fn read(&mut self, tgid: u32, at: Va, bytes: &mut [u8]) -> bool {
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
    pub(crate) fn may_be_written(&mut self, tgid: u32, range: &Range<Va>) -> bool {
        let pages = match &mut self.pages {
            Some((of, pages)) if *of == tgid => pages,
            other => &mut other.insert((tgid, PageMap::open(tgid))).1,
        };
        pages.as_mut().is_none_or(|pages| pages.may_be_written(range))
    }

    /// The names that the compiler of process `tgid` gives to its functions; `None` while they are awaited.
    pub(crate) fn names(&mut self, tgid: u32, generation: Generation) -> Option<Option<&PerfMap>> {
        self.look_at_names(tgid, generation);
        let names = self.names.get_mut(&(tgid, generation))?;
        self.parser.wait(&mut names.map)
    }

    /// Whether a compiler of process `tgid` names its functions.
    pub(crate) fn has_names(&mut self, tgid: u32, generation: Generation) -> bool {
        self.look_at_names(tgid, generation);
        let names = self.names.get(&(tgid, generation));
        names.is_some_and(|names| names.stamp.is_some())
    }

    /// The requested names, if they arrive within a time.
    pub(crate) fn names_within(
        &mut self,
        tgid: u32,
        generation: Generation,
        time: Duration,
    ) -> Option<Option<&PerfMap>> {
        match self.names.get_mut(&(tgid, generation)) {
            Some(names) => names.map.within(time),
            None => Some(None),
        }
    }

    /// Asks for the names of a process, once in a drain; those that are there stay where the file is the same.
    fn look_at_names(&mut self, tgid: u32, generation: Generation) {
        let known = self.names.get_mut(&(tgid, generation));
        if let Some(names) = known {
            let is_awaited = names.map.within(Duration::ZERO).is_none();
            if names.unused == Unused::No || is_awaited {
                names.unused = Unused::No;
                return;
            }
        }
        let file = open_trusted(tgid);
        let stamp = file.as_ref().and_then(MapStamp::of);
        if let Some(names) = self.names.get_mut(&(tgid, generation))
            && names.stamp == stamp
        {
            names.unused = Unused::No;
            return;
        }
        let held = self.names.values_mut();
        let size: usize = held
            .map(|names| {
                names
                    .map
                    .within(Duration::ZERO)
                    .flatten()
                    .map_or(0, PerfMap::size)
            })
            .sum();
        let map = match file {
            Some(file) if size < MAX_NAMES => self.parser.perf_map(&file),
            Some(_) | None => Answer::There(Some(PerfMap::default())),
        };
        let names = Names {
            map,
            stamp,
            unused: Unused::No,
        };
        self.names.insert((tgid, generation), names);
    }

    /// Closes all of it: process ids may be used again until the next drain. Names stay as long as they are asked for.
    pub(crate) fn close(&mut self) {
        self.open.clear();
        self.names.retain(|_, names| {
            let is_awaited = names.map.within(Duration::ZERO).is_none();
            let stays = names.unused == Unused::No || is_awaited;
            names.unused = Unused::Since;
            stays
        });
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
