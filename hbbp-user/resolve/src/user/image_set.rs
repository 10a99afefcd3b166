//! All images that were mapped: one for each file, however many processes map it, and one for each piece of memory.
//!
//! A file is opened when its mapping is first heard of, because soon the process may be gone and its root with it.
//! The number of open files is limited; the oldest that was never hit is closed first, and opened again on a hit.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use rustix::process::{Resource, getrlimit};

use hbbp_model::addr::{FileOff, ImageAddr, Va};
use hbbp_model::record::Mmap;
use hbbp_model::snapshot::{Loss, Losses, Module, ModuleIdx, ModuleKind, Text};

use super::file_opener::FileOpener;
use super::haste::Haste;
use super::image::{Content, Image};
use super::mapped_file::plain_path;
use super::mapping::{Backing, FileIdx, ImageMapping, MappedFile};
use super::proc_scan::ANONYMOUS;
use super::process_image::{Generation, Mapper};
use super::process_memory::{Owner, ProcessMemory};
use super::recorded_files::RecordedFiles;
use super::vdso::read_vdso;
use crate::debug_places::linked_places;
use crate::regular_file::open_own;
use crate::text::{Covered, ModuleText};
use hbbp_elf::parser::Parser;

/// Contents of one text range of a file: processes that are patched alike share one.
const MAX_PATCHED: usize = 256;

/// Bytes of text of files that are kept from one interval to the next: a compiler runs through some 2 MiB in a second.
pub(super) const MAX_KEPT_TEXT: usize = 4 << 20;

/// Index of an image of this set.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct ImageIdx(pub u32);

/// All images that were mapped.
#[derive(Debug)]
pub(crate) struct ImageSet {
    /// By index; `None` if one was closed.
    pub(super) images: Vec<Option<Box<Image>>>,
    /// Free entries, without an image.
    free: Vec<ImageIdx>,
    /// The image of each file that was looked up, or why there is none.
    files: HashMap<FileIdx, Result<ImageIdx, Loss>>,
    /// Images by device and inode of the open file, and by the path by which processes see it. Who gives a file of others
    /// another path, by a mount of its own, changes no name but its own.
    places: HashMap<(u64, u64, String), ImageIdx>,
    memories: HashMap<(Generation, Va, u64), ImageIdx>,
    /// The kernel's code page, by width in bits.
    vdso: HashMap<u32, ImageIdx>,
    /// Images of each file as processes have changed it. One image holds one content of each text range.
    patched: HashMap<ImageIdx, Vec<ImageIdx>>,
    opener: FileOpener,
    /// Parses the functions of files.
    parser: Parser,
    /// Open files in the order of their opening.
    open: VecDeque<ImageIdx>,
    max_open: usize,
    /// Whether no more text is taken: of files, and of what was written at run time.
    pub(super) full: [bool; 2],
}

impl Default for ImageSet {
    fn default() -> Self {
        // The remainder is for the counters, one for each CPU and event.
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(4096) / 4;
        Self {
            images: Vec::new(),
            free: Vec::new(),
            files: HashMap::new(),
            places: HashMap::new(),
            memories: HashMap::new(),
            vdso: HashMap::new(),
            patched: HashMap::new(),
            opener: FileOpener::default(),
            parser: Parser::default(),
            open: VecDeque::new(),
            max_open: usize::try_from(limit.clamp(64, 1024)).unwrap_or(64),
            full: [false; 2],
        }
    }
}

impl ImageSet {
    /// Sets who parses files.
    pub(crate) fn parse_with(&mut self, parser: &Parser) {
        self.opener.parser = parser.clone();
        self.parser = parser.clone();
    }

    /// Sets the deadline after which no more files are opened.
    pub(crate) fn hasten_with(&mut self, haste: Haste) {
        self.opener.haste = haste;
    }

    /// Whether no more files are to be waited for.
    pub(super) fn has_haste(&self) -> bool {
        self.opener.haste.has_begun()
    }

    /// Opens the file of a mapping unless it is open; a file that was refused once is tried anew, as another process
    /// may have a better look at it.
    pub(crate) fn open(&mut self, file: FileIdx, mmap: &Mmap, relatives: &[u32]) -> Result<ImageIdx, Loss> {
        if let Some(Ok(idx)) = self.files.get(&file) {
            return Ok(*idx);
        }
        let opened = self.open_new(mmap, relatives);
        self.files.insert(file, opened);
        opened
    }

    /// Whether the file is open.
    pub(crate) fn is_open(&self, file: FileIdx) -> bool {
        matches!(self.files.get(&file), Some(Ok(_)))
    }

