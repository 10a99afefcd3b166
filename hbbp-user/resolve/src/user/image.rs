//! What is mapped into processes: an ELF file, another file, or memory; where its text is read and who names it.

use std::collections::BTreeMap;
use std::ops::Range;

use hbbp_model::addr::{FileOff, ImageAddr, Va};
use hbbp_model::snapshot::{Loss, Module, ModuleKind, Symbol};

use super::function_or_gap::{FunctionOrGap, within};
use super::process_memory::{Owner, ProcessMemory};
use crate::debug_places::debug_file_place;
use crate::regular_file::open_own;
use crate::text::{Change, Covered, Known, Live, ModuleText};
use hbbp_elf::byte_source::{ByteSource, Timestamp};
use hbbp_elf::functions::Functions;
use hbbp_elf::layout::{ElfClass, ElfError, ElfLayout};
use hbbp_elf::parser::{Answer, Parser};
use hbbp_elf::perf_map::PerfMap;

/// Something that is mapped into processes, and its text as far as it was hit.
#[derive(Debug)]
pub struct Image {
    /// Path, or the kernel's name.
    pub(crate) name: String,
    /// Its sort.
    pub(crate) kind: ModuleKind,
    /// Where its text is read.
    pub(crate) content: Content,
    /// Whether it was counted as lost.
    pub(crate) counted: bool,
    /// Whether it was counted that no more of its text is taken.
    pub(crate) left_out: bool,
    /// Whether its text may change while it runs: a process maps it so that its own writes show, or the file was
    /// written to, which shows in all mappings of it.
    pub(crate) shared: bool,
    /// When the file was last changed, as far as that was seen.
    seen: Option<Timestamp>,
    /// Whether it was counted that its functions were given up.
    pub(crate) unnamed: bool,
    /// Addresses that were hit while its functions were awaited, and what their mappings show of it.
    pub(super) awaiting: BTreeMap<ImageAddr, Range<ImageAddr>>,
    /// Whether the functions of memory were given up.
    pub(super) given_up: bool,
    pub(super) text: ModuleText,
}

/// Addresses that may wait for the functions of an image; of others the text around them is taken.
pub(super) const MAX_AWAITING: usize = 1 << 14;

/// Where the text of an image is read.
#[derive(Debug)]
pub(crate) enum Content {
    /// An ELF file or a copy of one.
    Elf(Box<ElfContent>),
    /// A file other than ELF, such as the code cache of a compiler; its addresses are file offsets. A jitdump names them.
    Flat(ByteSource, PerfMap),
    /// Memory of one process; its addresses are those of the process.
    Memory(Owner),
    /// Text of a file as processes have changed it; its addresses are those of the image of the file.
    Patched,
    /// Nothing; its addresses are file offsets.
    Missing,
}

/// An ELF file with what is known about its functions.
#[derive(Debug)]
pub(crate) struct ElfContent {
    source: ByteSource,
    pub(super) layout: ElfLayout,
    /// The file that its `.gnu_debuglink` names, the one that this one names, and so on.
    pub(super) linked: Vec<ByteSource>,
    /// When it was last changed, before its text and its names were read.
    changed: Option<Timestamp>,
    /// Read at the first hit.
    pub(super) names: Option<Names>,
}

#[derive(Debug)]
pub(super) struct Names {
    pub(super) functions: Answer<Functions>,
    debug: Vec<ByteSource>,
    /// How often they were asked for, lately more than before.
    uses: u32,
}

impl Image {
    /// An image of a file: ELF where it is one, else its plain bytes.
    pub fn of_file(name: String, source: ByteSource, parser: &Parser) -> Result<Self, ElfError> {
        match parser.layout(&source) {
            Ok(layout) => Ok(Self::of_elf(name, source, layout)),
            Err(ElfError::NotElf) => {
                let seen = source.changed();
                let flat = Self::new(
                    name,
                    ModuleKind::Anonymous,
                    Content::Flat(source, PerfMap::default()),
                );
                Ok(Self { seen, ..flat })
            }
            Err(error) => Err(error),
        }
    }

    /// An image of an ELF file.
    pub(crate) fn of_elf(name: String, source: ByteSource, layout: ElfLayout) -> Self {
        let kind = match layout.class {
            ElfClass::X86 => ModuleKind::Elf32,
            ElfClass::X86_64 | ElfClass::X32 => ModuleKind::Elf64,
        };
        let elf = ElfContent {
            changed: source.changed(),
            source,
            layout,
            linked: Vec::new(),
            names: None,
        };
        let seen = elf.changed;
        Self {
            seen,
            ..Self::new(name, kind, Content::Elf(Box::new(elf)))
        }
    }

