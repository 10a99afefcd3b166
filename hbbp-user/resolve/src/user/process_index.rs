//! The program of a process at a given time, and its mappings: a pure index.
//!
//! It is filled from a walk over /proc ([`super::proc_scan`]) and from timed records, in the order of time. A process
//! is a list of generations: a fork starts one with the mappings of the parent, an exec starts one with none, and a
//! process id that is used again starts another. The kernel counts by (tgid, self_exec_id), a number which neither
//! /proc nor the records show, so a count finds its generation by the time of its first sample. Forked children share
//! the mappings of their parent until one of them changes its own. Ended images are dropped after each drain, so memory
//! follows the number of live processes.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::ops::Range;
use std::sync::Arc;

use hbbp_model::addr::Va;
use hbbp_model::record::{Mmap, Record, Timed};

use super::cgroups::Membership;
use super::file_table::{FileTable, MANY_FILES};
use super::mapping::{Backing, FileIdx, ImageMapping, MappedFile};
use super::process_image::{Generation, ProcessImage};

/// Ancestors that are asked for a file: a container is rarely deeper.
const MAX_ANCESTORS: usize = 6;

/// All process images that may still have samples.
#[derive(Debug, Default)]
pub(crate) struct ProcessIndex {
    /// Generations of each tgid in the order of time.
    pub(super) processes: HashMap<u32, Vec<ProcessImage>>,
    files: FileTable,
    n_generations: u64,
    pub(super) remapped: Vec<Remapped>,
    /// When a mapping replaced another one since they were asked for last, in ns.
    pub(super) replaced: Vec<u64>,
    crowded: Vec<u32>,
}

/// A private mapping of a file that was mapped there already. This is how a program patches its text: it makes the text
/// writable, which no record notifies of, and executable again, which one does.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Remapped {
    /// Whose text it is.
    pub generation: Generation,
    /// Addresses.
    pub at: Range<Va>,
    /// Time of the record in ns.
    pub time: u64,
}

impl ProcessIndex {
    /// What a mapping's file is called and known by.
    pub(crate) fn file(&self, idx: FileIdx) -> Option<&MappedFile> {
        self.files.get(idx)
    }

    /// The image of process `tgid` at `time`; where the time precedes all that is known, the first one.
    pub(crate) fn image_at(&self, tgid: u32, time: u64) -> Option<&ProcessImage> {
        let images = self.processes.get(&tgid)?;
        let n_begun = images.partition_point(|image| image.from <= time);
        images.get(n_begun.saturating_sub(1))
    }

    /// The times at which [`Self::image_at`] is the same as at `time`.
    pub(crate) fn same_image(&self, tgid: u32, time: u64) -> Range<u64> {
        let images = self.processes.get(&tgid).map_or(&[][..], Vec::as_slice);
        let nth = images
            .partition_point(|image| image.from <= time)
            .saturating_sub(1);
        let from = |nth: usize| images.get(nth).map(|image| image.from);
        let start = if nth == 0 { None } else { from(nth) };
        start.unwrap_or(0)..from(nth + 1).unwrap_or(u64::MAX)
    }

    /// The processes that led to this image, the nearest first: they nearly always see the same files.
    pub(crate) fn ancestors(&self, image: &ProcessImage) -> Vec<u32> {
        let parent_of = |tgid: &u32| {
            self.live(*tgid)
                .map(|image| image.parent)
                .filter(|parent| 0 < *parent)
        };
        std::iter::successors(Some(image.parent).filter(|parent| 0 < *parent), parent_of)
            .take(MAX_ANCESTORS)
            .collect()
    }

    /// The image that process `tgid` runs now, as far as the records show; `None` if it has ended.
    pub(crate) fn live(&self, tgid: u32) -> Option<&ProcessImage> {
        self.processes
            .get(&tgid)?
            .last()
            .filter(|image| image.ended.is_none())
    }

    /// Whether process `tgid` still runs the same program, as far as the records show.
    pub(crate) fn is_live(&self, tgid: u32, generation: Option<Generation>) -> bool {
        self.live(tgid)
            .is_some_and(|live| Some(live.generation) == generation)
    }

    /// When process `tgid` came to run another program than that of `generation`, in ns; `u64::MAX` where it did not.
    pub(crate) fn end_of(&self, tgid: u32, generation: Generation) -> u64 {
        let images = self.processes.get(&tgid).map_or(&[][..], Vec::as_slice);
        let later = images.iter().skip_while(|image| image.generation != generation);
        later.map(|image| image.from).nth(1).unwrap_or(u64::MAX)
    }

    /// Sets the cgroup that was read of process `tgid` while it had the program of `time`.
    pub(super) fn set_cgroup(&mut self, tgid: u32, time: u64, read: Membership) {
        if let Some(image) = self.image_at_mut(tgid, time) {
            image.cgroup = read;
        }
    }

    /// Number of process images held.
    #[cfg(test)]
    fn n_images(&self) -> usize {
        self.processes.values().map(Vec::len).sum()
    }

