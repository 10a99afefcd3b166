//! Text of a process that differs from its file: the program patched it, or a debugger or a uprobe did.
//!
//! Pages of a private mapping are those of the file until they are written to ([`super::page_map`]). So only pages that
//! were written to are compared: their text ranges with samples since the last drain, once for each process image. Of
//! each mapping with samples, one range is compared in any case: unwritten pages show another file where overlayfs has
//! copied it since, or where another file was opened than is mapped.
//!
//! A range that differs gets a mapping of its own, to an image with the bytes in memory. It begins when the program made its
//! text executable again, or else at the start of the drain.
//!
//! ```text
//! drain        |---------------|
//! records           mmap             the text of `f` is mapped again
//! reading                       f'   differs: `f` is f' from the record on
//! ```
//!
//! A reading becomes a mapping with the next drain, unless a record says that the text changed before it was read, but
//! after the drain: then the next comparison decides.

use std::mem;
use std::ops::Range;

use super::comparison::{Comparison, Found, RanText};
use super::hit_mappings::{HitMapping, HitMappings, PrivateFile, Shows};
use super::hit_process::{HitProcess, PatchedRange, hit_process};
use super::image_set::ImageSet;
use super::process_image::ProcessImage;
use super::process_index::Remapped;
use super::process_memory::ProcessMemory;
use super::space::{Origin, UserSpace};
use crate::clock::now;
use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::snapshot::{Loss, Losses};

/// Text ranges that are compared after one drain.
const MAX_COMPARED: usize = 1 << 15;
/// Times at which one drain is split because a mapping replaced another one: ten thousand libraries in a minute do so
/// seven hundred times between two drains. What is beyond is counted with the mapping of its first sample.
const MAX_TURNS: usize = 1024;
/// Times at which one drain is split because text was mapped again.
const MAX_SPLITS: usize = 16;
/// A program that patches many functions one after the other patches once, in ns.
const ONE_PATCH: u64 = 50_000_000;

impl UserSpace {
    /// Notes which text was mapped again in this drain, and what the last comparison found.
    /// Returns the times at which the drain is to be split.
    pub(super) fn begin_comparison(&mut self, losses: &mut Losses) -> Vec<u64> {
        let remapped = self.index.take_remapped();
        let mut replaced = self.index.take_replaced();
        let Origin::Live(live) = &mut self.origin else {
            return Vec::new();
        };
        live.comparison.remapped = remapped;
        let Comparison { found, remapped, .. } = &mut live.comparison;
        for found in mem::take(found) {
            let is_unknown = |r: &Remapped| {
                let is_same = Some(r.generation) == found.generation && overlap(&r.at, &found.at);
                is_same && found.unknown.contains(&r.time)
            };
            let Some(process) = hit_process(&mut self.processes, found.process) else {
                continue;
            };
            // Another file was there when the memory was read, as where libraries take turns at one address.
            let read_at = found.unknown.end;
            let image = self.index.image_at(process.task.tgid, read_at);
            let image = image.filter(|image| Some(image.generation) == found.generation);
            let read_from = image.and_then(|image| image.mapping_at(found.at.start, read_at));
            let is_replaced = read_from.is_some_and(|mapping| found.unknown.contains(&mapping.from));
            if !is_replaced && !remapped.iter().any(is_unknown) {
                accept(found, process, &mut self.images, losses);
            }
        }
        replaced.truncate(MAX_TURNS);
        replaced.extend(splits(remapped));
        replaced
    }

