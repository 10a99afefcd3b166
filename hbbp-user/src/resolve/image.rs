//! What is mapped into processes: an ELF file, another file, or memory; where its text is read and who names it.

use std::ops::Range;

use crate::addr::{FileOff, ImageAddr, Va};
use crate::snapshot::{Loss, Module, ModuleIdx, ModuleKind, Symbol, Text};

use super::elf::{ElfClass, ElfError, ElfLayout, read_layout};
use super::functions::{Functions, SymbolFile, read_functions};
use super::mapped_file::open_own;
use super::process_image::Generation;
use super::process_memory::ProcessMemory;
use super::source::ByteSource;
use super::text::{Covered, ModuleText};
use super::vmlinux::debug_file_place;

/// Something that is mapped into processes, and its text as far as it was hit.
#[derive(Debug)]
pub struct Image {
    /// Path, or the kernel's name.
    pub name: String,
    /// Its sort.
    pub kind: ModuleKind,
    /// Where its text is read.
    pub content: Content,
    /// Whether it was counted as lost.
    pub counted: bool,
    text: ModuleText,
}

/// Where the text of an image is read.
#[derive(Debug)]
pub enum Content {
    /// An ELF file or a copy of one.
    Elf(Box<ElfContent>),
    /// A file that is no ELF file, such as the code cache of a compiler; its addresses are file offsets.
    Flat(ByteSource),
    /// Memory of one process; its addresses are those of the process.
    Memory(Owner),
}

/// An ELF file with what is known about its functions.
#[derive(Debug)]
pub struct ElfContent {
    source: ByteSource,
    layout: ElfLayout,
    /// Read at the first hit.
    names: Option<Names>,
}

#[derive(Debug)]
struct Names {
    functions: Functions,
    debug: Option<ByteSource>,
}

/// The process whose memory an image is.
#[derive(Debug)]
pub struct Owner {
    /// Thread group id.
    pub tgid: u32,
    /// The program that it ran.
    pub generation: Generation,
    /// What is counted where the memory cannot be read: why it had to be.
    pub loss: Loss,
}

impl Image {
    /// An image of a file: ELF where it is one, else its plain bytes.
    pub fn of_file(name: String, source: ByteSource) -> Result<Self, ElfError> {
        match read_layout(&source) {
            Ok(layout) => {
                let kind = match layout.class {
                    ElfClass::X86 => ModuleKind::Elf32,
                    ElfClass::X86_64 | ElfClass::X32 => ModuleKind::Elf64,
                };
                let content = Content::Elf(Box::new(ElfContent {
                    source,
                    layout,
                    names: None,
                }));
                Ok(Self {
                    name,
                    kind,
                    content,
                    counted: false,
                    text: ModuleText::default(),
                })
            }
            Err(ElfError::NotElf) => {
                let content = Content::Flat(source);
                Ok(Self {
                    name,
                    kind: ModuleKind::Anonymous,
                    content,
                    counted: false,
                    text: ModuleText::default(),
                })
            }
            Err(error) => Err(error),
        }
    }

    /// An image of memory of one process.
    pub fn of_memory(name: String, kind: ModuleKind, owner: Owner) -> Self {
        Self {
            name,
            kind,
            content: Content::Memory(owner),
            counted: false,
            text: ModuleText::default(),
        }
    }

    /// The address in the image of the first byte of a mapping; `None` where an ELF file has no such segment.
    pub fn image_start(&self, start: Va, offset: FileOff) -> Option<ImageAddr> {
        match &self.content {
            Content::Elf(elf) => elf.layout.image_addr(offset),
            Content::Flat(_) => Some(ImageAddr(offset.0)),
            Content::Memory(_) => Some(ImageAddr(start.0)),
        }
    }

    /// The stretch of text that holds `at`, where that was asked for already.
    pub fn stretch_at(&self, at: ImageAddr) -> Option<Range<ImageAddr>> {
        self.text.stretch_at(at)
    }

