//! One program in one process, and what is mapped into it.
//!
//! A process runs several programs in its life: each is an image of its own, with a number that is unique in a run.

use std::ops::Range;
use std::sync::Arc;

use super::cgroups::Membership;
use super::mapping::{FileIdx, ImageMapping};
use super::mapping_table::{MappingTable, Visible};
use hbbp_model::addr::{FileOff, Va};
use hbbp_model::record::Mmap;

/// With more visible mappings than this, some may have gone: the kernel does not report munmap. Then /proc is read, and
/// again whenever their number has doubled.
const CROWDED: usize = 8192;
/// Visible mappings of a process that /proc does not show.
const MAX_UNREAD: usize = 1 << 18;

/// A generation of a process: one program in one process. Unique over the whole run.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Generation(pub u64);

/// One program in one process.
#[derive(Clone, Debug)]
pub(crate) struct ProcessImage {
    /// Its name in this index.
    pub generation: Generation,
    /// Command name, the last one seen.
    pub comm: Arc<str>,
    /// Width of its code in bits.
    pub bits: u32,
    /// The process that created this one; 0 if that is unknown.
    pub(super) parent: u32,
    /// The cgroup that it runs in.
    pub(super) cgroup: Membership,
    /// Since when, in ns.
    pub(super) from: u64,
    /// Tasks that are alive.
    pub(super) n_threads: u32,
    /// Until when the number of tasks is known from /proc, in ns.
    pub(super) counted: u64,
    /// When its last task ended.
    pub(super) ended: Option<u64>,
    /// Shared with its parent until one of them changes it.
    mappings: Arc<MappingTable>,
    /// With this many visible mappings it is crowded.
    crowded: usize,
}

impl ProcessImage {
    /// A program that starts at the time `from`, with nothing mapped.
    pub(super) fn new(generation: Generation, comm: Arc<str>, from: u64) -> Self {
        Self {
            generation,
            comm,
            bits: 64,
            parent: 0,
            cgroup: Membership::default(),
            from,
            n_threads: 1,
            counted: 0,
            ended: None,
            mappings: Arc::default(),
            crowded: CROWDED,
        }
    }

    /// The program of a forked child: that of its parent, with what is mapped there until one of them changes it.
    pub(super) fn child(&self, generation: Generation, parent: u32, from: u64) -> Self {
        Self {
            generation,
            parent,
            cgroup: self.cgroup.inherited(),
            from,
            n_threads: 1,
            counted: 0,
            ended: None,
            ..self.clone()
        }
    }

    /// The mapping that the address `at` belonged to at `time`: the last one made, as it hides those before it.
    pub(crate) fn mapping_at(&self, at: Va, time: u64) -> Option<&ImageMapping> {
        self.visible_at(at, time).map(|visible| visible.mapping)
    }

    /// The same, with the addresses around `at` and the times around `time` at which it is that mapping.
    pub(super) fn visible_at(&self, at: Va, time: u64) -> Option<Visible<'_>> {
        self.mappings.find(at, time)
    }

    /// The mappings that share addresses with a range.
    pub(super) fn within(&self, range: &Range<Va>) -> impl Iterator<Item = &ImageMapping> {
        self.mappings.within(range)
    }

    /// Its mappings; one may be there several times.
    pub(crate) fn mappings(&self) -> impl Iterator<Item = &ImageMapping> {
        self.mappings.iter()
    }

    /// The nearest of its mappings around a range, as many on each side.
    pub(super) fn around(&self, range: &Range<Va>, n: usize) -> impl Iterator<Item = &ImageMapping> {
        self.mappings.around(range, n)
    }

    /// Whether this byte of a file is, or was, mapped at an address.
    pub(super) fn shows(&self, file: FileIdx, at: Va, offset: FileOff) -> bool {
        self.mappings().any(|mapping| {
            let from_start = at
                .since(mapping.start)
                .filter(|_| at < mapping.end && mapping.file == file);
            from_start.is_some_and(|from_start| mapping.offset.0.checked_add(from_start) == Some(offset.0))
        })
    }

    /// Whether a mapping is visible as a whole, and the newest one at its addresses.
    pub(super) fn is_known(&self, new: &ImageMapping) -> bool {
        let visible = self.visible_at(new.start, u64::MAX);
        visible.is_some_and(|Visible { mapping: m, at, .. }| {
            at == (new.start..new.end) && m.start == new.start && m.offset == new.offset && m.file == new.file
        })
    }

    /// Adds a mapping, unless it is what the newest one there says already. Returns whether the image became crowded.
    pub(super) fn add(&mut self, new: ImageMapping) -> bool {
        if self.is_known(&new) {
            return false;
        }
        Arc::make_mut(&mut self.mappings).add(new);
        let is_crowded = self.crowded <= self.mappings.len();
        if is_crowded {
            self.crowded = self.mappings.len().saturating_mul(2);
        }
        is_crowded
    }

    /// Hides, from `time` on, what is not in this list of all that is mapped.
    pub(super) fn retain_mapped(&mut self, mapped: &[Mmap], time: u64) {
        let mut ranges: Vec<_> = mapped
            .iter()
            .map(|mmap| mmap.start..Va(mmap.start.0.saturating_add(mmap.len)))
            .collect();
        ranges.sort_unstable_by_key(|range| range.start);
        Arc::make_mut(&mut self.mappings).retain_mapped(&ranges, time);
        self.crowded = CROWDED.max(self.mappings.len().saturating_mul(2));
    }

    /// Forgets the older half of its mappings where they are more than any process has, as it is unknown which of them
    /// still exist.
    pub(super) fn forget_older_half(&mut self) {
        if MAX_UNREAD <= self.mappings.len() {
            Arc::make_mut(&mut self.mappings).forget_older_half();
        }
    }

    /// Forgets the mappings that were hidden before `time`.
    pub(super) fn forget_before(&mut self, time: u64) {
        if self.mappings.is_any_hidden() {
            Arc::make_mut(&mut self.mappings).forget_before(time);
        }
    }
}

/// Who maps something.
#[derive(Clone, Debug)]
pub(crate) struct Mapper {
    /// Thread group id.
    pub tgid: u32,
    /// The program that it runs.
    pub generation: Generation,
    /// Width of its code in bits.
    pub bits: u32,
    /// The processes that led to it.
    pub ancestors: Vec<u32>,
}
