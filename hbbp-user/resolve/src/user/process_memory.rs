//! Executable memory without a file, copied from live processes through /proc/PID/mem.
//!
//! A copy is a plain read: the process is not stopped, and what it has not touched reads as an error or as zeros.
//! Such memory is named, if at all, by the compiler that wrote it ([`hbbp_elf::perf_map`]).

use std::collections::HashMap;
use std::fs::File;
use std::iter;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use procfs::process::Process;

use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::{Loss, Symbol};

use super::map_file::{MapStamp, open_trusted};
use super::page_map::PageMap;
use super::process_image::Generation;
use hbbp_elf::byte_source::ByteSource;
use hbbp_elf::jit_dump::is_jit_dump_path;
use hbbp_elf::parser::{Answer, Parser};
use hbbp_elf::perf_map::PerfMap;

/// Processes whose memory is open at one time.
const MAX_OPEN: usize = 64;
/// Bytes of tables of names that are held at one time, and files of names; processes beyond that have none, which is counted.
const MAX_NAMES: usize = 64 << 20;
const MAX_NAME_FILES: usize = 256;

/// The process whose memory an image is.
#[derive(Debug)]
pub(crate) struct Owner {
    /// Thread group id.
    pub(super) tgid: u32,
    /// The program of the image.
    pub(super) generation: Generation,
    /// What is counted where the memory cannot be read: why it had to be.
    pub(super) loss: Loss,
    /// The names that its text was last asked for in, once it was read.
    named_by: Option<MapStamp>,
    /// Whether text that was read before these names were there is to be named by them.
    pub(super) asks_again: bool,
}

impl Owner {
    pub(super) const fn new(tgid: u32, generation: Generation, loss: Loss) -> Self {
        Self {
            tgid,
            generation,
            loss,
            named_by: None,
            asks_again: false,
        }
    }

    /// Notes whether there are newer names than its text was asked for in. A compiler may name code that was executed before: java
    /// does so when it is asked to.
    pub(super) fn note_names(&mut self, memory: &mut ProcessMemory) {
        let stamp = memory.stamp_of_names(self.tgid, self.generation);
        self.asks_again |= stamp.is_some() && stamp != self.named_by;
        self.named_by = stamp;
    }
}

/// The names of a process.
#[derive(Debug)]
struct Names {
    map: Answer<PerfMap>,
    /// Holds the names; empty if there is none.
    file: ByteSource,
    /// The file that they are of, as it was then; `None` if there is none.
    stamp: Option<MapStamp>,
    /// The drains since they were asked for.
    unused: Unused,
    /// When the drain began in which they were asked for, in ns: what they name was not hit before.
    since: u64,
}

/// The names that a compiler gives to the functions of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompiledNames<'a> {
    pub(super) map: &'a PerfMap,
    file: &'a ByteSource,
    since: u64,
}

impl CompiledNames<'_> {
    /// The function that contains `at`. One that replaced another one while it was measured has no name: counts of both are
    /// together.
    pub(super) fn function_at(self, at: ImageAddr) -> Option<Symbol> {
        self.map.function_at(at, self.file, self.since)
    }

    /// The functions that a range has a part of, in their order, and `None` for what has no name.
    pub(super) fn functions_in(self, range: Range<u64>) -> impl Iterator<Item = Option<Symbol>> {
        let mut at = ImageAddr(range.start);
        iter::from_fn(move || {
            (at.0 < range.end).then(|| {
                let function = self.function_at(at);
                let end = |function: &Symbol| ImageAddr(function.start.0.saturating_add(function.len));
                at = function.as_ref().map_or_else(|| self.map.gap_at(at).end, end);
                function
            })
        })
    }
}

impl Names {
    /// The names, if they arrive within a time.
    fn within(&mut self, time: Duration) -> Option<Option<CompiledNames<'_>>> {
        let (file, since) = (&self.file, self.since);
        let map = self.map.within(time)?;
        Some(map.map(|map| CompiledNames { map, file, since }))
    }
}

/// Whether names were asked for lately.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Unused {
    /// In this drain, in which the file was looked at.
    No,
    /// In the last one.
    Since,
    /// In an earlier one, and they were awaited when the last one ended.
    Awaited,
}

/// The memory of live processes, opened on demand and closed after each drain.
#[derive(Debug, Default)]
pub struct ProcessMemory {
    /// Parses their names.
    pub(super) parser: Parser,
    /// When the current drain began, in ns.
    pub(super) since: u64,
    open: HashMap<u32, Option<File>>,
    names: HashMap<(u32, Generation), Names>,
    /// Paths of jitdumps, by the process that maps one.
    dumps: HashMap<u32, String>,
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

