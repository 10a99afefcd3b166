//! Ring 3 of a run: which program of which process was hit where, and the text that ran there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::addr::{ImageAddr, Va};
use crate::record::{Record, Timed};
use crate::snapshot::fold::replaced_at;
use crate::snapshot::{Loss, Losses, Mapping, Module, ModuleIdx, Process, ProcessIdx, Text};

use super::image_set::{ImageIdx, ImageSet, Mapper, is_file};
use super::kept::{Answers, Holds};
use super::proc_scan::{Scanned, read_process};
use super::process::ProcessIndex;
use super::process_image::{Generation, ImageMapping, ProcessImage};
use super::process_memory::ProcessMemory;
use super::raw::TaskKey;

/// Records wait for those of other CPUs, which may come later and be older; beyond this number the oldest are taken.
const MAX_PENDING: usize = 1 << 16;
/// No CPU's records come later than this, in ns: its ring is read at least as often.
const LATEST: u64 = 2_000_000_000;
/// Processes whose /proc entry is read once more in one interval, for addresses that no record explains.
const MAX_RESCANNED: usize = 256;

/// Ring 3 of a run.
#[derive(Debug)]
pub struct UserSpace {
    index: ProcessIndex,
    pending: Vec<Timed>,
    images: ImageSet,
    memory: ProcessMemory,
    processes: Vec<HitProcess>,
    process_idx: HashMap<(Option<Generation>, TaskKey), ProcessIdx>,
    rescanned: HashSet<u32>,
    /// Mappings that were hit since the index last changed.
    ran: Answers<Ran>,
    /// How often it changed.
    n_changes: u64,
}

impl Default for UserSpace {
    fn default() -> Self {
        Self {
            index: ProcessIndex::default(),
            pending: Vec::new(),
            images: ImageSet::default(),
            memory: ProcessMemory::default(),
            processes: Vec::new(),
            process_idx: HashMap::new(),
            rescanned: HashSet::new(),
            ran: Answers::new(RAN, RAN_NEAR),
            n_changes: 0,
        }
    }
}

/// Mappings that are looked up again at once: a handful for each program that runs.
const RAN: usize = 256;
/// Mappings of programs and libraries are mostly longer than so many bytes, as a power of two.
const RAN_NEAR: u32 = 18;

/// A mapping as a task ran it.
#[derive(Clone, Copy, Debug)]
struct Ran {
    process: ProcessIdx,
    generation: Generation,
    start: Va,
    hit: HitMapping,
}

/// A process image that has counts.
#[derive(Debug)]
struct HitProcess {
    task: TaskKey,
    comm: Arc<str>,
    /// Mappings that were hit, by (start, from).
    mappings: BTreeMap<(Va, u64), HitMapping>,
}

#[derive(Clone, Copy, Debug)]
struct HitMapping {
    end: Va,
    image: ImageIdx,
    image_start: ImageAddr,
}

/// What a hit led to.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The process image that ran.
    pub process: ProcessIdx,
    /// The text that is kept there, as long as it goes on, and for which of its addresses and which times all this is so
    /// until the next [change](UserSpace::n_changes); `None` where there is none.
    pub kept: Option<(Va, Holds)>,
}

impl UserSpace {
    /// Takes over the processes that were there before the run, and opens their files.
    pub fn scanned(&mut self, processes: &[Scanned]) {
        for process in processes {
            self.index.scanned(process, 0);
            for mmap in &process.mappings {
                self.open_early(&Timed {
                    time: 0,
                    record: Record::Mmap(mmap.clone()),
                });
            }
        }
    }

    /// Takes a record as it comes, in any order, and opens the file of a new mapping while its process lives.
    pub fn take(&mut self, timed: Timed) {
        self.open_early(&timed);
        self.pending.push(timed);
        if MAX_PENDING <= self.pending.len() {
            let newest = self.pending.iter().map(|t| t.time).max().unwrap_or(0);
            self.catch_up(newest.saturating_sub(LATEST));
        }
    }

    /// Applies the records up to `time`, in the order of time.
    pub fn catch_up(&mut self, time: u64) {
        self.pending.sort_by_key(|t| t.time);
        let n_due = self.pending.partition_point(|t| t.time <= time);
        if n_due == 0 {
            return;
        }
        for timed in self.pending.drain(..n_due) {
            self.index.apply(&timed);
        }
        self.changed();
    }

