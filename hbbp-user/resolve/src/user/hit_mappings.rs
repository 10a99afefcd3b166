//! The mappings of process images that were hit, and what they show.

use std::collections::BTreeMap;

use super::image_set::ImageIdx;
use super::mapping::{FileIdx, ImageMapping};
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::ProcessIdx;

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
