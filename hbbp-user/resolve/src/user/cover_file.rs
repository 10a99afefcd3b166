//! How much of a file is read around an address that was hit.

use std::ops::Range;

use super::function_or_gap::{FunctionOrGap, within};
use super::image::ElfContent;
use crate::text::{Covered, ModuleText};
use hbbp_model::addr::ImageAddr;

impl ElfContent {
    /// Loads the text of the file around `at` if needed.
    pub(super) fn cover(
        &self,
        text: &mut ModuleText,
        at: ImageAddr,
        mapped: Range<ImageAddr>,
        found: FunctionOrGap,
    ) -> Covered {
        let segment = self.layout.segment_at(at);
        let segment = segment.map(|s| s.start..ImageAddr(s.start.0.saturating_add(s.len)));
        let bounds = within(segment.unwrap_or(mapped), found.gap);
        let mut read = |at: ImageAddr, bytes: &mut [u8]| self.read(at, bytes);
        text.cover(at, bounds, found.function, &mut read)
    }
}
