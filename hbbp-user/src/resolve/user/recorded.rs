//! Ring 3 of a recording: what was mapped where and when, and the text of the files that were hit.
//!
//! Nothing of the recorded machine is there but its files, or copies of them.
//! Counting asks whose a sample is ([`RecordedSpace::owner`]); when all is counted, each place that was hit is looked
//! up in the mappings of its time, and its text is read.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use super::process_image::{FileIdx, ImageMapping, MappedFile, ProcessImage};
use super::process_index::ProcessIndex;
use crate::addr::{ImageAddr, Ring, Va};
use crate::record::{FileIdentity, Record, Timed};
use crate::resolve::elf::build_id::hex;
use crate::snapshot::{Interval, Losses, Mapping, Module, ModuleIdx, ModuleKind, Process, ProcessIdx, Text};

use super::find_file::{Found, find};
pub use super::find_file::{Mismatch, Places, same_build_id};
use super::recorded_text::FileText;
use super::remaps::Cuts;

/// A stream that is longer is no straight line of code.
const MAX_STREAM: u64 = 64 << 10;

/// A file for which a text names addresses as the file states them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NamedFile {
    /// Build id; empty for the program itself, which is the first that the user names.
    pub build_id: Vec<u8>,
    /// What stands for address 0 of the file.
    pub base: Va,
    /// Length in bytes of what stands for it.
    pub len: u64,
}

/// Ring 3 of a recording.
#[derive(Debug)]
pub struct RecordedSpace {
    index: ProcessIndex,
    places: Places,
    /// Build ids by path, as the recording lists them at its end.
    build_ids: HashMap<String, Vec<u8>>,
    /// Processes with mappings, to whom samples without a pid may belong.
    tgids: Vec<u32>,
    cuts: Cuts,
    hit: Vec<HitProcess>,
    hit_idx: HashMap<(u32, u64), ProcessIdx>,
    images: Vec<RecordedImage>,
    by_file: HashMap<FileIdx, usize>,
    named: Vec<NamedFile>,
    /// Files that the user named and that are others than those that ran, with the reasons.
    refused: Vec<(PathBuf, String)>,
}

/// A process image that has counts; the kernel stands before all of them in the snapshot.
#[derive(Debug)]
struct HitProcess {
    tgid: u32,
    image: Option<ProcessImage>,
    /// Mappings that were hit, by (start, from).
    mappings: BTreeMap<(Va, u64), Mapped>,
}

#[derive(Clone, Copy, Debug)]
struct Mapped {
    end: Va,
    image: usize,
    image_start: ImageAddr,
}

#[derive(Debug)]
struct RecordedImage {
    /// Path in the recording.
    name: String,
    /// The file and where it was found; `None` where it was not.
    found: Option<(PathBuf, FileText)>,
}

impl RecordedSpace {
    /// Takes over the records, which must stand in the order of time.
    pub fn new(records: &[Timed], build_ids: HashMap<String, Vec<u8>>, places: Places) -> Self {
        let mut space = Self {
            index: ProcessIndex::default(),
            places,
            build_ids,
            tgids: Vec::new(),
            cuts: Cuts::default(),
            hit: Vec::new(),
            hit_idx: HashMap::new(),
            images: Vec::new(),
            by_file: HashMap::new(),
            named: Vec::new(),
            refused: Vec::new(),
        };
        for timed in records {
            if let Record::Mmap(mmap) = &timed.record
                && mmap.pid != u32::MAX
            {
                space.tgids.push(mmap.pid);
                space.cuts.note(mmap, timed.time, &space.index);
            }
            space.index.apply(timed);
        }
        space.tgids.sort_unstable();
        space.tgids.dedup();
        space
    }

    /// Samples of no known process belong to these files, which have no mappings.
    pub fn with_named(mut self, named: Vec<NamedFile>) -> Self {
        self.named = named;
        self
    }

    /// Start and end of each interval, between `start` and `end`.
    pub fn bounds(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        self.cuts.bounds(start, end)
    }