    fn changed(&mut self) {
        self.ran.clear();
        self.n_changes += 1;
    }

    fn open_early(&mut self, timed: &Timed) {
        if let Record::Mmap(mmap) = &timed.record
            && is_file(&mmap.path)
        {
            let file = self.index.intern(mmap);
            // Where it fails, the reason is counted when the mapping is hit.
            let _ = self.images.open(file, mmap, &[]);
        }
    }

    /// Sees to it that the text around `at`, which `task` ran at `time`, is kept.
    pub fn hit(&mut self, task: TaskKey, time: u64, at: Va, losses: &mut Losses) -> Hit {
        if let Some((holds, ran)) = self.ran.get(task, time, at) {
            let (holds, ran) = (holds.clone(), *ran);
            return self.text(ran, holds, at, losses);
        }
        let mut found = self.look_up(task, time, at);
        if found.1.is_none() && self.rescan(task.tgid, time) {
            found = self.look_up(task, time, at);
        }
        let (image, mapping) = found;
        let process = self.process(task, image.as_ref());
        let ran = image.zip(mapping).and_then(|(image, mapping)| {
            let hit = self.place(process, task, &image, &mapping)?;
            let (addresses, times) = image.same_mapping(&mapping, at, time);
            let same_image = self.index.same_image(task.tgid, time);
            let time = times.start.max(same_image.start)..times.end.min(same_image.end);
            let holds = Holds {
                task,
                at: addresses,
                time,
            };
            let ran = Ran {
                process,
                generation: image.generation,
                start: mapping.start,
                hit,
            };
            self.ran.add(at, &holds, ran);
            Some((ran, holds))
        });
        match ran {
            Some((ran, holds)) => self.text(ran, holds, at, losses),
            None => Hit { process, kept: None },
        }
    }

    fn text(&mut self, ran: Ran, holds: Holds, at: Va, losses: &mut Losses) -> Hit {
        let Ran {
            process,
            generation,
            start,
            hit,
        } = ran;
        let kept = || {
            let mapped = hit.image_start..hit.image_start.checked_add(hit.end.since(start)?)?;
            let image_at = hit.image_start.checked_add(at.since(start)?)?;
            let stretch = match self.images.stretch_at(hit.image, image_at) {
                Some(stretch) => stretch,
                None => {
                    let is_live = is_live(&self.index, holds.task.tgid, generation);
                    let memory = is_live.then_some(&mut self.memory);
                    self.images.cover(hit.image, image_at, mapped, memory, losses)?
                }
            };
            let behind = start.checked_add(stretch.end.since(hit.image_start)?)?;
            let before = stretch.start.since(hit.image_start).unwrap_or(0);
            Some((behind, holds.within(start.checked_add(before)?..behind)))
        };
        Hit {
            process,
            kept: kept(),
        }
    }

    /// The process image that `task` ran at `time`, for counts whose address is no text of its own.
    pub fn process_at(&mut self, task: TaskKey, time: u64) -> ProcessIdx {
        let image = self.index.image_at(task.tgid, time).cloned();
        self.process(task, image.as_ref())
    }

    fn look_up(&self, task: TaskKey, time: u64, at: Va) -> (Option<ProcessImage>, Option<ImageMapping>) {
        let image = self.index.image_at(task.tgid, time);
        let mapping = image.and_then(|image| image.mapping_at(at, time)).copied();
        (image.cloned(), mapping)
    }

    /// Reads a live process once more, once in an interval: records may have been lost, and some changes have none.
    fn rescan(&mut self, tgid: u32, time: u64) -> bool {
        if MAX_RESCANNED <= self.rescanned.len() || !self.rescanned.insert(tgid) {
            return false;
        }
        let scanned = read_process(tgid);
        if let Some(scanned) = &scanned {
            self.index.scanned(scanned, time);
            self.changed();
        }
        scanned.is_some()
    }

    /// How often what is known of processes changed: answers from before hold no more.
    pub fn n_changes(&self) -> u64 {
        self.n_changes
    }

    fn process(&mut self, task: TaskKey, image: Option<&ProcessImage>) -> ProcessIdx {
        let key = (image.map(|i| i.generation), task);
        let idx = match self.process_idx.get(&key) {
            Some(idx) => *idx,
            None => {
                let comm = Arc::default();
                self.processes.push(HitProcess {
                    task,
                    comm,
                    mappings: BTreeMap::new(),
                });
                // The kernel stands before all of them.
                let idx = ProcessIdx(u32::try_from(self.processes.len()).unwrap_or(u32::MAX));
                self.process_idx.insert(key, idx);
                idx
            }
        };
        if let (Some(image), Some(process)) = (image, hit_process(&mut self.processes, idx)) {
            process.comm = image.comm.clone();
        }
        idx
    }

