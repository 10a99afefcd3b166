//! A process image that has counts: what of it was hit, and its mappings as the snapshot has them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::image_set::ImageIdx;
use super::patched_text::{LONGEST_RANGE, PatchedRange, PrivateFile};
use super::process_image::Generation;
use super::threads::HitThread;
use crate::raw::TaskKey;
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::{CgroupIdx, Mapping, ModuleIdx, Process, ProcessIdx, Thread};

/// A process image that has counts.
#[derive(Debug)]
pub(super) struct HitProcess {
    pub(super) task: TaskKey,
    pub(super) generation: Option<Generation>,
    pub(super) comm: Arc<str>,
    /// Path of its cgroup; `None` where it is not known.
    pub(super) cgroup: Option<Arc<str>>,
    /// The thread, if this is the entry of one: its mappings are those of the process image.
    pub(super) thread: Option<HitThread>,
    /// Text ranges in these that differ from their file, by (start, from).
    pub(super) patched: BTreeMap<(Va, u64), PatchedRange>,
}

/// The mappings of all process images that were hit, in one table: most images have one or two, and live for a moment.
#[derive(Debug, Default)]
pub(super) struct HitMappings(BTreeMap<(ProcessIdx, Va, u64), HitMapping>);

/// A mapping of a process image that was hit.
#[derive(Clone, Copy, Debug)]
pub(super) struct HitMapping {
    pub(super) end: Va,
    pub(super) image: ImageIdx,
    pub(super) image_start: ImageAddr,
    /// The file, where the process may have pages of its own of it.
    pub(super) private: Option<PrivateFile>,
    /// When the drain began in which it was hit first, in ns.
    pub(super) hit_since: u64,
    /// Whether memory shows the file that was opened.
    pub(super) shows: Shows,
}

/// Whether the memory of a process shows the file that was opened for a mapping: some of it is compared once.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Shows {
    /// It was not compared yet.
    #[default]
    Unknown,
    /// It does, where nobody wrote to the pages.
    File,
    /// It shows something else, so that the text of the file is compared wherever it runs.
    Else,
}

impl HitMappings {
    /// The mapping of a process image by (start, from).
    pub(super) fn get(&self, process: ProcessIdx, (start, from): (Va, u64)) -> Option<&HitMapping> {
        self.0.get(&(process, start, from))
    }

    /// Notes what the memory of a mapping was found to show.
    pub(super) fn set_shows(&mut self, process: ProcessIdx, (start, from): (Va, u64), shows: Shows) {
        if let Some(hit) = self.0.get_mut(&(process, start, from)) {
            hit.shows = shows;
        }
    }

    pub(super) fn insert(&mut self, process: ProcessIdx, (start, from): (Va, u64), hit: HitMapping) {
        self.0.insert((process, start, from), hit);
    }

    /// The mappings of a process image, by (start, from).
    pub(super) fn of(&self, process: ProcessIdx) -> impl Iterator<Item = ((Va, u64), &HitMapping)> {
        let all = (process, Va(0), 0)..=(process, Va(u64::MAX), u64::MAX);
        self.0
            .range(all)
            .map(|((_, start, from), hit)| ((*start, *from), hit))
    }

    /// The images of all of them.
    pub(super) fn images(&self) -> impl Iterator<Item = ImageIdx> {
        self.0.values().map(|hit| hit.image)
    }
}

impl HitProcess {
    /// Of which nothing was hit yet.
    pub(super) fn new(task: TaskKey, generation: Option<Generation>) -> Self {
        Self {
            task,
            generation,
            comm: Arc::default(),
            cgroup: None,
            thread: None,
            patched: BTreeMap::new(),
        }
    }

    /// Hands it over with its mappings, the modules that its images became, and its cgroup as an index of these.
    pub(super) fn emit<'a>(
        self,
        mappings: impl Iterator<Item = ((Va, u64), &'a HitMapping)>,
        became: &HashMap<ImageIdx, ModuleIdx>,
        cgroups: &mut CgroupTable,
    ) -> Process {
        let mapping = |start: Va, end: Va, image: ImageIdx, image_start: ImageAddr, from: u64| {
            let module = *became.get(&image)?;
            Some(Mapping {
                start,
                end,
                module,
                image_start,
                from,
            })
        };
        let mapped = mappings.flat_map(|((start, from), hit)| {
            let parts = unpatched(&(start..hit.end), from, &self.patched);
            parts
                .into_iter()
                .filter_map(|part| {
                    let image_start = hit.image_start.checked_add(part.start.since(start)?)?;
                    mapping(part.start, part.end, hit.image, image_start, from)
                })
                .collect::<Vec<_>>()
        });
        let patched = self.patched.iter();
        let patched = patched.filter_map(|((start, from), range)| {
            mapping(*start, range.end, range.image, range.image_start, *from)
        });
        let mut mappings: Vec<Mapping> = mapped.chain(patched).collect();
        mappings.sort_by_key(|mapping| (mapping.start, mapping.from));
        Process {
            tgid: self.task.tgid,
            exec_id: self.task.exec_id,
            comm: self.comm.as_ref().to_owned(),
            mappings,
            cgroup: self.cgroup.map(|path| cgroups.index(path)),
            thread: self.thread.map(|thread| Thread {
                tid: thread.tid,
                name: thread.name.as_ref().to_owned(),
            }),
        }
    }
}

/// The cgroups of a snapshot, in the order of the process images.
#[derive(Debug, Default)]
pub(super) struct CgroupTable {
    paths: Vec<String>,
    numbers: HashMap<Arc<str>, CgroupIdx>,
}

impl CgroupTable {
    fn index(&mut self, path: Arc<str>) -> CgroupIdx {
        let Self { paths, numbers } = self;
        *numbers.entry(path).or_insert_with_key(|path| {
            paths.push(path.as_ref().to_owned());
            CgroupIdx(u32::try_from(paths.len() - 1).unwrap_or(u32::MAX))
        })
    }

    /// Their paths.
    pub(super) fn into_paths(self) -> Vec<String> {
        self.paths
    }
}

/// The parts of a mapping of the time `from` that were not patched when it was made.
fn unpatched(mapping: &Range<Va>, from: u64, patched: &BTreeMap<(Va, u64), PatchedRange>) -> Vec<Range<Va>> {
    let mut parts = Vec::new();
    let mut start = mapping.start;
    let first = Va(mapping.start.0.saturating_sub(LONGEST_RANGE));
    let near = patched.range((first, 0)..(mapping.end, 0));
    for ((at, _), range) in near.filter(|((_, since), range)| *since == from && mapping.start < range.end) {
        parts.push(start..*at);
        start = range.end;
    }
    parts.push(start..mapping.end);
    parts.retain(|part| part.start < part.end);
    parts
}

/// The process at an index that counts the kernel as the first one.
pub(super) fn hit_process(processes: &mut [HitProcess], idx: ProcessIdx) -> Option<&mut HitProcess> {
    processes.get_mut((idx.0 as usize).checked_sub(1)?)
}