    /// The process image that a sample belongs to, and its interval.
    pub fn owner(&mut self, tgid: u32, time: u64) -> (ProcessIdx, usize) {
        let interval = self.cuts.interval_at(time);
        let tgid = match (tgid, self.tgids.as_slice()) {
            (0, [only]) => *only,
            _ => tgid,
        };
        let image = self.index.image_at(tgid, time);
        let key = (tgid, image.map_or(0, |image| image.generation.0));
        if let Some(idx) = self.hit_idx.get(&key) {
            return (*idx, interval);
        }
        self.hit.push(HitProcess {
            tgid,
            image: image.cloned(),
            mappings: BTreeMap::new(),
        });
        let idx = ProcessIdx(u32::try_from(self.hit.len()).unwrap_or(u32::MAX));
        self.hit_idx.insert(key, idx);
        (idx, interval)
    }

    /// Finds the text of all counts of an interval. Returns what the user must know about files.
    pub fn resolve(&mut self, interval: &Interval, losses: &mut Losses) -> Vec<String> {
        let time = interval.end.saturating_sub(1);
        let mut notes = Vec::new();
        let mut place = |process, at: Va| match at.ring() {
            Ring::Kernel => None,
            Ring::User => self.place(process, at, time, losses, &mut notes),
        };
        let mut wanted: Vec<(usize, ImageAddr, Option<ImageAddr>)> = Vec::new();
        for count in &interval.ips {
            wanted.extend(place(count.process, count.ip).map(|(image, at)| (image, at, None)));
        }
        for count in &interval.streams {
            let start = place(count.process, count.start);
            let end = place(count.process, count.end);
            match (start, end) {
                (Some((image, start)), Some((other, end)))
                    if image == other && end.since(start).is_some_and(|len| len < MAX_STREAM) =>
                {
                    wanted.push((image, start, Some(end)));
                }
                _ => wanted.extend(
                    [start, end]
                        .into_iter()
                        .flatten()
                        .map(|(image, at)| (image, at, None)),
                ),
            }
        }
        for count in &interval.branches {
            let ends = [count.from, count.to].map(|at| place(count.process, at));
            wanted.extend(ends.into_iter().flatten().map(|(image, at)| (image, at, None)));
        }
        for (image, start, end) in wanted {
            let found = self.images.get_mut(image).and_then(|image| image.found.as_mut());
            match (found, end) {
                (Some((_, text)), Some(end)) => text.want_stream(start, end),
                (Some((_, text)), None) => text.want(start),
                (None, _) => {}
            }
        }
        notes
    }

    /// Why the first file that the user named is not used for anything, if there is one that was refused.
    pub fn refused(&self) -> Option<&str> {
        let is_used = |path: &PathBuf| {
            let found = self.images.iter().filter_map(|image| image.found.as_ref());
            found.map(|(found, _)| found).any(|found| found == path)
        };
        self.refused
            .iter()
            .find(|(path, _)| !is_used(path))
            .map(|(_, why)| why.as_str())
    }

    /// Files that the user named and that nothing asked for.
    pub fn unused(&self) -> impl Iterator<Item = &PathBuf> {
        let found = |path: &PathBuf| {
            self.images
                .iter()
                .filter_map(|image| image.found.as_ref())
                .any(|(f, _)| f == path)
        };
        self.places.binaries.iter().filter(move |path| !found(path))
    }

    /// The image that an address belongs to, and its address there.
    fn place(
        &mut self,
        process: ProcessIdx,
        at: Va,
        time: u64,
        losses: &mut Losses,
        notes: &mut Vec<String>,
    ) -> Option<(usize, ImageAddr)> {
        let nth = usize::try_from(process.0).ok()?.checked_sub(1)?;
        let hit = self.hit.get(nth)?;
        let before = hit.mappings.range(..=(at, u64::MAX)).next_back();
        if let Some(((start, _), mapped)) = before.filter(|(_, mapped)| at < mapped.end)
            && self.cuts.is_empty()
        {
            return Some((mapped.image, mapped.image_start.checked_add(at.since(*start)?)?));
        }
        let (key, mapped) = match hit
            .image
            .as_ref()
            .and_then(|image| image.mapping_at(at, time))
            .copied()
        {
            Some(mapping) => self.mapped(&mapping, losses, notes)?,
            None => self.named_at(at, losses, notes)?,
        };
        self.hit.get_mut(nth)?.mappings.insert(key, mapped);
        Some((mapped.image, mapped.image_start.checked_add(at.since(key.0)?)?))
    }

