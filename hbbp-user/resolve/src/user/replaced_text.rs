//! Text of a file that its process moved to memory, as programs do for huge pages: copied away, and mapped over the segment.
//!
//! Nothing names the file but what is mapped around: that file has an executable segment which covers the memory. And the memory
//! of a live process must show what is in it, so that code of a compiler at run time never has names of a file.

use std::ops::Range;

use super::image::{Content, ElfContent};
use super::image_set::{ImageIdx, mmap_of};
use super::mapping::{Backing, ImageMapping};
use super::process_image::ProcessImage;
use super::process_memory::ProcessMemory;
use super::space::{Origin, UserSpace};
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::Losses;

/// Mappings on each side that are looked at: memory may be in several parts.
const MAX_AROUND: usize = 8;

/// Segments are mapped in whole pages; one of them, around what was executed, is compared.
const PAGE: u64 = 4096;

impl UserSpace {
    /// The image whose text a mapping of memory replaced, and the address in it of the first mapped byte. Of live processes the
    /// text around `at` is compared; in a recording the file is mapped right before or after.
    pub(super) fn replaced_text(
        &mut self,
        tgid: u32,
        image: &ProcessImage,
        mapping: &ImageMapping,
        at: Va,
        losses: &mut Losses,
    ) -> Option<(ImageIdx, ImageAddr)> {
        if self.index.file(mapping.file)?.backing() != Backing::Memory {
            return None;
        }
        let is_live = self.index.is_live(tgid, Some(image.generation));
        let range = mapping.start..mapping.end;
        for around in image.around(&range, MAX_AROUND) {
            let file = self
                .index
                .file(around.file)
                .filter(|file| file.backing() == Backing::File);
            let Some(file) = file else {
                continue;
            };
            let idx = match &mut self.origin {
                Origin::Live(_) if is_live => {
                    let ancestors = self.index.ancestors(image);
                    self.images
                        .open(around.file, &mmap_of(tgid, around, file), &ancestors)
                        .ok()
                }
                Origin::Recorded(_, files) if around.end == range.start || range.end == around.start => {
                    Some(self.images.recorded(around.file, file, files, losses))
                }
                _ => None,
            };
            let Some(Content::Elf(elf)) = idx.and_then(|idx| Some(&self.images.image(idx)?.content)) else {
                continue;
            };
            let start = elf
                .starts_of(around, &range)
                .find(|start| match &mut self.origin {
                    Origin::Live(live) => elf.is_shown(*start, mapping, at, tgid, &mut live.memory),
                    Origin::Recorded(..) => true,
                });
            if let Some(placed) = idx.zip(start) {
                return Some(placed);
            }
        }
        None
    }
}

impl ElfContent {
    /// The addresses in the file that memory at `range` may have been, by where a part of the file is mapped. The memory lies in
    /// whole pages of an executable segment.
    fn starts_of(&self, around: &ImageMapping, range: &Range<Va>) -> impl Iterator<Item = ImageAddr> {
        let len = range.end.0 - range.start.0;
        let holding = self.layout.segments.iter().filter(|segment| {
            let first = segment.offset.0 / PAGE * PAGE;
            let end = segment.offset.0.saturating_add(segment.len);
            (first..end).contains(&around.offset.0)
        });
        let starts = holding.map(|segment| {
            let mapped = around
                .offset
                .0
                .wrapping_sub(segment.offset.0)
                .wrapping_add(segment.start.0);
            mapped.wrapping_add(range.start.0.wrapping_sub(around.start.0))
        });
        starts.map(ImageAddr).filter(move |start| {
            let covers = self.layout.segments.iter().filter(|segment| segment.executable);
            covers.into_iter().any(|segment| {
                let first = segment.start.0 / PAGE * PAGE;
                let end = segment
                    .start
                    .0
                    .saturating_add(segment.len)
                    .div_ceil(PAGE)
                    .saturating_mul(PAGE);
                first <= start.0 && start.0.checked_add(len).is_some_and(|last| last <= end)
            })
        })
    }

    /// Whether memory around `at` is what the file has there.
    fn is_shown(
        &self,
        start: ImageAddr,
        mapping: &ImageMapping,
        at: Va,
        tgid: u32,
        memory: &mut ProcessMemory,
    ) -> bool {
        let page = Va(at.0 / PAGE * PAGE).max(mapping.start);
        let from = start.0.wrapping_add(page.0 - mapping.start.0);
        // The first and the last page of a segment hold other bytes as well.
        let segment = self
            .layout
            .segment_at(ImageAddr(start.0.wrapping_add(at.0 - mapping.start.0)));
        let Some(segment) = segment.filter(|segment| segment.executable) else {
            return false;
        };
        let first = from.max(segment.start.0);
        let end = (from.saturating_add(PAGE)).min(segment.start.0.saturating_add(segment.len));
        let len = end.checked_sub(first).and_then(|len| usize::try_from(len).ok());
        let Some(len) = len.filter(|len| 0 < *len) else {
            return false;
        };
        let (mut in_file, mut in_memory) = (vec![0; len], vec![0; len]);
        self.read(ImageAddr(first), &mut in_file)
            && memory.read(tgid, Va(page.0 + (first - from)), &mut in_memory)
            && in_file == in_memory
    }
}
