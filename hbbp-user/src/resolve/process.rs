//! Which program a process ran at a given time, and what was mapped into it: a pure index.
//!
//! It is filled from a walk over /proc ([`super::proc_scan`]) and from timed records, in the order of time.
//! A process is a list of generations: a fork starts one with the mappings of the parent, an exec starts one with
//! none, and a process id that is used again starts another.
//! The kernel counts by (tgid, self_exec_id), a number which neither /proc nor the records show, so a count finds its
//! generation by the time of its first sample.
//! Forked children share the mappings of their parent until one of them changes its own, and what has ended is
//! dropped after each drain, so memory follows the number of live processes.

use std::collections::HashMap;
use std::sync::Arc;

use crate::addr::{FileOff, Va};
use crate::record::{FileIdentity, Mmap, Record, Timed};

use super::proc_scan::Scanned;

/// A compiler at run time may map without end; the oldest hidden mappings beyond this number are forgotten.
const MAX_MAPPINGS: usize = 8192;

/// A generation of a process: one program in one process. Unique over the whole run.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Generation(pub u64);

/// Index of a [`MappedFile`] in the index that gave it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FileIdx(pub u32);

/// What a mapping says of its file.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct MappedFile {
    /// Path as the process saw it, or the kernel's name for memory without a file.
    pub path: String,
    /// Device and inode, or build id.
    pub identity: FileIdentity,
}

/// A mapping of a process image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ImageMapping {
    /// First address.
    pub start: Va,
    /// First address behind it.
    pub end: Va,
    /// Offset in the file of the byte at `start`.
    pub offset: FileOff,
    /// What is mapped.
    pub file: FileIdx,
    /// Time of the mapping in ns; 0 where it was there before the run.
    pub from: u64,
}

/// One program in one process.
#[derive(Clone, Debug)]
pub struct ProcessImage {
    /// Its name in this index.
    pub generation: Generation,
    /// Command name, the last one seen.
    pub comm: Arc<str>,
    /// Since when, in ns.
    from: u64,
    /// Tasks that are alive.
    n_threads: u32,
    /// When its last task ended.
    ended: Option<u64>,
    /// Sorted by (start, from).
    mappings: Arc<Vec<ImageMapping>>,
}

/// All process images that may still have samples.
#[derive(Debug, Default)]
pub struct ProcessIndex {
    /// Generations of each tgid in the order of time.
    processes: HashMap<u32, Vec<ProcessImage>>,
    files: Vec<MappedFile>,
    file_idx: HashMap<MappedFile, FileIdx>,
    n_generations: u64,
}

impl ProcessImage {
    /// The mapping that the address `at` belonged to at `time`: the last one made, as it hides those before it.
    pub fn mapping_at(&self, at: Va, time: u64) -> Option<&ImageMapping> {
        let n_before = self.mappings.partition_point(|m| m.start <= at);
        let holding = self
            .mappings
            .iter()
            .take(n_before)
            .filter(|m| at < m.end && m.from <= time);
        holding.max_by_key(|m| m.from)
    }

    /// Its mappings, sorted by (start, from).
    pub fn mappings(&self) -> &[ImageMapping] {
        &self.mappings
    }

    fn add(&mut self, new: ImageMapping) {
        let same = |m: &ImageMapping| {
            m.start == new.start && m.end == new.end && m.offset == new.offset && m.file == new.file
        };
        if self.mapping_at(new.start, new.from).is_some_and(same) {
            return;
        }
        let mappings = Arc::make_mut(&mut self.mappings);
        if MAX_MAPPINGS <= mappings.len() {
            forget_hidden(mappings);
        }
        let at = mappings.partition_point(|m| (m.start, m.from) <= (new.start, new.from));
        mappings.insert(at, new);
    }
}

/// Drops the mappings that later ones hide wholly, and the older half where that is not enough.
fn forget_hidden(mappings: &mut Vec<ImageMapping>) {
    let mut newest: Vec<ImageMapping> = Vec::new();
    // Of the mappings with one start the last stands last; hiding by a neighbour with another start is rare.
    for mapping in mappings.iter() {
        match newest.last_mut() {
            Some(last) if last.start == mapping.start && last.end <= mapping.end => *last = *mapping,
            _ => newest.push(*mapping),
        }
    }
    if MAX_MAPPINGS / 2 < newest.len() {
        let mut times: Vec<u64> = newest.iter().map(|m| m.from).collect();
        let (_, median, _) = times.select_nth_unstable(newest.len() / 2);
        newest.retain(|m| *median <= m.from || m.from == 0);
        newest.truncate(MAX_MAPPINGS - 1);
    }
    *mappings = newest;
}

impl ProcessIndex {
    /// What a mapping's file is called and known by.
    pub fn file(&self, idx: FileIdx) -> Option<&MappedFile> {
        self.files.get(idx.0 as usize)
    }

    /// The image that process `tgid` ran at `time`; where the time lies before all that is known, the first one.
    pub fn image_at(&self, tgid: u32, time: u64) -> Option<&ProcessImage> {
        let images = self.processes.get(&tgid)?;
        let n_begun = images.partition_point(|image| image.from <= time);
        images.get(n_begun.saturating_sub(1))
    }

    /// The image that process `tgid` runs now, as far as the records tell; `None` where it has ended.
    pub fn live(&self, tgid: u32) -> Option<&ProcessImage> {
        self.processes
            .get(&tgid)?
            .last()
            .filter(|image| image.ended.is_none())
    }