    fn open_new(&mut self, mmap: &Mmap, relatives: &[u32]) -> Result<ImageIdx, Loss> {
        let (image, (device, inode)) = self.opener.open(mmap, relatives)?;
        let place = (device, inode, plain_path(&mmap.path).to_owned());
        if let Some(idx) = self.places.get(&place) {
            return Ok(*idx);
        }
        let idx = self.add(image?);
        self.places.insert(place, idx);
        self.open.push_back(idx);
        if self.max_open < self.open.len() {
            self.close_oldest();
        }
        Ok(idx)
    }

    fn close_oldest(&mut self) {
        let unhit = |idx: &ImageIdx| self.image(*idx).is_some_and(Image::is_unhit);
        let Some(idx) = self
            .open
            .iter()
            .position(unhit)
            .and_then(|at| self.open.remove(at))
        else {
            return;
        };
        if let Some(place) = self.images.get_mut(idx.0 as usize) {
            *place = None;
        }
        self.places.retain(|_, image| *image != idx);
        self.files.retain(|_, image| *image != Ok(idx));
    }

    /// Forgets the outcome for files that are no longer known; the images that were hit stay.
    pub(crate) fn forget_files(&mut self, is_known: impl Fn(FileIdx) -> bool) {
        self.files.retain(|file, _| is_known(*file));
    }

    /// The image of a mapping and the address in it of the first mapped byte.
    pub(crate) fn place(
        &mut self,
        mapper: &Mapper,
        mapping: &ImageMapping,
        file: &MappedFile,
        memory: Option<&mut ProcessMemory>,
        shows: &dyn Fn(u64, FileOff) -> bool,
    ) -> (ImageIdx, ImageAddr) {
        let mut memory = memory;
        if file.backing() == Backing::Vdso
            && let Some(idx) = self.vdso(mapper, mapping, memory.as_deref_mut())
        {
            return (idx, ImageAddr(mapping.offset.0));
        }
        let mut loss = Loss::ProcessGone;
        if file.backing() == Backing::File {
            let opened = self.open(
                mapping.file,
                &mmap_of(mapper.tgid, mapping, file),
                &mapper.ancestors,
            );
            let image = opened.ok().and_then(|idx| Some((idx, self.image(idx)?)));
            // A compiler names the code that it writes to such a file by the address at which it runs.
            let mut is_compiled = |image: &Image| {
                matches!(image.content, Content::Flat(..))
                    && memory
                        .as_deref_mut()
                        .is_some_and(|memory| memory.has_names(mapper.tgid, mapper.generation))
            };
            let image = image.filter(|(_, image)| !is_compiled(image));
            let start = image.and_then(|(idx, image)| {
                Some((idx, image.image_start(mapping.start, mapping.offset, shows)?))
            });
            if let Some(placed) = start {
                let image = self.images.get_mut(placed.0.0 as usize).and_then(Option::as_mut);
                if let Some(image) = image.filter(|_| mapping.shared) {
                    image.shared = true;
                }
                return placed;
            }
            // What is not in the file can be read from the memory of the process while it lives.
            loss = opened.err().unwrap_or(Loss::FileElsewhere);
        }
        let key = (mapper.generation, mapping.start, mapping.from);
        let idx = match self.memories.get(&key) {
            Some(idx) => *idx,
            None => {
                let owner = Owner::new(mapper.tgid, mapper.generation, loss);
                let kind = if mapper.bits == 32 {
                    ModuleKind::Elf32
                } else {
                    ModuleKind::Anonymous
                };
                let idx = self.add(Image::of_memory(memory_name(&file.path), kind, owner));
                self.memories.insert(key, idx);
                idx
            }
        };
        (idx, ImageAddr(mapping.start.0))
    }

    /// The kernel's code page, of which there is one for each width of code.
    fn vdso(
        &mut self,
        mapper: &Mapper,
        mapping: &ImageMapping,
        memory: Option<&mut ProcessMemory>,
    ) -> Option<ImageIdx> {
        if let Some(idx) = self.vdso.get(&mapper.bits) {
            return Some(*idx);
        }
        let image = read_vdso(mapper, mapping, memory, &self.parser)?;
        let idx = self.add(image);
        self.vdso.insert(mapper.bits, idx);
        Some(idx)
    }