    /// Applies one record. Records must come in the order of time; a late one counts for the image of its time.
    pub(crate) fn apply(&mut self, timed: &Timed) {
        let time = timed.time;
        match &timed.record {
            // The kernel speaks of itself as the last process, and of those outside of our pid namespace as process 0.
            Record::Mmap(mmap) if 0 < mmap.pid && mmap.pid < u32::MAX => {
                self.note_before(mmap, time);
                self.map(mmap, time);
            }
            Record::Comm { pid, tid, comm, exec } => self.comm(*pid, *tid, comm, *exec, time),
            Record::Fork { pid, parent_pid, .. } if pid == parent_pid => {
                if let Some(image) = self.image_at_mut(*pid, time).filter(|i| i.counted < time) {
                    image.n_threads = image.n_threads.saturating_add(1);
                }
            }
            Record::Fork { pid, parent_pid, .. } => {
                let generation = self.next_generation();
                let image = match self.image_at(*parent_pid, time) {
                    Some(parent) => parent.child(generation, *parent_pid, time),
                    None => ProcessImage::new(generation, Arc::default(), time),
                };
                self.insert(*pid, image);
            }
            Record::Exit { pid, .. } => {
                if let Some(image) = self.image_at_mut(*pid, time).filter(|i| i.counted < time) {
                    image.n_threads = image.n_threads.saturating_sub(1);
                    if image.n_threads == 0 {
                        image.ended = Some(time);
                    }
                }
            }
            Record::Mmap(_)
            | Record::Ksymbol { .. }
            | Record::TextPoke { .. }
            | Record::Module(_)
            | Record::Lost(_)
            | Record::LostText(_) => {}
        }
    }

    /// Forgets the images that ended, or were replaced by another one, before `time`: all their samples have been read.
    pub(crate) fn forget_before(&mut self, time: u64) {
        self.processes.retain(|_, images| {
            let n_over = images.iter().skip(1).take_while(|next| next.from < time).count();
            images.drain(..n_over);
            images.retain(|image| image.ended.is_none_or(|ended| time <= ended));
            images.iter_mut().for_each(|image| image.forget_before(time));
            !images.is_empty()
        });
    }

    /// Forgets the files that no image maps, where there are many; `awaited` are mappings that are yet to be applied.
    /// Returns whether there were.
    pub(crate) fn forget_files<'a>(&mut self, awaited: impl Iterator<Item = &'a Mmap>) -> bool {
        if self.files.len() <= MANY_FILES {
            return false;
        }
        let images = self.processes.values().flatten();
        let mapped = images.flat_map(|image| image.mappings().map(|mapping| mapping.file));
        let mut used: HashSet<FileIdx> = mapped.collect();
        used.extend(awaited.map(|mmap| self.files.intern(&MappedFile::of(mmap))));
        self.files.retain(&used);
        true
    }

    /// A thread may rename itself; only the name of the leader is that of the process.
    fn comm(&mut self, pid: u32, tid: u32, comm: &Arc<str>, exec: bool, time: u64) {
        let image = self.image_at_mut(pid, time);
        if exec {
            // The mappings of the new program come after this record, and its other threads have ended.
            let (parent, cgroup) = image.map_or((0, Membership::default()), |before| {
                (before.parent, before.cgroup.inherited())
            });
            let mut image = ProcessImage::new(self.next_generation(), comm.clone(), time);
            (image.parent, image.cgroup) = (parent, cgroup);
            self.insert(pid, image);
        } else if let Some(image) = image
            && pid == tid
        {
            image.comm = comm.clone();
        }
    }

    pub(super) fn map(&mut self, mmap: &Mmap, time: u64) {
        let Some(end) = mmap.start.checked_add(mmap.len).filter(|_| 0 < mmap.len) else {
            return;
        };
        let file = self.intern_mmap(mmap);
        let mapping = ImageMapping {
            start: mmap.start,
            end,
            offset: mmap.offset,
            file,
            shared: mmap.shared,
            from: time,
        };
        if self.image_at(mmap.pid, time).is_none() {
            // Its fork was lost, or happened before the records began.
            let image = ProcessImage::new(self.next_generation(), Arc::default(), 0);
            self.insert(mmap.pid, image);
        }
        let is_vdso = Backing::of(&mmap.path) == Backing::Vdso;
        let mut is_crowded = false;
        if let Some(image) = self.image_at_mut(mmap.pid, time) {
            if is_vdso {
                // The kernel maps its code page below 4 GiB into 32-bit programs only.
                image.bits = if end.0 <= 1 << 32 { 32 } else { 64 };
            }
            is_crowded = image.add(mapping);
        }
        if is_crowded {
            self.crowded.push(mmap.pid);
        }
    }

    /// Forgets older mappings of a process that has far too many, and cannot be read any more.
    pub(crate) fn forget_older_mappings(&mut self, tgid: u32) {
        if let Some(image) = self.image_at_mut(tgid, u64::MAX) {
            image.forget_older_half();
        }
    }

    /// Processes with more mappings than can all be there still.
    pub(crate) fn take_crowded(&mut self) -> Vec<u32> {
        mem::take(&mut self.crowded)
    }

    /// The index of the file that a mapping names.
    pub(crate) fn intern_mmap(&mut self, mmap: &Mmap) -> FileIdx {
        self.intern(&MappedFile::of(mmap))
    }

    /// The index of a file.
    pub(crate) fn intern(&mut self, file: &MappedFile) -> FileIdx {
        self.files.intern(file)
    }

    pub(super) fn next_generation(&mut self) -> Generation {
        self.n_generations += 1;
        Generation(self.n_generations)
    }

    pub(super) fn insert(&mut self, tgid: u32, image: ProcessImage) {
        let images = self.processes.entry(tgid).or_default();
        let at = images.partition_point(|other| other.from <= image.from);
        // Most processes have one image, or that of the fork and that of the exec.
        images.reserve_exact(1);
        images.insert(at, image);
    }

    pub(super) fn image_at_mut(&mut self, tgid: u32, time: u64) -> Option<&mut ProcessImage> {
        let images = self.processes.get_mut(&tgid)?;
        let n_begun = images.partition_point(|image| image.from <= time);
        images.get_mut(n_begun.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests;