    /// Sees to it that the text around `at` is kept; `mapped` are the addresses of the mapping that was hit,
    /// and `memory` is given where an owner of memory still runs the program that was hit.
    pub fn cover(
        &mut self,
        at: ImageAddr,
        mapped: Range<ImageAddr>,
        memory: Option<&mut ProcessMemory>,
    ) -> Covered {
        match &mut self.content {
            Content::Elf(elf) => {
                let function = elf.read_function_at(at);
                let bounds = elf
                    .layout
                    .segment_at(at)
                    .map(|s| s.start..ImageAddr(s.start.0.saturating_add(s.len)));
                let (source, layout) = (&elf.source, &elf.layout);
                let mut read = |at: ImageAddr, bytes: &mut [u8]| {
                    layout
                        .file_off(at)
                        .is_some_and(|offset| source.read_into(offset.0, bytes))
                };
                self.text.cover(at, bounds.unwrap_or(mapped), function, &mut read)
            }
            Content::Flat(source) => {
                // A mapping is whole pages long, the file may end before.
                let filled = mapped.start..mapped.end.min(ImageAddr(source.len()));
                self.text
                    .cover(at, filled, None, &mut |at, bytes| source.read_into(at.0, bytes))
            }
            Content::Memory(owner) => {
                let tgid = owner.tgid;
                match memory {
                    Some(memory) => {
                        let function = memory.read_function_at(tgid, at);
                        self.text.cover(at, mapped, function, &mut |at, bytes| {
                            memory.read(tgid, Va(at.0), bytes)
                        })
                    }
                    None => self.text.cover(at, mapped, None, &mut |_, _| false),
                }
            }
        }
    }

    /// Reads memory that was hit before once more, its owner being alive; files are taken not to change while they are mapped.
    /// Returns the number of stretches that differ.
    pub fn reread(&mut self, interval: u32, memory: &mut ProcessMemory) -> u64 {
        match &self.content {
            Content::Memory(owner) => {
                let tgid = owner.tgid;
                self.text
                    .reread(interval, &mut |at, bytes| memory.read(tgid, Va(at.0), bytes))
            }
            _ => 0,
        }
    }

    /// How it is counted where its text cannot be read.
    pub fn loss(&self) -> Loss {
        match &self.content {
            Content::Elf(_) | Content::Flat(_) => Loss::FileUnreadable,
            Content::Memory(owner) => owner.loss,
        }
    }

    /// Whether nothing of it was hit.
    pub fn is_unhit(&self) -> bool {
        self.text.is_empty()
    }

    /// Its text, as far as it was hit.
    pub const fn text(&self) -> &ModuleText {
        &self.text
    }

    /// Hands over its text and becomes a module of the snapshot.
    pub fn emit(self, module: ModuleIdx, text: &mut Vec<Text>) -> Module {
        let build_id = match self.content {
            Content::Elf(elf) => elf.layout.build_id,
            Content::Flat(_) | Content::Memory(_) => Vec::new(),
        };
        Module {
            name: self.name,
            kind: self.kind,
            build_id,
            symbols: self.text.emit(module, text),
        }
    }
}

impl ElfContent {
    fn read_function_at(&mut self, at: ImageAddr) -> Option<Symbol> {
        let Self {
            source,
            layout,
            names,
        } = self;
        let names = names.get_or_insert_with(|| read_names(source, layout));
        names.functions.read_function_at(at, source, names.debug.as_ref())
    }
}

/// Reads the function ranges of a file, and of its debug file where one is installed.
fn read_names(source: &ByteSource, layout: &ElfLayout) -> Names {
    let own = SymbolFile { source, layout };
    let debug = debug_file_place(&layout.build_id)
        .and_then(|path| open_own(&path).ok())
        .map(|file| file.source);
    let debug_layout = debug.as_ref().and_then(|debug| read_layout(debug).ok());
    let fits = debug_layout
        .as_ref()
        .filter(|debug| debug.build_id == layout.build_id);
    let debug_file = debug
        .as_ref()
        .zip(fits)
        .map(|(source, layout)| SymbolFile { source, layout });
    let functions = read_functions(own, debug_file);
    Names { functions, debug }
}
