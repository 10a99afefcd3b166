//! Ring 3: which program of which process was hit where, and the text that ran there.
//!
//! Lookups are the same for live runs and recordings; [`Origin`] says where the bytes come from. What follows a live run
//! (records that come late, processes that are read again) is in [`super::live`].

use std::collections::HashMap;
use std::mem;

use super::cgroups::Cgroups;
use super::haste::Haste;
use super::hit_process::{CgroupTable, HitMapping, HitMappings, HitProcess, Shows};
use super::image_set::{ImageIdx, ImageSet, Mapper};
use super::live::LiveProcesses;
use super::patched_text::{PrivateFile, RanText};
use super::process_image::{Generation, ImageMapping, ProcessImage};
use super::process_index::ProcessIndex;
use super::recorded_files::RecordedFiles;
use super::recorded_time::RecordedTime;
use super::threads::Threads;
use crate::lookup_cache::{LookupCache, Validity};
use crate::raw::TaskKey;
use hbbp_elf::parser::Parser;
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::advice::Advised;
use hbbp_model::record::Timed;
use hbbp_model::snapshot::fold::replaced_at;
use hbbp_model::snapshot::{Losses, Module, Process, ProcessIdx, Text};

/// Ring 3 of a run or a recording.
#[derive(Debug)]
pub struct UserSpace {
    pub(super) index: ProcessIndex,
    pub(super) images: ImageSet,
    pub(crate) origin: Origin,
    pub(super) processes: Vec<HitProcess>,
    pub(super) hit_mappings: HitMappings,
    pub(super) threads: Threads,
    pub(super) cgroups: Cgroups,
    pub(super) process_idx: HashMap<(Option<Generation>, TaskKey), ProcessIdx>,
    /// Mappings that were hit since the index last changed.
    mappings: LookupCache<RanMapping>,
    /// How often it changed.
    n_changes: u64,
}

/// Where processes and their bytes come from.
#[derive(Debug)]
pub enum Origin {
    /// From this machine, as they run.
    Live(Box<LiveProcesses>),
    /// From a recording: all is mapped already, and files are found by name and build id.
    Recorded(RecordedTime, Box<RecordedFiles>),
}

/// Slots for mappings: a handful for each program that runs.
const MAPPING_SLOTS: usize = 256;
/// Most mappings of programs and libraries are longer than this number of bytes, as a power of two.
const MAPPING_NEAR: u32 = 18;

/// A mapping as a task ran it.
#[derive(Clone, Copy, Debug)]
struct RanMapping {
    process: ProcessIdx,
    generation: Option<Generation>,
    start: Va,
    from: u64,
    hit: HitMapping,
}

/// What a hit led to.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The process image that ran.
    pub process: ProcessIdx,
    /// The first address after the text that is there, and the validity of all this until the next
    /// [change](UserSpace::n_changes); `None` without text.
    pub text: Option<(Va, Validity)>,
}

impl Origin {
    /// When the drain at hand began, in ns.
    fn drain_start(&self) -> u64 {
        match self {
            Self::Live(live) => live.drain.start,
            Self::Recorded(..) => 0,
        }
    }
}

impl UserSpace {
    /// With processes of this origin, none of which is known yet.
    fn new(origin: Origin) -> Self {
        Self {
            index: ProcessIndex::default(),
            images: ImageSet::default(),
            origin,
            processes: Vec::new(),
            hit_mappings: HitMappings::default(),
            threads: Threads::default(),
            cgroups: Cgroups::default(),
            process_idx: HashMap::new(),
            mappings: LookupCache::new(MAPPING_SLOTS, MAPPING_NEAR),
            n_changes: 0,
        }
    }

    /// Of this machine.
    pub fn live(parser: &Parser) -> Self {
        let mut live = LiveProcesses::default();
        live.memory.parser = parser.clone();
        let mut space = Self::new(Origin::Live(Box::new(live)));
        space.images.parse_with(parser);
        space
    }

    /// Sets what tells that no more files are to be opened.
    pub fn hasten_with(&mut self, haste: Haste) {
        self.images.hasten_with(haste);
    }

    /// Of a recording with these records, which must stand in the order of time.
    pub fn recorded(records: &[Timed], files: RecordedFiles) -> Self {
        let mut index = ProcessIndex::default();
        let time = RecordedTime::new(records, &mut index);
        let mut space = Self::new(Origin::Recorded(time, Box::new(files)));
        space.index = index;
        records.iter().for_each(|timed| space.threads.take(timed));
        space
    }

    pub(super) fn changed(&mut self) {
        self.mappings.clear();
        self.n_changes += 1;
    }