    /// An image of the code in a jitdump.
    pub(super) fn of_dump(name: String, source: ByteSource, names: PerfMap) -> Self {
        Self::new(name, ModuleKind::Anonymous, Content::Flat(source, names))
    }

    /// An image of memory of one process.
    pub(crate) fn of_memory(name: String, kind: ModuleKind, owner: Owner) -> Self {
        Self::new(name, kind, Content::Memory(owner))
    }

    /// A file of a recording that was not found: it was hit, and nothing else is known of it.
    pub(crate) fn missing(name: String) -> Self {
        Self::new(name, ModuleKind::Elf64, Content::Missing)
    }

    /// An image of a file as processes have changed it: of the ranges that are [copied](Self::copy_text) to it.
    pub(crate) fn patched(file: &Self) -> Self {
        Self::new(format!("{} (patched)", file.name), file.kind, Content::Patched)
    }

    fn new(name: String, kind: ModuleKind, content: Content) -> Self {
        Self {
            name,
            kind,
            content,
            counted: false,
            left_out: false,
            shared: false,
            seen: None,
            unnamed: false,
            awaiting: BTreeMap::new(),
            given_up: false,
            text: ModuleText::default(),
        }
    }

    /// The address in the image of the first byte of a mapping; `None` if an ELF file has no such segment. `shows` says whether a
    /// byte of the file is mapped at a distance (modulo 2^64) from there.
    pub fn image_start(
        &self,
        start: Va,
        offset: FileOff,
        shows: &dyn Fn(u64, FileOff) -> bool,
    ) -> Option<ImageAddr> {
        match &self.content {
            Content::Elf(elf) => elf.layout.image_addr(offset, shows),
            Content::Flat(..) | Content::Patched | Content::Missing => Some(ImageAddr(offset.0)),
            Content::Memory(_) => Some(ImageAddr(start.0)),
        }
    }

    /// The address that a text names as 0, by some of the addresses that it names: 0 where these are addresses of the file, else
    /// that of the first byte, as they are offsets in it (`perf script -F brstackoff`).
    pub(super) fn start_of_named(&self, addresses: &[u64]) -> ImageAddr {
        let Content::Elf(elf) = &self.content else {
            return ImageAddr(0);
        };
        let code = || elf.layout.segments.iter().filter(|segment| segment.executable);
        let n_in_code = |start: u64| {
            let in_code = |at: &&u64| {
                let at = at.saturating_add(start);
                code().any(|segment| {
                    (segment.start.0..segment.start.0.saturating_add(segment.len)).contains(&at)
                })
            };
            addresses.iter().filter(in_code).count()
        };
        let starts = code().filter_map(|segment| segment.start.0.checked_sub(segment.offset.0));
        // Of equals the last one is taken: addresses of the file.
        let start = starts.chain([0]).max_by_key(|start| n_in_code(*start));
        ImageAddr(start.unwrap_or(0))
    }

    /// Addresses around `at` whose text was asked for already, `at` among them, which are hit.
    pub(crate) fn hit(&mut self, at: ImageAddr) -> Option<Range<ImageAddr>> {
        self.text.hit(at)
    }

    /// Loads the text around `at` if needed; `mapped` are the addresses of the mapping that was hit, and
    /// `memory` is given where an owner of memory still runs the program that was hit. Where its functions are awaited, text
    /// of a file is read later, and memory, which may be gone then, is named later.
    pub fn cover(
        &mut self,
        at: ImageAddr,
        mapped: Range<ImageAddr>,
        memory: Option<&mut ProcessMemory>,
        parser: &Parser,
    ) -> Covered {
        let may_wait = self.awaiting.len() < MAX_AWAITING;
        match &mut self.content {
            Content::Elf(elf) => match elf.read_function_at(at, parser) {
                None if may_wait => {
                    self.awaiting.insert(at, mapped);
                    Covered::Later
                }
                found => elf.cover(&mut self.text, at, mapped, found.unwrap_or_default()),
            },
            Content::Flat(source, names) => {
                let function = names.function_at(at, source, 0);
                // A mapping is whole pages long, the file may end before.
                let filled = mapped.start..mapped.end.min(ImageAddr(source.len()));
                self.text.cover(at, filled, function, &mut |at, bytes| {
                    source.read_into(at.0, bytes)
                })
            }
            Content::Memory(owner) => {
                let tgid = owner.tgid;
                match memory {
                    Some(memory) => {
                        let names = memory.names(tgid, owner.generation);
                        if names.is_none() && may_wait {
                            self.awaiting.insert(at, mapped.clone());
                        }
                        self.given_up |= matches!(names, Some(None));
                        let names = names.flatten();
                        let function = names.and_then(|names| names.function_at(at));
                        if let Some(function) = &function {
                            self.text.name(function.clone());
                        }
                        let unnamed = names.filter(|_| function.is_none());
                        self.given_up |= unnamed.is_some_and(|names| names.map.is_cut());
                        let gap = unnamed.map(|names| names.map.gap_at(at));
                        let mut read = |at: ImageAddr, bytes: &mut [u8]| memory.read(tgid, Va(at.0), bytes);
                        self.text.cover(at, within(mapped, gap), function, &mut read)
                    }
                    None => self.text.cover(at, mapped, None, &mut |_, _| false),
                }
            }
            Content::Patched | Content::Missing => Covered::Unreadable,
        }
    }