    fn mapped(
        &mut self,
        mapping: &ImageMapping,
        losses: &mut Losses,
        notes: &mut Vec<String>,
    ) -> Option<((Va, u64), Mapped)> {
        let image = match self.by_file.get(&mapping.file) {
            Some(image) => *image,
            None => {
                let file = self.index.file(mapping.file)?.clone();
                let image = self.open(&file, losses, notes);
                self.by_file.insert(mapping.file, image);
                image
            }
        };
        // Without the file its addresses are not known, but the module that was hit is.
        let image_start = match &self.images.get(image)?.found {
            Some((_, text)) => text.layout().image_addr(mapping.offset)?,
            None => ImageAddr(mapping.offset.0),
        };
        Some((
            (mapping.start, mapping.from),
            Mapped {
                end: mapping.end,
                image,
                image_start,
            },
        ))
    }

    fn named_at(
        &mut self,
        at: Va,
        losses: &mut Losses,
        notes: &mut Vec<String>,
    ) -> Option<((Va, u64), Mapped)> {
        let holds = |file: &&NamedFile| at.since(file.base).is_some_and(|offset| offset < file.len);
        let file = self.named.iter().find(holds)?.clone();
        let end = file.base.checked_add(file.len)?;
        let identity = FileIdentity::BuildId(file.build_id.clone());
        let path = match file.build_id.as_slice() {
            [] => self.places.binaries.first()?.to_string_lossy().into_owned(),
            build_id => hex(build_id),
        };
        let image = match self.images.iter().position(|image| image.name == path) {
            Some(image) => image,
            None => self.open(&MappedFile { path, identity }, losses, notes),
        };
        Some((
            (file.base, 0),
            Mapped {
                end,
                image,
                image_start: ImageAddr(0),
            },
        ))
    }

    fn open(&mut self, file: &MappedFile, losses: &mut Losses, notes: &mut Vec<String>) -> usize {
        let listed = self.build_ids.get(&file.path).map_or(&[][..], Vec::as_slice);
        let build_id = match &file.identity {
            FileIdentity::BuildId(build_id) => build_id.clone(),
            FileIdentity::Inode { .. } | FileIdentity::Unknown => listed.to_vec(),
        };
        let found = match find(&self.places, file, &build_id) {
            Ok(Found {
                path,
                source,
                layout,
                note,
            }) => {
                notes.extend(note);
                // One file may be known by its inode and by its build id, and by several paths.
                let same =
                    |image: &RecordedImage| image.found.as_ref().is_some_and(|(known, _)| *known == path);
                if let Some(known) = self.images.iter().position(same) {
                    return known;
                }
                Some((path, FileText::new(source, layout)))
            }
            Err(not_found) => {
                losses.add(not_found.loss, 1);
                if let (Some(named), Some(note)) = (not_found.named, &not_found.note) {
                    self.refused.push((named, note.clone()));
                }
                notes.extend(not_found.note);
                None
            }
        };
        self.images.push(RecordedImage {
            name: file.path.clone(),
            found,
        });
        self.images.len() - 1
    }

    /// Hands over modules, text and processes; those of the kernel stand before.
    pub fn emit(self, modules: &mut Vec<Module>, text: &mut Vec<Text>) -> Vec<Process> {
        let first = modules.len();
        for image in self.images {
            let module = ModuleIdx(u32::try_from(modules.len()).unwrap_or(u32::MAX));
            modules.push(match image.found {
                Some((_, file)) => file.emit(image.name, module, text),
                None => {
                    let (name, kind) = (image.name, ModuleKind::Elf64);
                    Module {
                        name,
                        kind,
                        build_id: Vec::new(),
                        symbols: Vec::new(),
                    }
                }
            });
        }
        let mapping = |((start, from), mapped): (&(Va, u64), &Mapped)| Mapping {
            start: *start,
            end: mapped.end,
            module: ModuleIdx(u32::try_from(first + mapped.image).unwrap_or(u32::MAX)),
            image_start: mapped.image_start,
            from: *from,
        };
        let process = |hit: &HitProcess| Process {
            tgid: hit.tgid,
            // Two programs of one process must not pass for one.
            exec_id: hit
                .image
                .as_ref()
                .map_or(0, |image| u32::try_from(image.generation.0).unwrap_or(u32::MAX)),
            comm: hit
                .image
                .as_ref()
                .map_or(Arc::default(), |image| image.comm.clone())
                .to_string(),
            mappings: hit.mappings.iter().map(mapping).collect(),
        };
        self.hit.iter().map(process).collect()
    }
}