    /// The image of a file of a recording, which is looked for once; of a file that is not there, an image without text.
    pub(crate) fn recorded(
        &mut self,
        idx: FileIdx,
        file: &MappedFile,
        files: &mut RecordedFiles,
        losses: &mut Losses,
    ) -> ImageIdx {
        if let Some(Ok(known)) = self.files.get(&idx) {
            return *known;
        }
        if let Some((source, names)) = files.dump(&file.path) {
            let image = self.add(Image::of_dump(plain_path(&file.path).to_owned(), source, names));
            self.files.insert(idx, Ok(image));
            return image;
        }
        let image = match files.find(file, losses) {
            // One file may be known by its inode and by its build id, and by several paths.
            Some(found) => {
                let (device, inode) = found.place;
                let place = (device, inode, String::new());
                match self.places.get(&place) {
                    Some(known) => *known,
                    None => {
                        let image = Image::of_elf(file.path.as_ref().to_owned(), found.source, found.layout)
                            .with_linked(&self.parser, |link| {
                                let places = linked_places(&found.path, &link.name);
                                places.iter().find_map(|place| Some(open_own(place).ok()?.source))
                            })
                            .with_fetched();
                        let image = self.add(image);
                        self.places.insert(place, image);
                        image
                    }
                }
            }
            None => self.add(Image::missing(file.path.as_ref().to_owned())),
        };
        self.files.insert(idx, Ok(image));
        image
    }

    /// The address in an image of the first byte of a mapping; `None` if an ELF file has no such segment.
    pub(crate) fn image_start(
        &self,
        idx: ImageIdx,
        mapping: &ImageMapping,
        shows: &dyn Fn(u64, FileOff) -> bool,
    ) -> Option<ImageAddr> {
        self.image(idx)?.image_start(mapping.start, mapping.offset, shows)
    }

    /// The address in an image that a text names as 0, by some of the addresses that it names.
    pub(super) fn start_of_named(&self, idx: ImageIdx, addresses: &[u64]) -> ImageAddr {
        self.image(idx)
            .map_or(ImageAddr(0), |image| image.start_of_named(addresses))
    }

    /// Addresses of an image around `at` whose text was asked for already, `at` among them, which are hit.
    pub(crate) fn hit(&mut self, idx: ImageIdx, at: ImageAddr) -> Option<Range<ImageAddr>> {
        self.images.get_mut(idx.0 as usize)?.as_mut()?.hit(at)
    }

    /// Loads the text around `at` if needed; `mapped` is what its mapping shows of the image.
    /// `memory` is given where the owner of memory still runs the program that was hit.
    /// Returns addresses around `at` whose text was asked for.
    pub(crate) fn cover(
        &mut self,
        idx: ImageIdx,
        at: ImageAddr,
        mapped: Range<ImageAddr>,
        memory: Option<&mut ProcessMemory>,
        losses: &mut Losses,
    ) -> Option<Range<ImageAddr>> {
        let image = self.images.get_mut(idx.0 as usize)?.as_mut()?;
        if image.is_left_out(self.full, losses) {
            return None;
        }
        if image.is_unhit() && image.take_overwritten() {
            losses.add(Loss::TextUncertain, 1);
        }
        let covered = image.cover(at, mapped, memory, &self.parser);
        if covered != Covered::Later && image.awaiting.is_empty() {
            image.count_unnamed(losses);
        }
        if covered == Covered::UnreadableNow && !image.counted {
            image.counted = true;
            losses.add(image.loss(), 1);
        }
        image.hit(at)
    }

    /// Looks which files that were hit were written to.
    pub(super) fn notice_writes(&mut self) {
        self.images
            .iter_mut()
            .flatten()
            .for_each(|image| image.notice_writes());
    }

    /// The images whose text may change without a record: files that are shared or were written to, and memory of live owners.
    pub(super) fn changing(&self, is_live: impl Fn(u32, Generation) -> bool) -> Vec<usize> {
        let is_changing = |image: &Image| match &image.content {
            Content::Memory(owner) => is_live(owner.tgid, owner.generation),
            _ => image.may_change(),
        };
        let images = self.images.iter().enumerate();
        let changing = images.filter(|(_, image)| image.as_deref().is_some_and(is_changing));
        changing.map(|(nth, _)| nth).collect()
    }

    /// Reads the text of these images once more, as far as it was hit. Returns the number of ranges that differ.
    pub(super) fn reread(&mut self, images: &[usize], interval: u32, memory: &mut ProcessMemory) -> u64 {
        let mut n_changed = 0;
        for nth in images {
            if let Some(image) = self.images.get_mut(*nth).and_then(Option::as_mut) {
                n_changed += image.reread(interval, memory);
            }
        }
        n_changed
    }

    /// Whether the text of an image differs from what was read last; takes what it reads from the bytes that are `left`.
    pub(super) fn differs(&self, nth: usize, left: &mut usize, memory: &mut ProcessMemory) -> bool {
        let image = self.images.get(nth).and_then(Option::as_deref);
        image.is_some_and(|image| {
            let (differs, after) = image.differs(*left, memory);
            *left = after;
            differs
        })
    }