    /// Compares executed text of files since the last drain with the memory of their processes. Call it after all counts of the
    /// drain are added, while the memory of processes can be read.
    pub(super) fn compare_with_memory(&mut self, losses: &mut Losses) {
        let Origin::Live(live) = &mut self.origin else {
            return;
        };
        let Comparison { ran, found, remapped } = &mut live.comparison;
        let mut ran = mem::take(ran);
        ran.sort_unstable();
        ran.dedup();
        let n_beyond = ran.len().saturating_sub(MAX_COMPARED);
        losses.add(Loss::TextNotCompared, n_beyond as u64);
        ran.truncate(MAX_COMPARED);
        for of_process in ran.chunk_by(|a, b| a.process == b.process) {
            let Some(process) = of_process
                .first()
                .and_then(|ran| hit_process(&mut self.processes, ran.process))
            else {
                continue;
            };
            let tgid = process.task.tgid;
            let image = self.index.live(tgid);
            let Some(image) = image.filter(|image| Some(image.generation) == process.generation) else {
                losses.add(Loss::TextNotCompared, of_process.len() as u64);
                continue;
            };
            let mut compare = Compare {
                process,
                mappings: &mut self.hit_mappings,
                n_other_files: 0,
                image,
                images: &self.images,
                memory: &mut live.memory,
                remapped,
                drain: live.drain.clone(),
            };
            for ran in of_process {
                match compare.one(ran) {
                    Ok(None) => {}
                    Ok(Some(differs)) => found.push(differs),
                    Err(Unread) => losses.add(Loss::TextNotCompared, 1),
                }
            }
            losses.add(Loss::FileDiffers, compare.n_other_files);
        }
    }
}

/// The memory cannot be read.
struct Unread;

/// What is needed to compare the text of one process.
struct Compare<'a> {
    process: &'a HitProcess,
    mappings: &'a mut HitMappings,
    /// Mappings whose memory was found to show another file.
    n_other_files: u64,
    image: &'a ProcessImage,
    images: &'a ImageSet,
    memory: &'a mut ProcessMemory,
    remapped: &'a [Remapped],
    drain: Range<u64>,
}

impl<'a> Compare<'a> {
    /// Compares one range. What differs from what is known of it, if anything.
    fn one(&mut self, ran: &RanText) -> Result<Option<Found>, Unread> {
        let Some((hit, range, in_file)) = self.range(ran) else {
            return Ok(None);
        };
        let base = Va(ran
            .mapping
            .start
            .0
            .wrapping_add(range.start.0)
            .wrapping_sub(hit.image_start.0));
        let end = base.0.checked_add(range.end.0 - range.start.0).map(Va);
        let Some(end) = end.filter(|end| base < *end) else {
            return Ok(None);
        };
        let at = self
            .mapped_part(hit, &(ran.mapping.start..hit.end), base..end)
            .ok_or(Unread)?;
        let tgid = self.process.task.tgid;
        let known = self.known(ran, &at, &range);
        let is_written = self.memory.may_be_written(tgid, &at);
        let may_differ = is_written || hit.shows != Shows::File;
        if !may_differ && known.is_none() {
            return Ok(None);
        }
        let mut bytes = in_file.to_vec();
        if may_differ {
            let skip = usize::try_from(at.start.0 - base.0).unwrap_or(usize::MAX);
            let len = usize::try_from(at.end.0 - at.start.0).unwrap_or(usize::MAX);
            let part = bytes.get_mut(skip..).and_then(|bytes| bytes.get_mut(..len));
            if !part.is_some_and(|part| self.memory.read(tgid, at.start, part)) {
                return Err(Unread);
            }
        }
        if may_differ && !is_written && hit.shows == Shows::Unknown {
            let is_file = *in_file == *bytes;
            self.n_other_files += u64::from(!is_file);
            let shows = if is_file { Shows::File } else { Shows::Else };
            self.mappings.set_shows(ran.process, ran.mapping, shows);
        }
        if *known.unwrap_or(in_file) == *bytes {
            return Ok(None);
        }
        let (since, always) = self.since(ran, hit, &at);
        Ok(Some(Found {
            process: ran.process,
            generation: self.process.generation,
            at,
            file: hit.image,
            range,
            base,
            bytes,
            since,
            always,
            unnoticed: since == self.drain.start,
            unknown: self.drain.end..now(),
        }))
    }

