//! A process image that has counts: what of it was hit, and its mappings as the snapshot has them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::hit_mappings::{HitMapping, MappedAt};
use super::image_set::ImageIdx;
use super::process_image::Generation;
use crate::raw::TaskKey;
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::{CgroupIdx, Mapping, ModuleIdx, Process, ProcessIdx, Thread};

/// No text range is longer: functions beyond 16 KiB are taken in windows.
const LONGEST_RANGE: u64 = 1 << 15;

/// A process image that has counts.
#[derive(Debug)]
pub(super) struct HitProcess {
    pub(super) task: TaskKey,
    pub(super) generation: Option<Generation>,
    pub(super) comm: Arc<str>,
    /// Path of its cgroup; `None` if it is not known.
    pub(super) cgroup: Option<Arc<str>>,
    /// The thread, if this is the entry of one: its mappings are those of the process image.
    pub(super) thread: Option<HitThread>,
    /// Text ranges in these that differ from their file, by (start, from).
    pub(super) patched: BTreeMap<(Va, u64), PatchedRange>,
}

/// A thread that has counts.
#[derive(Clone, Debug)]
pub(super) struct HitThread {
    /// Its process image.
    pub(super) of: ProcessIdx,
    /// Its id.
    pub(super) tid: u32,
    /// Its name; empty if it is that of the process.
    pub(super) name: Arc<str>,
}

/// A text range with other bytes than its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct PatchedRange {
    pub(super) end: Va,
    pub(super) image: ImageIdx,
    pub(super) image_start: ImageAddr,
    /// Whether it was patched at its first execution.
    pub(super) always: bool,
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
        mappings: impl Iterator<Item = (MappedAt, &'a HitMapping)>,
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
        let mapped = mappings.flat_map(|(MappedAt { start, from }, hit)| {
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