    /// Width in bits of the code of an image: the kernel maps its code page below 4 GiB into 32-bit programs only.
    pub fn bits(&self, image: &ProcessImage) -> u32 {
        let vdso = |m: &&ImageMapping| self.file(m.file).is_some_and(|f| f.path == "[vdso]");
        let is_low = image
            .mappings
            .iter()
            .find(vdso)
            .is_some_and(|m| m.end.0 <= 1 << 32);
        if is_low { 32 } else { 64 }
    }

    /// Number of process images held.
    pub fn n_images(&self) -> usize {
        self.processes.values().map(Vec::len).sum()
    }

    /// Takes over what /proc shows of a process, as of `time` (0: since before the run).
    /// A process that is known already keeps its image and gains the mappings that it lacks.
    pub fn scanned(&mut self, scanned: &Scanned, time: u64) {
        let tgid = scanned.tgid;
        if self.live(tgid).is_none() {
            let comm = Arc::from(scanned.comm.as_str());
            let image = self.new_image(comm, time, scanned.n_threads, Arc::default());
            self.insert(tgid, image);
        }
        for mapping in &scanned.mappings {
            self.map(mapping, time);
        }
    }

    /// Takes over one record. Records must come in the order of time; a late one counts for the image of its time.
    pub fn apply(&mut self, timed: &Timed) {
        let time = timed.time;
        match &timed.record {
            Record::Mmap(mmap) if mmap.pid != u32::MAX => self.map(mmap, time),
            Record::Comm { pid, tid, comm, exec } => self.comm(*pid, *tid, comm, *exec, time),
            Record::Fork { pid, parent_pid, .. } if pid == parent_pid => {
                if let Some(image) = self.image_at_mut(*pid, time) {
                    image.n_threads = image.n_threads.saturating_add(1);
                }
            }
            Record::Fork { pid, parent_pid, .. } => {
                let parent = self.image_at(*parent_pid, time);
                let (comm, mappings) = parent
                    .map(|p| (p.comm.clone(), p.mappings.clone()))
                    .unwrap_or_default();
                let image = self.new_image(comm, time, 1, mappings);
                self.insert(*pid, image);
            }
            Record::Exit { pid, .. } => {
                if let Some(image) = self.image_at_mut(*pid, time) {
                    image.n_threads = image.n_threads.saturating_sub(1);
                    if image.n_threads == 0 {
                        image.ended = Some(time);
                    }
                }
            }
            Record::Mmap(_) | Record::Ksymbol { .. } | Record::TextPoke { .. } | Record::Lost(_) => {}
        }
    }

    /// Forgets the images that ended, or gave way to another one, before `time`: all their samples have been read.
    pub fn forget_before(&mut self, time: u64) {
        self.processes.retain(|_, images| {
            let n_over = images.iter().skip(1).take_while(|next| next.from < time).count();
            images.drain(..n_over);
            images.retain(|image| image.ended.is_none_or(|ended| time <= ended));
            !images.is_empty()
        });
    }

    /// A thread may rename itself; only the name of the leader is that of the process.
    fn comm(&mut self, pid: u32, tid: u32, comm: &str, exec: bool, time: u64) {
        let image = self.image_at_mut(pid, time);
        if exec {
            // The mappings of the new program come after this record, and its other threads have ended.
            let image = self.new_image(Arc::from(comm), time, 1, Arc::default());
            self.insert(pid, image);
        } else if let Some(image) = image
            && pid == tid
        {
            image.comm = Arc::from(comm);
        }
    }

    fn map(&mut self, mmap: &Mmap, time: u64) {
        let Some(end) = mmap.start.checked_add(mmap.len).filter(|_| 0 < mmap.len) else {
            return;
        };
        let file = self.intern(mmap);
        let mapping = ImageMapping {
            start: mmap.start,
            end,
            offset: mmap.offset,
            file,
            from: time,
        };
        if self.image_at(mmap.pid, time).is_none() {
            // Its fork was lost, or happened before the records began.
            let image = self.new_image(Arc::default(), 0, 1, Arc::default());
            self.insert(mmap.pid, image);
        }
        if let Some(image) = self.image_at_mut(mmap.pid, time) {
            image.add(mapping);
        }
    }

    /// The index of the file that a mapping names.
    pub fn intern(&mut self, mmap: &Mmap) -> FileIdx {
        let file = MappedFile {
            path: mmap.path.clone(),
            identity: mmap.identity.clone(),
        };
        match self.file_idx.get(&file) {
            Some(idx) => *idx,
            None => {
                let idx = FileIdx(u32::try_from(self.files.len()).unwrap_or(u32::MAX));
                self.files.push(file.clone());
                self.file_idx.insert(file, idx);
                idx
            }
        }
    }

    fn new_image(
        &mut self,
        comm: Arc<str>,
        from: u64,
        n_threads: u32,
        mappings: Arc<Vec<ImageMapping>>,
    ) -> ProcessImage {
        self.n_generations += 1;
        ProcessImage {
            generation: Generation(self.n_generations),
            comm,
            from,
            n_threads,
            ended: None,
            mappings,
        }
    }

    fn insert(&mut self, tgid: u32, image: ProcessImage) {
        let images = self.processes.entry(tgid).or_default();
        let at = images.partition_point(|other| other.from <= image.from);
        images.insert(at, image);
    }

    fn image_at_mut(&mut self, tgid: u32, time: u64) -> Option<&mut ProcessImage> {
        let images = self.processes.get_mut(&tgid)?;
        let n_begun = images.partition_point(|image| image.from <= time);
        images.get_mut(n_begun.saturating_sub(1))
    }
}