    /// Whether its text is that of a file.
    pub(crate) const fn is_file(&self) -> bool {
        matches!(self.content, Content::Elf(_) | Content::Flat(..))
    }

    /// Adds a text range of a file, which starts at `start`, with the bytes that a process has there.
    /// An image that is not of this kind stays without text.
    pub(crate) fn copy_text(&mut self, file: &Self, start: ImageAddr, bytes: Vec<u8>) {
        if matches!(self.content, Content::Patched) {
            self.text.copy(&file.text, start, bytes);
        }
    }

    /// Looks whether somebody has written to the file of an image that was hit since this was asked for last, or since it was
    /// opened. Writes to a page that is still dirty are not seen, so that the text may change from then on.
    pub(crate) fn notice_writes(&mut self) {
        if self.shared || self.is_unhit() {
            return;
        }
        if let Some(changed) = self.file().map(ByteSource::changed) {
            self.shared = self.seen != changed;
            self.seen = changed;
        }
    }

    /// Whether its file was written to since it was opened or since this was asked for last. Then other text may have run
    /// than is read now.
    pub(crate) fn take_overwritten(&mut self) -> bool {
        let Some((changed, written)) = self.file().map(|file| (file.changed(), file.written())) else {
            return false;
        };
        // A change of the inode alone, such as an unlink(2), sets no time of a write.
        let is_overwritten = self.seen != changed && changed == written;
        self.shared |= self.seen != changed;
        self.seen = changed;
        is_overwritten
    }

    /// Its file, whether ELF or not.
    fn file(&self) -> Option<&ByteSource> {
        match &self.content {
            Content::Elf(elf) => Some(&elf.source),
            Content::Flat(source, _) => Some(source),
            Content::Memory(_) | Content::Patched | Content::Missing => None,
        }
    }

    /// Whether its text may change without a record: memory, and files that are shared.
    pub(crate) const fn may_change(&self) -> bool {
        matches!(self.content, Content::Memory(_)) || self.shared && self.is_file()
    }

    /// Reads what may change once more, as far as it was hit; the owner of memory must be alive. Returns the number of
    /// ranges that differ.
    pub(crate) fn reread(&mut self, interval: u32, memory: &mut ProcessMemory) -> u64 {
        let live = self.read_live(usize::MAX, memory).0;
        let known = Known {
            interval,
            ..Known::default()
        };
        let n_changed = self.text.change(Change::Observed(live, known));
        let Content::Memory(owner) = &mut self.content else {
            return n_changed;
        };
        // What is there now may have another name, or a first one.
        if 0 < n_changed || self.text.has_unnamed() {
            owner.note_names(memory);
        }
        if 0 < n_changed {
            let functions = self.text.changed_functions().into_iter();
            let room = MAX_AWAITING.saturating_sub(self.awaiting.len());
            self.awaiting.extend(functions.take(room).map(|at| (at, at..at)));
        }
        n_changed
    }

    /// Whether its text differs from what was read last, as far as that is found by reading `most` bytes; and how many
    /// are left of them, 0 where there was more to read.
    pub(crate) fn differs(&self, most: usize, memory: &mut ProcessMemory) -> (bool, usize) {
        let (live, left) = self.read_live(most, memory);
        (live.is_any(), left)
    }

    fn read_live(&self, most: usize, memory: &mut ProcessMemory) -> (Live, usize) {
        let mut left = most;
        let mut read = |at: ImageAddr, bytes: &mut [u8]| {
            left = left.saturating_sub(bytes.len());
            0 < left
                && match &self.content {
                    Content::Memory(owner) => memory.read(owner.tgid, Va(at.0), bytes),
                    Content::Elf(elf) => elf.read(at, bytes),
                    Content::Flat(source, _) => source.read_into(at.0, bytes),
                    Content::Patched | Content::Missing => false,
                }
        };
        let live = self.text.read_live(None, &mut read);
        (live, left)
    }