    /// Sees to it that the text around `at`, which `task` ran at `time`, is there.
    pub fn hit(&mut self, task: TaskKey, time: u64, at: Va, losses: &mut Losses) -> Hit {
        if let Some((validity, ran)) = self.mappings.get(task, time, at) {
            let (validity, ran) = (validity.clone(), *ran);
            return self.text(ran, validity, at, losses);
        }
        self.read_unsure(task.tgid);
        let mut found = self.look_up(task, time, at);
        if found.1.is_none() && self.rescan(task.tgid, time) {
            found = self.look_up(task, time, at);
        }
        let (image, mapping) = found;
        let process = self.process(task, image.as_ref(), losses);
        let ran = match image.zip(mapping) {
            Some((image, mapping)) => {
                let ran = self.ran(process, task, &image, &mapping, losses);
                ran.map(|ran| (ran, self.validity(task, &image, &mapping, time, at)))
            }
            None => self.named(process, at, losses).map(|ran| {
                let at = at..Va(at.0.saturating_add(1));
                let time = time..time.saturating_add(1);
                (ran, Validity { task, at, time })
            }),
        };
        match ran {
            Some((ran, validity)) => {
                self.mappings.add(at, &validity, ran);
                self.text(ran, validity, at, losses)
            }
            None => Hit { process, text: None },
        }
    }

    fn validity(
        &self,
        task: TaskKey,
        image: &ProcessImage,
        mapping: &ImageMapping,
        time: u64,
        at: Va,
    ) -> Validity {
        let visible = image.visible_at(at, time);
        let (at, times) = match visible.filter(|visible| visible.mapping == mapping) {
            Some(visible) => (visible.at, visible.time),
            None => (at..Va(at.0.saturating_add(1)), time..time.saturating_add(1)),
        };
        let same_image = self.index.same_image(task.tgid, time);
        let time = times.start.max(same_image.start)..times.end.min(same_image.end);
        Validity { task, at, time }
    }

    fn text(&mut self, ran: RanMapping, validity: Validity, at: Va, losses: &mut Losses) -> Hit {
        let RanMapping {
            process,
            generation,
            start,
            from,
            hit,
        } = ran;
        let text = || {
            let mapped = hit.image_start..hit.image_start.checked_add(hit.end.since(start)?)?;
            let image_at = hit.image_start.checked_add(at.since(start)?)?;
            let held = match self.images.hit(hit.image, image_at) {
                Some(held) => held,
                None => {
                    let memory = match &mut self.origin {
                        Origin::Live(live) if self.index.is_live(validity.task.tgid, generation) => {
                            Some(&mut live.memory)
                        }
                        _ => None,
                    };
                    self.images.cover(hit.image, image_at, mapped, memory, losses)?
                }
            };
            if let Origin::Live(live) = &mut self.origin
                && hit.private.is_some()
            {
                let (at, mapping) = (held.start, (start, from));
                live.comparison.ran(RanText { process, mapping, at });
            }
            let end = start.checked_add(held.end.since(hit.image_start)?)?;
            let before = held.start.since(hit.image_start).unwrap_or(0);
            Some((end, validity.within(start.checked_add(before)?..end)))
        };
        Hit {
            process,
            text: text(),
        }
    }

    fn look_up(&self, task: TaskKey, time: u64, at: Va) -> (Option<ProcessImage>, Option<ImageMapping>) {
        let image = self.index.image_at(task.tgid, time);
        let mapping = image.and_then(|image| image.mapping_at(at, time)).copied();
        (image.cloned(), mapping)
    }

    /// How often what is known of processes changed: results of earlier lookups are no longer valid.
    pub fn n_changes(&self) -> u64 {
        self.n_changes
    }

    /// The mapping of a process image as it was hit.
    fn ran(
        &mut self,
        process: ProcessIdx,
        task: TaskKey,
        image: &ProcessImage,
        mapping: &ImageMapping,
        losses: &mut Losses,
    ) -> Option<RanMapping> {
        let generation = Some(image.generation);
        let of = |hit| RanMapping {
            process,
            generation,
            start: mapping.start,
            from: mapping.from,
            hit,
        };
        let key = (mapping.start, mapping.from);
        if let Some(known) = self.hit_mappings.get(process, key) {
            return Some(of(*known));
        }
        let file = self.index.file(mapping.file)?;
        let (idx, image_start) = match &mut self.origin {
            Origin::Live(live) => {
                let mapper = Mapper {
                    tgid: task.tgid,
                    generation: image.generation,
                    bits: image.bits,
                    ancestors: self.index.ancestors(image),
                };
                let is_live = self.index.is_live(task.tgid, generation);
                let memory = is_live.then_some(&mut live.memory);
                self.images.place(&mapper, mapping, file, memory)
            }
            Origin::Recorded(_, files) => {
                let idx = self.images.recorded(mapping.file, file, files, losses);
                (idx, self.images.image_start(idx, mapping)?)
            }
        };
        let hit = HitMapping {
            end: mapping.end,
            image: idx,
            image_start,
            private: (!mapping.shared && self.images.is_file(idx)).then(|| PrivateFile::of(mapping)),
            hit_since: self.origin.drain_start(),
            shows: Shows::Unknown,
        };
        self.hit_mappings.insert(process, key, hit);
        Some(of(hit))
    }

