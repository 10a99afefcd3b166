//! What was executed since the last drain, and what of its text was found to differ from its file.

use std::ops::Range;

use super::hit_mappings::MappedAt;
use super::image_set::ImageIdx;
use super::process_image::Generation;
use super::process_index::Remapped;
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::ProcessIdx;

/// An executed text range of a file, in a process image.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct RanText {
    pub(super) process: ProcessIdx,
    pub(super) mapping: MappedAt,
    /// The start of the range in its image.
    pub(super) at: ImageAddr,
}

/// What was executed since the last drain, and what of it was found to differ.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) ran: Vec<RanText>,
    pub(super) found: Vec<Found>,
    pub(super) remapped: Vec<Remapped>,
}

/// A reading of memory that differs from what is known of it.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) process: ProcessIdx,
    pub(super) generation: Option<Generation>,
    pub(super) at: Range<Va>,
    /// The file, and the range in it.
    pub(super) file: ImageIdx,
    pub(super) range: Range<ImageAddr>,
    /// Where the range starts, or would, in the process.
    pub(super) base: Va,
    pub(super) bytes: Vec<u8>,
    pub(super) since: u64,
    pub(super) always: bool,
    /// Whether the change has no timestamp within the drain.
    pub(super) unnoticed: bool,
    /// End of the drain, and when the memory was read.
    pub(super) unknown: Range<u64>,
}

impl Comparison {
    /// Notes that a range was executed.
    pub(super) fn ran(&mut self, text: RanText) {
        self.ran.push(text);
    }
}