    /// Notes that a process maps a file, which may be a jitdump: a compiler maps that to be noticed.
    pub(super) fn note_mapped(&mut self, tgid: u32, path: &str) {
        if !is_jit_dump_path(path) {
            return;
        }
        if MAX_NAME_FILES <= self.dumps.len() {
            self.dumps.clear();
        }
        self.dumps.insert(tgid, path.to_owned());
    }

    /// The names that the compiler of process `tgid` gives to its functions; `None` while they are awaited.
    pub(crate) fn names(&mut self, tgid: u32, generation: Generation) -> Option<Option<CompiledNames<'_>>> {
        self.look_at_names(tgid, generation);
        let names = self.names.get_mut(&(tgid, generation))?;
        self.parser.wait(&mut names.map)?;
        names.within(Duration::ZERO)
    }

    /// Whether a compiler of process `tgid` names its functions.
    pub(crate) fn has_names(&mut self, tgid: u32, generation: Generation) -> bool {
        self.look_at_names(tgid, generation);
        let names = self.names.get(&(tgid, generation));
        names.is_some_and(|names| names.stamp.is_some())
    }

    /// Asks for the names of a process as they are now, which its compiler may have changed since they were asked for.
    pub(crate) fn look_again(&mut self, tgid: u32, generation: Generation) {
        if let Some(names) = self.names.get_mut(&(tgid, generation))
            && names.unused == Unused::No
        {
            names.unused = Unused::Since;
        }
        self.look_at_names(tgid, generation);
    }

    /// The file of the names as they are now, which are asked for if it changed; `None` if there is none.
    fn stamp_of_names(&mut self, tgid: u32, generation: Generation) -> Option<MapStamp> {
        self.look_again(tgid, generation);
        self.names.get(&(tgid, generation))?.stamp
    }

    /// The requested names, if they arrive within a time.
    pub(crate) fn names_within(
        &mut self,
        tgid: u32,
        generation: Generation,
        time: Duration,
    ) -> Option<Option<CompiledNames<'_>>> {
        match self.names.get_mut(&(tgid, generation)) {
            Some(names) => names.within(time),
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
        let file = open_trusted(tgid, self.dumps.get(&tgid).map(String::as_str));
        let stamp = file.as_ref().and_then(MapStamp::of);
        if let Some(names) = self.names.get_mut(&(tgid, generation))
            && names.stamp == stamp
        {
            names.unused = Unused::No;
            return;
        }
        let held = self.names.values_mut();
        let sizes = held.filter(|names| names.stamp.is_some()).map(|names| {
            let map = names.map.within(Duration::ZERO).flatten();
            map.map_or(0, PerfMap::size)
        });
        let sizes: Vec<usize> = sizes.collect();
        let has_room = sizes.iter().sum::<usize>() < MAX_NAMES && sizes.len() < MAX_NAME_FILES;
        let map = match &file {
            Some(file) if has_room => self.parser.perf_map(file),
            Some(_) => Answer::There(None),
            None => Answer::There(Some(PerfMap::default())),
        };
        let names = Names {
            map,
            file: file
                .filter(|_| has_room)
                .unwrap_or(ByteSource::Memory(Vec::new())),
            stamp,
            unused: Unused::No,
            since: self.since,
        };
        self.names.insert((tgid, generation), names);
    }

    /// Closes memory: process ids may be used again until it is read next.
    pub(crate) fn close(&mut self) {
        self.open.clear();
        self.pages = None;
    }

    /// Ends a drain. Names stay as long as they are asked for, and for a drain after they came.
    pub(crate) fn end_drain(&mut self) {
        self.close();
        self.names.retain(|_, names| {
            let is_awaited = names.map.within(Duration::ZERO).is_none();
            let stays = names.unused != Unused::Since || is_awaited;
            names.unused = if is_awaited {
                Unused::Awaited
            } else {
                Unused::Since
            };
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use hbbp_elf::perf_map::read_perf_map;

    use super::*;

    /// Addresses wait for names, which are taken at the next drain: memory is looked at meanwhile, and this drain may end first.
    #[test]
    fn names_stay_until_they_are_taken() {
        let mut memory = ProcessMemory::default();
        let (answer, answers) = channel();
        let file = ByteSource::Memory(b"1000 10 compiled\n".to_vec());
        let map = read_perf_map(&file);
        let names = Names {
            map: Answer::Awaited(answers),
            file,
            stamp: None,
            unused: Unused::No,
            since: 0,
        };
        let generation = Generation(3);
        memory.names.insert((7, generation), names);
        memory.end_drain();
        assert!(memory.names_within(7, generation, Duration::ZERO).is_none());
        answer.send(Some(map)).unwrap();
        memory.close();
        memory.end_drain();
        let found = memory.names_within(7, generation, Duration::ZERO);
        let function = found.unwrap().unwrap().function_at(ImageAddr(0x1008));
        assert_eq!(
            function.map(|function| function.name).as_deref(),
            Some("compiled")
        );
        memory.end_drain();
        assert!(memory.names.is_empty());
    }

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