    /// The file of a recording that a text names an address of, as if it were mapped.
    fn named(&mut self, process: ProcessIdx, at: Va, losses: &mut Losses) -> Option<RanMapping> {
        let Origin::Recorded(_, files) = &mut self.origin else {
            return None;
        };
        let (named, file) = files.named_at(at)?;
        let idx = self.index.intern(&file);
        let hit = HitMapping {
            end: named.base.checked_add(named.len)?,
            image: self.images.recorded(idx, &file, files, losses),
            image_start: ImageAddr(0),
            private: None,
            hit_since: 0,
            shows: Shows::Unknown,
        };
        self.hit_mappings.insert(process, (named.base, 0), hit);
        Some(RanMapping {
            process,
            generation: None,
            start: named.base,
            from: 0,
            hit,
        })
    }

    /// The text that a process of a recording ran at `time`, from `at` to the end of what was read around it, and the size in bits
    /// to decode it with.
    pub fn recorded_text(
        &mut self,
        tgid: u32,
        time: u64,
        at: Va,
        losses: &mut Losses,
    ) -> Option<(u32, &[u8])> {
        let task = self.recorded_task(tgid, time);
        self.hit(task, time, at, losses);
        let (_, ran) = self.mappings.get(task, time, at)?;
        let image_at = ran.hit.image_start.checked_add(at.since(ran.start)?)?;
        let bits = self.images.bits(ran.hit.image)?;
        Some((bits, self.images.text(ran.hit.image)?.from(image_at)?))
    }

    /// The intervals in which versions of the text of processes begin.
    pub fn version_starts(&self) -> impl Iterator<Item = u32> {
        self.images.version_starts()
    }

    /// Times at which a mapping that was hit took the place of another one.
    pub fn replaced_mappings(&self) -> impl Iterator<Item = u64> {
        self.processes.iter().zip(1..).flat_map(|(process, idx)| {
            let mappings = self.hit_mappings.of(ProcessIdx(idx));
            let replaced = replaced_at(mappings.map(|((start, from), hit)| (start..hit.end, from)));
            let patched = process.patched.iter().filter(|(_, range)| !range.always);
            replaced.chain(patched.map(|((_, from), _)| *from))
        })
    }

    /// What a reader should know of the files of a recording, and of threads since the last call.
    pub fn take_notes(&mut self) -> Vec<Advised> {
        let of_files = match &self.origin {
            Origin::Recorded(_, files) => files.notes(),
            Origin::Live(_) => Vec::new(),
        };
        let of_threads = self.threads.take_note().map(Advised::from);
        of_files.into_iter().chain(of_threads).collect()
    }

    /// Hands over the images that were hit since the last call, and their text; returns the processes without the kernel,
    /// and the paths of their cgroups.
    pub fn emit(&mut self, modules: &mut Vec<Module>, text: &mut Vec<Text>) -> (Vec<Process>, Vec<String>) {
        let patched = self.processes.iter().flat_map(|process| process.patched.values());
        let patched = patched.map(|range| range.image);
        let mut hit: Vec<ImageIdx> = self.hit_mappings.images().chain(patched).collect();
        hit.sort_unstable();
        hit.dedup();
        let became = self.images.emit(modules, text, &hit);
        self.process_idx.clear();
        self.changed();
        let mut cgroups = CgroupTable::default();
        let mut processes: Vec<Process> = Vec::with_capacity(self.processes.len());
        let hit_mappings = mem::take(&mut self.hit_mappings);
        for (process, idx) in mem::take(&mut self.processes).into_iter().zip(1..) {
            let thread = process.thread.as_ref();
            let image = thread.and_then(|thread| processes.get((thread.of.0 as usize).checked_sub(1)?));
            let shared = image.map(|image| (image.comm.clone(), image.mappings.clone()));
            let mut process = process.emit(hit_mappings.of(ProcessIdx(idx)), &became, &mut cgroups);
            if let Some((comm, mappings)) = shared {
                (process.comm, process.mappings) = (comm, mappings);
            }
            processes.push(process);
        }
        (processes, cgroups.into_paths())
    }
}