    /// How it is counted where its text cannot be read.
    pub(crate) fn loss(&self) -> Loss {
        match &self.content {
            Content::Elf(_) | Content::Flat(..) | Content::Patched | Content::Missing => Loss::FileUnreadable,
            Content::Memory(owner) => owner.loss,
        }
    }

    /// Whether nothing of it was hit.
    pub(crate) fn is_unhit(&self) -> bool {
        self.text.is_unhit() && self.awaiting.is_empty()
    }

    /// Whether its bytes were written by running programs, and belong to no file.
    pub(crate) const fn is_written(&self) -> bool {
        match self.content {
            Content::Memory(_) | Content::Flat(..) | Content::Patched => true,
            Content::Elf(_) | Content::Missing => false,
        }
    }

    /// Drops the text of ranges that changed; returns their number.
    pub(crate) fn drop_changed(&mut self) -> u64 {
        self.text.drop_changed()
    }

    /// Its text, as far as it was hit.
    pub(crate) const fn text(&self) -> &ModuleText {
        &self.text
    }

    /// Its module of a snapshot, with these symbols.
    pub(crate) fn module(&self, symbols: Vec<Symbol>) -> Module {
        let build_id = match &self.content {
            Content::Elf(elf) => elf.layout.build_id.clone(),
            Content::Flat(..) | Content::Memory(_) | Content::Patched | Content::Missing => Vec::new(),
        };
        Module {
            name: self.name.clone(),
            kind: self.kind,
            build_id,
            symbols,
        }
    }

    /// Whether it belongs to the time since the last [time](ModuleText::take_hit): memory of one process, and what processes
    /// made of a file.
    pub(crate) const fn is_of_one_time(&self) -> bool {
        matches!(self.content, Content::Memory(_) | Content::Patched)
    }
}

impl ElfContent {
    /// Whether it was not written to since the last call; otherwise names are read anew.
    pub(super) fn is_unchanged(&mut self) -> bool {
        let changed = self.source.changed();
        let is_unchanged = changed == self.changed;
        if !is_unchanged {
            (self.changed, self.names) = (changed, None);
        }
        is_unchanged
    }

    /// How often names were requested, and their bytes. Older requests count half from now on. `None` while names are awaited.
    pub(super) fn age_names(&mut self) -> Option<(u32, usize)> {
        let names = self.names.as_mut()?;
        let uses = names.uses;
        names.uses /= 2;
        match &names.functions {
            Answer::There(functions) => Some((uses, functions.as_ref().map_or(0, Functions::n_bytes))),
            Answer::Awaited(_) => None,
        }
    }

    /// Makes the next hit of the file ask once more for functions that were given up.
    pub(super) fn ask_again(&mut self) {
        self.names
            .take_if(|names| matches!(names.functions, Answer::There(None)));
    }

    /// Drops the names; they are read anew where the file is hit next.
    pub(super) fn drop_names(&mut self) {
        self.names = None;
    }

    /// Has its functions parsed, and those of a debug file where one is installed: by build id, or as the file says.
    fn read_names(&self, parser: &Parser) -> Names {
        let by_id = debug_file_place(&self.layout.build_id).and_then(|path| open_own(&path).ok());
        let debug = match by_id {
            Some(file) => vec![file.source],
            None => self.linked.iter().filter_map(|file| file.again().ok()).collect(),
        };
        let functions = parser.functions(&self.source, &debug);
        Names {
            functions,
            debug,
            uses: 0,
        }
    }

    pub(super) fn read(&self, at: ImageAddr, bytes: &mut [u8]) -> bool {
        let offset = self.layout.file_off(at);
        offset.is_some_and(|offset| self.source.read_into(offset.0, bytes))
    }

    /// The function that contains `at`, else the gap between functions around it; `None` while functions are awaited.
    fn read_function_at(&mut self, at: ImageAddr, parser: &Parser) -> Option<FunctionOrGap> {
        if self.names.is_none() {
            self.names = Some(self.read_names(parser));
        }
        self.known_function_at(at, parser)
    }

    /// The same of functions that were requested.
    pub(super) fn known_function_at(&mut self, at: ImageAddr, parser: &Parser) -> Option<FunctionOrGap> {
        let Self { source, names, .. } = self;
        let names = names.as_mut()?;
        names.uses = names.uses.saturating_add(1);
        let Some(functions) = parser.wait(&mut names.functions)? else {
            return Some(FunctionOrGap::default());
        };
        let function = functions.read_function_at(at, source, &names.debug);
        let gap = function.is_none().then(|| functions.gap_at(at, source));
        Some(FunctionOrGap { function, gap })
    }
}
