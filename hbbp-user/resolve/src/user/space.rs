//! Ring 3: what is known of processes, their mappings and their images, and of what was hit of them.
//!
//! Hits are looked up in [`super::hits`]. What follows a live run (records that come late, processes that are read again)
//! is in [`super::live`].

use std::collections::HashMap;
use std::mem;

use super::cgroups::Cgroups;
use super::haste::Haste;
use super::hit_mappings::{HitMapping, HitMappings};
use super::hit_process::{CgroupTable, HitProcess};
use super::image_set::{ImageIdx, ImageSet};
use super::live_processes::LiveProcesses;
use super::process_image::Generation;
use super::process_index::ProcessIndex;
use super::recorded_files::RecordedFiles;
use super::recorded_time::RecordedTime;
use super::threads::Threads;
use crate::lookup_cache::LookupCache;
use crate::raw::TaskKey;
use hbbp_elf::parser::Parser;
use hbbp_model::addr::Va;
use hbbp_model::advice::Advised;
use hbbp_model::record::Timed;
use hbbp_model::snapshot::fold::replaced_at;
use hbbp_model::snapshot::{Module, Process, ProcessIdx, Text};

/// Ring 3 of a run or a recording.
#[derive(Debug)]
pub(crate) struct UserSpace {
    pub(super) index: ProcessIndex,
    pub(super) images: ImageSet,
    pub(crate) origin: Origin,
    pub(super) processes: Vec<HitProcess>,
    pub(super) hit_mappings: HitMappings,
    pub(super) threads: Threads,
    pub(super) cgroups: Cgroups,
    pub(super) process_idx: HashMap<(Option<Generation>, TaskKey), ProcessIdx>,
    /// Mappings that were hit since the index last changed.
    pub(super) mappings: LookupCache<RanMapping>,
    /// How often it changed.
    n_changes: u64,
}

/// Where processes and their bytes come from.
#[derive(Debug)]
pub(crate) enum Origin {
    /// From this machine, as they run.
    Live(Box<LiveProcesses>),
    /// From a recording: all is mapped already, and files are found by name and build id.
    Recorded(RecordedTime, Box<RecordedFiles>),
}

/// Slots for mappings: a handful for each program that runs.
const MAPPING_SLOTS: usize = 256;
/// Most mappings of programs and libraries are longer than this number of bytes, as a power of two.
const MAPPING_NEAR: u32 = 18;

/// A mapping as a task used it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RanMapping {
    pub(super) process: ProcessIdx,
    pub(super) generation: Option<Generation>,
    pub(super) start: Va,
    pub(super) from: u64,
    pub(super) hit: HitMapping,
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
    pub(crate) fn live(parser: &Parser) -> Self {
        let mut live = LiveProcesses::default();
        live.memory.parser = parser.clone();
        let mut space = Self::new(Origin::Live(Box::new(live)));
        space.images.parse_with(parser);
        space
    }

    /// Sets the deadline after which no more files are opened.
    pub(crate) fn hasten_with(&mut self, haste: Haste) {
        self.images.hasten_with(haste);
    }

    /// User space of a recording with these records, which must be in the order of time.
    pub(crate) fn recorded(records: &[Timed], files: RecordedFiles) -> Self {
        let mut index = ProcessIndex::default();
        let records = files.with_compiled(records);
        let time = RecordedTime::new(&records, &mut index);
        let mut space = Self::new(Origin::Recorded(time, Box::new(files)));
        space.index = index;
        records.iter().for_each(|timed| space.threads.take(timed));
        space
    }

    pub(super) fn changed(&mut self) {
        self.mappings.clear();
        self.n_changes += 1;
    }

    /// What is there of live processes; none in a recording.
    pub(super) fn live_processes(&mut self) -> Option<&mut LiveProcesses> {
        match &mut self.origin {
            Origin::Live(live) => Some(live),
            Origin::Recorded(..) => None,
        }
    }

    /// How often what is known of processes changed: results of earlier lookups are no longer valid.
    pub(crate) fn n_changes(&self) -> u64 {
        self.n_changes
    }

    /// The intervals in which versions of the text of processes begin.
    pub(crate) fn version_starts(&self) -> impl Iterator<Item = u32> {
        self.images.version_starts()
    }

    /// Times at which a mapping that was hit replaced another one.
    pub(crate) fn replaced_mappings(&self) -> impl Iterator<Item = u64> {
        self.processes.iter().zip(1..).flat_map(|(process, idx)| {
            let mappings = self.hit_mappings.of(ProcessIdx(idx));
            let replaced = replaced_at(mappings.map(|(mapping, hit)| (mapping.start..hit.end, mapping.from)));
            let patched = process.patched.iter().filter(|(_, range)| !range.always);
            replaced.chain(patched.map(|((_, from), _)| *from))
        })
    }

    /// What a reader should know of the files of a recording, and of threads since the last call.
    pub(crate) fn take_notes(&mut self) -> Vec<Advised> {
        let of_files = match &self.origin {
            Origin::Recorded(_, files) => files.notes(),
            Origin::Live(_) => Vec::new(),
        };
        let of_threads = self.threads.take_note().map(Advised::from);
        of_files.into_iter().chain(of_threads).collect()
    }

    /// Hands over the images that were hit since the last call, and their text; returns the processes without the kernel,
    /// and the paths of their cgroups.
    pub(crate) fn emit(
        &mut self,
        modules: &mut Vec<Module>,
        text: &mut Vec<Text>,
    ) -> (Vec<Process>, Vec<String>) {
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