    /// The text of an image.
    pub(crate) fn text(&self, idx: ImageIdx) -> Option<&ModuleText> {
        Some(self.image(idx)?.text())
    }

    /// Operand and address size in bits to decode the text of an image with.
    pub(crate) fn bits(&self, idx: ImageIdx) -> Option<u32> {
        Some(self.image(idx)?.kind.bits())
    }

    /// Whether the text of an image is that of a file.
    pub(crate) fn is_file(&self, idx: ImageIdx) -> bool {
        self.image(idx).is_some_and(Image::is_file)
    }

    /// The image with these bytes in the text range of a file that starts at `start`, a new one where there is none.
    /// With too many contents of one range, an image without text: its samples have no instruction.
    pub(crate) fn patched(&mut self, file: ImageIdx, start: ImageAddr, bytes: Vec<u8>) -> ImageIdx {
        let images = self.patched.get(&file).map_or(&[][..], Vec::as_slice);
        let mut free = None;
        for idx in images {
            match self.text(*idx).and_then(|text| text.range_at(start)) {
                Some((_, there)) if *there == *bytes => return *idx,
                Some(_) => {}
                None => free = free.or(Some(*idx)),
            }
        }
        let idx = free.unwrap_or_else(|| self.add_patched(file));
        let taken = self.images.get_mut(idx.0 as usize).and_then(Option::take);
        if let Some(mut image) = taken {
            if let Some(file) = self.image(file) {
                image.copy_text(file, start, bytes);
            }
            if let Some(place) = self.images.get_mut(idx.0 as usize) {
                *place = Some(image);
            }
        }
        idx
    }

    fn add_patched(&mut self, file: ImageIdx) -> ImageIdx {
        let n_images = self.patched.get(&file).map_or(0, Vec::len);
        let image = match self.image(file) {
            Some(file) if n_images < MAX_PATCHED => Image::patched(file),
            Some(file) => Image::missing(file.name.clone()),
            None => Image::missing(String::new()),
        };
        let idx = self.add(image);
        self.patched.entry(file).or_default().push(idx);
        idx
    }

    /// The intervals in which text versions begin.
    pub(crate) fn version_starts(&self) -> impl Iterator<Item = u32> {
        let images = self.images.iter().flatten();
        images.flat_map(|image| image.text().version_starts())
    }

    /// Hands over the images that were hit since the last call, as modules, and their text; returns what became of each
    /// image. Files stay open.
    pub(crate) fn emit(
        &mut self,
        modules: &mut Vec<Module>,
        text: &mut Vec<Text>,
        hit: &[ImageIdx],
    ) -> HashMap<ImageIdx, ModuleIdx> {
        let mut became = HashMap::new();
        let mut left = MAX_KEPT_TEXT;
        for (idx, place) in (0..).map(ImageIdx).zip(&mut self.images) {
            let Some(image) = place else {
                continue;
            };
            let of_interval = image.take_text(&mut left);
            if hit.binary_search(&idx).is_ok() {
                let module = ModuleIdx(u32::try_from(modules.len()).unwrap_or(u32::MAX));
                modules.push(image.module(of_interval.emit(module, text)));
                became.insert(idx, module);
            }
            if image.is_of_one_time() {
                *place = None;
            }
        }
        self.memories.clear();
        self.patched.clear();
        self.full = [false; 2];
        let places = (0..).map(ImageIdx).zip(&self.images);
        self.free = places
            .filter_map(|(idx, place)| place.is_none().then_some(idx))
            .collect();
        became
    }

    pub(super) fn image(&self, idx: ImageIdx) -> Option<&Image> {
        self.images.get(idx.0 as usize)?.as_deref()
    }

    fn add(&mut self, image: Image) -> ImageIdx {
        if let Some(idx) = self.free.pop()
            && let Some(place) = self.images.get_mut(idx.0 as usize)
        {
            *place = Some(Box::new(image));
            return idx;
        }
        let idx = ImageIdx(u32::try_from(self.images.len()).unwrap_or(u32::MAX));
        self.images.push(Some(Box::new(image)));
        idx
    }
}

fn memory_name(path: &str) -> String {
    if path == ANONYMOUS {
        "[anon]".to_owned()
    } else {
        plain_path(path).to_owned()
    }
}

pub(super) fn mmap_of(pid: u32, mapping: &ImageMapping, file: &MappedFile) -> Mmap {
    let len = mapping.end.since(mapping.start).unwrap_or(0);
    let MappedFile { path, identity } = file.clone();
    Mmap {
        pid,
        start: mapping.start,
        len,
        offset: mapping.offset,
        identity,
        shared: mapping.shared,
        path,
    }
}
