//! The mappings of process images that were hit, and what they show.

use std::collections::BTreeMap;

use super::image_set::ImageIdx;
use super::mapping::{FileIdx, ImageMapping};
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::ProcessIdx;

/// The mappings of all process images that were hit, in one table: most images have one or two, and live for a moment.
#[derive(Debug, Default)]
pub(super) struct HitMappings(BTreeMap<(ProcessIdx, MappedAt), HitMapping>);

/// Which mapping of a process image: others were at the same address before it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct MappedAt {
    pub(super) start: Va,
    /// Since when it is there, in ns.
    pub(super) from: u64,
}

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
    /// It does, where its pages were not written to.
    File,
    /// It shows something else, so that the text of the file is compared wherever it runs.
    Else,
}

impl HitMappings {
    /// A mapping of a process image.
    pub(super) fn get(&self, process: ProcessIdx, mapping: MappedAt) -> Option<&HitMapping> {
        self.0.get(&(process, mapping))
    }

    /// Notes what the memory of a mapping was found to show.
    pub(super) fn set_shows(&mut self, process: ProcessIdx, mapping: MappedAt, shows: Shows) {
        if let Some(hit) = self.0.get_mut(&(process, mapping)) {
            hit.shows = shows;
        }
    }

    pub(super) fn insert(&mut self, process: ProcessIdx, mapping: MappedAt, hit: HitMapping) {
        self.0.insert((process, mapping), hit);
    }

    /// The mappings of a process image, in order.
    pub(super) fn of(&self, process: ProcessIdx) -> impl Iterator<Item = (MappedAt, &HitMapping)> {
        let first = MappedAt {
            start: Va(0),
            from: 0,
        };
        let last = MappedAt {
            start: Va(u64::MAX),
            from: u64::MAX,
        };
        let all = (process, first)..=(process, last);
        self.0.range(all).map(|((_, mapping), hit)| (*mapping, hit))
    }

    /// The images of all of them.
    pub(super) fn images(&self) -> impl Iterator<Item = ImageIdx> {
        self.0.values().map(|hit| hit.image)
    }
}

/// What a private mapping of a file shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct PrivateFile {
    file: FileIdx,
    /// The address of the first byte of the file, if it were mapped.
    base: u64,
}

impl PrivateFile {
    /// What a mapping shows.
    pub(super) fn of(mapping: &ImageMapping) -> Self {
        let base = mapping.start.0.wrapping_sub(mapping.offset.0);
        Self {
            file: mapping.file,
            base,
        }
    }
}