    fn range(&self, ran: &RanText) -> Option<(HitMapping, Range<ImageAddr>, &'a [u8])> {
        let hit = *self.mappings.get(ran.process, ran.mapping)?;
        let (range, bytes) = self.images.text(hit.image)?.range_at(ran.at)?;
        Some((hit, range, bytes))
    }

    /// The part of a range whose memory shows the file: all of it, where its neighbours do as its own mapping does.
    /// `None` if something else is mapped there by now.
    fn mapped_part(&self, hit: HitMapping, mapping: &Range<Va>, range: Range<Va>) -> Option<Range<Va>> {
        let is_shown = |at: Va| {
            let mapping = self.image.mapping_at(at, u64::MAX);
            hit.private.is_some() && mapping.map(PrivateFile::of) == hit.private
        };
        let inside = range.start.max(mapping.start)..range.end.min(mapping.end);
        let last = Va(range.end.0.saturating_sub(1));
        if is_shown(range.start) && is_shown(last) {
            return Some(range);
        }
        (inside.start < inside.end && is_shown(inside.start)).then_some(inside)
    }

    /// The bytes that are known of a range, where it was patched before.
    fn known(&self, ran: &RanText, at: &Range<Va>, range: &Range<ImageAddr>) -> Option<&'a [u8]> {
        let patched = self.process.patched.range((at.start, 0)..=(at.start, u64::MAX));
        let (_, patched) = patched
            .last()
            .filter(|((_, from), _)| ran.mapping.from <= *from)?;
        let (_, bytes) = self.images.text(patched.image)?.range_at(range.start)?;
        Some(bytes)
    }

    /// The start of the time in which a range has its current bytes, and whether it was never executed with others.
    fn since(&self, ran: &RanText, hit: HitMapping, at: &Range<Va>) -> (u64, bool) {
        let of_range = self.remapped.iter().filter(|remapped| {
            Some(remapped.generation) == self.process.generation
                && overlap(&remapped.at, at)
                && self.drain.start <= remapped.time
        });
        match of_range.map(|remapped| remapped.time).max() {
            Some(time) => (time, time == ran.mapping.from),
            None if hit.hit_since == self.drain.start => (ran.mapping.from, true),
            None => (self.drain.start, false),
        }
    }
}

/// Makes a mapping of what was found.
fn accept(found: Found, process: &mut HitProcess, images: &mut ImageSet, losses: &mut Losses) {
    let in_file = images
        .text(found.file)
        .and_then(|text| text.range_at(found.range.start));
    let image = match in_file {
        Some((_, in_file)) if *in_file == *found.bytes => found.file,
        _ => images.patched(found.file, found.range.start, found.bytes),
    };
    let skip = found.at.start.since(found.base).unwrap_or(0);
    let range = PatchedRange {
        end: found.at.end,
        image,
        image_start: ImageAddr(found.range.start.0.saturating_add(skip)),
        always: found.always,
    };
    let before = process.patched.insert((found.at.start, found.since), range);
    // A range that two mappings show is found twice.
    if before.is_none_or(|before| before.image != image) {
        losses.add(Loss::TextDiffers, u64::from(image != found.file));
        losses.add(Loss::TextUncertain, u64::from(found.unnoticed && !found.always));
    }
}

fn overlap(a: &Range<Va>, b: &Range<Va>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Where to split a drain: before and after each patch.
fn splits(remapped: &[Remapped]) -> Vec<u64> {
    let mut times: Vec<u64> = remapped.iter().map(|remapped| remapped.time).collect();
    times.sort_unstable();
    let patches = times.chunk_by(|a, b| b - a < ONE_PATCH);
    let ends = patches.filter_map(|patch| Some([*patch.first()?, *patch.last()?]));
    let mut splits: Vec<u64> = ends.flatten().take(MAX_SPLITS).collect();
    splits.dedup();
    splits
}