    fn place(
        &mut self,
        idx: ProcessIdx,
        task: TaskKey,
        image: &ProcessImage,
        mapping: &ImageMapping,
    ) -> Option<HitMapping> {
        let process = hit_process(&mut self.processes, idx)?;
        let key = (mapping.start, mapping.from);
        if let Some(known) = process.mappings.get(&key) {
            return Some(*known);
        }
        let bits = self.index.bits(image);
        let ancestors = self.index.ancestors(image);
        let mapper = Mapper {
            tgid: task.tgid,
            generation: image.generation,
            bits,
            ancestors,
        };
        let file = self.index.file(mapping.file)?;
        let memory = is_live(&self.index, mapper.tgid, mapper.generation).then_some(&mut self.memory);
        let (image, image_start) = self.images.place(&mapper, mapping, file, memory);
        let hit = HitMapping {
            end: mapping.end,
            image,
            image_start,
        };
        process.mappings.insert(key, hit);
        Some(hit)
    }

    /// Reads memory that was hit before once more, at the end of the interval `idx`.
    pub fn reread(&mut self, idx: u32, losses: &mut Losses) {
        let index = &self.index;
        let n_changed = self.images.reread(
            idx,
            |owner| is_live(index, owner.tgid, owner.generation),
            &mut self.memory,
        );
        losses.add(Loss::TextUncertain, n_changed);
    }

    /// The intervals in which versions of the text of processes begin.
    pub fn version_starts(&self) -> impl Iterator<Item = u32> {
        self.images.version_starts()
    }

    /// Times at which a mapping that was hit took the place of another one.
    pub fn replaced_mappings(&self) -> impl Iterator<Item = u64> {
        self.processes.iter().flat_map(|process| {
            let mappings = process.mappings.iter();
            replaced_at(mappings.map(|((start, from), hit)| (*start..hit.end, *from)))
        })
    }

    /// Ends an interval: what ended before `time` has had its last sample.
    pub fn forget_before(&mut self, time: u64) {
        self.index.forget_before(time);
        let awaited = self.pending.iter().filter_map(|timed| match &timed.record {
            Record::Mmap(mmap) => Some(mmap),
            _ => None,
        });
        if self.index.forget_files(awaited) {
            self.images.forget_files(|file| self.index.file(file).is_some());
        }
        self.memory.close();
        self.rescanned.clear();
    }

    /// Hands over the images that were hit and their text, and returns the processes without the kernel.
    pub fn emit(self, modules: &mut Vec<Module>, text: &mut Vec<Text>) -> Vec<Process> {
        let mappings = self.processes.iter().flat_map(|p| p.mappings.values());
        let mut hit: Vec<ImageIdx> = mappings.map(|m| m.image).collect();
        hit.sort_unstable();
        hit.dedup();
        let became = self.images.emit(modules, text, &hit);
        let processes = self.processes.into_iter();
        processes.map(|process| process.emit(&became)).collect()
    }
}

impl HitProcess {
    fn emit(self, became: &HashMap<ImageIdx, ModuleIdx>) -> Process {
        let mapping = |((start, from), hit): ((Va, u64), HitMapping)| {
            let module = *became.get(&hit.image)?;
            Some(Mapping {
                start,
                end: hit.end,
                module,
                image_start: hit.image_start,
                from,
            })
        };
        Process {
            tgid: self.task.tgid,
            exec_id: self.task.exec_id,
            comm: self.comm.as_ref().to_owned(),
            mappings: self.mappings.into_iter().filter_map(mapping).collect(),
        }
    }
}

/// Whether a process still runs the program that it ran, as far as the records tell.
fn is_live(index: &ProcessIndex, tgid: u32, generation: Generation) -> bool {
    index.live(tgid).is_some_and(|live| live.generation == generation)
}

/// The process at an index that counts the kernel as the first one.
fn hit_process(processes: &mut [HitProcess], idx: ProcessIdx) -> Option<&mut HitProcess> {
    processes.get_mut((idx.0 as usize).checked_sub(1)?)
}
