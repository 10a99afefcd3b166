//! Jitdumps of a recording: each says when its compiler put which code where, so it is a file that was mapped in small parts.
//!
//! perf(1) does the same with `perf inject --jit`, and writes a file for each function.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use super::find_file::{Host, Places};
use super::mapped_file::plain_path;
use super::mapping::Backing;
use super::recorded_files::{RecordedDump, RecordedFiles};
use crate::regular_file::open_own;
use hbbp_elf::byte_source::ByteSource;
use hbbp_elf::jit_dump::{JitDump, is_jit_dump_path, read_jit_dump};
use hbbp_elf::perf_map::{PerfMap, by_code};
use hbbp_model::addr::{FileOff, Va};
use hbbp_model::record::{Mmap, Record, Timed};

/// What a recording without a clock of its own cannot say.
const OTHER_CLOCK: &str = "code of compilers at run time was left out: the times of jitdump files are not those of this recording; \
                           record with `perf record -k mono`";

impl RecordedFiles {
    /// Reads the jitdumps that processes of a recording wrote. `start` is the time of the first sample where times are those of
    /// CLOCK_MONOTONIC, as they are in jitdumps; without it none is used.
    pub fn with_dumps(mut self, records: &[Timed], start: Option<u64>) -> Self {
        let marks = records.iter().filter_map(|timed| match &timed.record {
            Record::Mmap(mmap) if is_jit_dump_path(plain_path(&mmap.path)) => Some((timed.time, mmap)),
            _ => None,
        });
        let marks: BTreeMap<(u32, &str), (u64, &Mmap)> = marks
            .rev()
            .map(|(time, mmap)| ((mmap.pid, &*mmap.path), (time, mmap)))
            .collect();
        let mut is_other_clock = false;
        for (marked, mark) in marks.into_values() {
            let Some(FoundDump { path, source, dump }) = find_dump(self.places(), mark) else {
                self.note_missing(&mark.path);
                continue;
            };
            self.note_found(path);
            is_other_clock |= start.is_none() || !dump.has_times;
            if start.is_some() && dump.has_times {
                let mark = mark.clone();
                self.dumps.push(RecordedDump {
                    mark,
                    marked,
                    source,
                    dump,
                });
            }
        }
        self.start = start.unwrap_or(0);
        if is_other_clock {
            self.add_note(OTHER_CLOCK.to_owned().into());
        }
        self
    }

    /// The records with a mapping for each function of a jitdump, in the order of time. Memory of its process has no other code
    /// (tools/perf/util/jitdump.c, `jit_process`).
    pub(super) fn with_compiled<'a>(&self, records: &'a [Timed]) -> Cow<'a, [Timed]> {
        if self.dumps.is_empty() {
            return Cow::Borrowed(records);
        }
        let tgids: HashSet<u32> = self.dumps.iter().map(|dump| dump.mark.pid).collect();
        let is_memory = |timed: &&Timed| {
            matches!(&timed.record, Record::Mmap(mmap) if tgids.contains(&mmap.pid)
                && (Backing::of(&mmap.path) == Backing::Memory || mmap.path.starts_with("/memfd:")))
        };
        let mut all: Vec<Timed> = records
            .iter()
            .filter(|timed| !is_memory(timed))
            .cloned()
            .collect();
        all.extend(self.dumps.iter().flat_map(|dump| dump.mappings(self.start)));
        all.sort_by_key(|timed| timed.time);
        Cow::Owned(all)
    }

    /// The jitdump at a path, with the names of its functions.
    pub(super) fn dump(&self, path: &str) -> Option<(ByteSource, PerfMap)> {
        let found = self.dumps.iter().find(|dump| &*dump.mark.path == path)?;
        Some((found.source.again().ok()?, by_code(&found.dump)))
    }
}

impl RecordedDump {
    fn mappings(&self, start: u64) -> impl Iterator<Item = Timed> {
        let time = move |written: u64| match self.marked {
            // What was there before the recording began has time 0.
            0 if written < start => 0,
            marked => written.max(marked),
        };
        self.dump.functions.iter().map(move |function| Timed {
            time: time(function.time),
            record: Record::Mmap(Mmap {
                start: Va(function.address),
                len: function.len,
                offset: FileOff(function.code),
                ..self.mark.clone()
            }),
        })
    }
}

/// A jitdump, and where it was found.
struct FoundDump {
    path: PathBuf,
    source: ByteSource,
    dump: JitDump,
}

/// Looks for the jitdump of a process: among the files that the user names, below the user's folder, and at its own path.
fn find_dump(places: &Places, mark: &Mmap) -> Option<FoundDump> {
    let path = plain_path(&mark.path);
    let named = |candidate: &&PathBuf| candidate.file_name() == Path::new(path).file_name();
    let named = places.binaries.iter().filter(named).cloned();
    let below = places
        .symfs
        .as_ref()
        .map(|root| root.join(path.trim_start_matches('/')));
    let own = (places.host == Host::This).then(|| PathBuf::from(path));
    named.chain(below).chain(own).find_map(|place| {
        let source = open_own(&place).ok()?.source;
        let dump = read_jit_dump(&source);
        let is_right = dump.pid == mark.pid && !dump.is_cut && !dump.functions.is_empty();
        is_right.then_some(FoundDump {
            path: place,
            source,
            dump,
        })
    })
}
