//! How much of a file is read around an address that was hit.

use std::ops::Range;

use super::image::ElfContent;
use crate::text::{Covered, ModuleText};
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::Symbol;

/// What is known around an address: the function, or the gap between functions, or neither.
#[derive(Default)]
pub(super) struct FunctionOrGap {
    pub(super) function: Option<Symbol>,
    pub(super) gap: Option<Range<ImageAddr>>,
}

/// Loads the text of a file around `at` if needed.
pub(super) fn cover_file(
    elf: &ElfContent,
    text: &mut ModuleText,
    at: ImageAddr,
    mapped: Range<ImageAddr>,
    found: FunctionOrGap,
) -> Covered {
    let segment = elf.layout.segment_at(at);
    let segment = segment.map(|s| s.start..ImageAddr(s.start.0.saturating_add(s.len)));
    let bounds = within(segment.unwrap_or(mapped), found.gap);
    let mut read = |at: ImageAddr, bytes: &mut [u8]| elf.read(at, bytes);
    text.cover(at, bounds, found.function, &mut read)
}

/// The part of `bounds` that lies in a gap, where there is one.
pub(super) fn within(bounds: Range<ImageAddr>, gap: Option<Range<ImageAddr>>) -> Range<ImageAddr> {
    match gap {
        Some(gap) => bounds.start.max(gap.start)..bounds.end.min(gap.end),
        None => bounds,
    }
}
