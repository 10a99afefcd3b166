//! The layout of an ELF file: what it is for, its build id, and how file offsets and image addresses correspond.
//!
//! The bytes are those of a stranger: every size is checked against the file, and tables are truncated at fixed limits.

use std::fmt;
use std::mem;

use object::LittleEndian;
use object::elf::{self, FileHeader32, FileHeader64};
use object::pod::{self, Pod};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

use hbbp_model::addr::{FileOff, ImageAddr};

use super::build_id::parse_build_id;
use super::byte_source::ByteSource;
use super::debug_link::DebugLink;

/// Real files have about ten; each function that has only a start is looked for in all of them.
pub(crate) const MAX_SEGMENTS: usize = 128;
/// Programs and libraries have some 40, kernels with their modules' tables some hundreds.
const MAX_SECTIONS: usize = 4096;
/// Most bytes that are read of the notes of a segment, and most segments with notes. Linkers write two or three of these.
const MAX_NOTES: u64 = 64 << 10;
const MAX_NOTE_SEGMENTS: usize = 8;
/// Pages of x86; mappings start and end on them, segments need not.
const PAGE: u64 = 4096;

/// What the code of a file is compiled for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ElfClass {
    /// 64-bit code.
    X86_64,
    /// 64-bit code with 32-bit pointers, and tables of 32-bit entries.
    X32,
    /// 32-bit code.
    X86,
}

/// Why a file cannot be used as an image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ElfError {
    /// It does not start as an ELF file does.
    NotElf,
    /// It is for another processor, or no program or library.
    Foreign,
    /// Its tables lie outside of it, or are larger than any real ones.
    Broken,
    /// Parsing it took too much time or memory.
    GivenUp,
}

impl fmt::Display for ElfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotElf => "not an ELF file",
            Self::Foreign => "not an x86 executable or library",
            Self::Broken => "truncated or damaged ELF file",
            Self::GivenUp => "parsing takes too much time or memory",
        })
    }
}

impl std::error::Error for ElfError {}

/// The layout of an ELF file.
#[derive(Clone, Debug)]
pub struct ElfLayout {
    /// What its code is for.
    pub class: ElfClass,
    /// GNU build id, empty where there is none.
    pub build_id: Vec<u8>,
    /// Segments that are loaded, in the order of the file.
    pub segments: Vec<Segment>,
    /// Sections; none if the file was stripped of them.
    pub sections: Vec<Section>,
    /// Where the names of sections are.
    pub section_names: Option<FileOff>,
    /// Where the search table of unwind information lies: its segment.
    pub eh_frame_hdr: Option<Segment>,
    /// The file that holds its symbols, where it says so.
    pub debug_link: Option<DebugLink>,
}

/// A part of the file that is mapped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Segment {
    /// First byte in the file.
    pub offset: FileOff,
    /// Its address.
    pub start: ImageAddr,
    /// Length in bytes in the file.
    pub len: u64,
    /// Whether it is mapped executable.
    pub executable: bool,
}

/// A section.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Section {
    /// `sh_type`.
    pub kind: u32,
    /// First byte in the file.
    pub offset: FileOff,
    /// Its address; 0 if it is not mapped.
    pub start: ImageAddr,
    /// Length in bytes.
    pub len: u64,
    /// Index of the section that it refers to, such as the strings of a symbol table.
    pub link: u32,
    /// Where its name is in the section of names.
    pub name: u32,
    /// Whether it holds code.
    pub executable: bool,
}

/// Reads the layout of an ELF file.
pub fn read_layout(source: &ByteSource) -> Result<ElfLayout, ElfError> {
    let ident = source.read(0, 16).ok_or(ElfError::NotElf)?;
    if !ident.starts_with(&elf::ELFMAG) {
        return Err(ElfError::NotElf);
    }
    match (ident.get(4).copied(), ident.get(5).copied()) {
        (Some(elf::ELFCLASS64), Some(elf::ELFDATA2LSB)) => read_headers::<FileHeader64<LittleEndian>>(source),
        (Some(elf::ELFCLASS32), Some(elf::ELFDATA2LSB)) => read_headers::<FileHeader32<LittleEndian>>(source),
        _ => Err(ElfError::Foreign),
    }
}

fn read_headers<E: FileHeader<Endian = LittleEndian>>(source: &ByteSource) -> Result<ElfLayout, ElfError> {
    let le = LittleEndian;
    let head = source
        .read(0, wide(mem::size_of::<E>()))
        .ok_or(ElfError::Broken)?;
    let (head, _) = pod::from_bytes::<E>(&head).map_err(|()| ElfError::Broken)?;
    let class = match (head.e_machine(le), head.is_type_64()) {
        (elf::EM_X86_64, true) => ElfClass::X86_64,
        (elf::EM_X86_64, false) => ElfClass::X32,
        (elf::EM_386, false) => ElfClass::X86,
        _ => return Err(ElfError::Foreign),
    };
    if !matches!(head.e_type(le), elf::ET_EXEC | elf::ET_DYN) {
        return Err(ElfError::Foreign);
    }
    let n_segments = usize::from(head.e_phnum(le));
    if MAX_SEGMENTS < n_segments {
        return Err(ElfError::Broken);
    }
    let headers: Vec<E::ProgramHeader> =
        read_table(source, head.e_phoff(le).into(), n_segments).ok_or(ElfError::Broken)?;
    let of_kind = |kind| headers.iter().filter(move |h| h.p_type(le) == kind);
    let mut notes = of_kind(elf::PT_NOTE).take(MAX_NOTE_SEGMENTS);
    let notes = notes.find_map(|h| {
        let notes = source.read(h.p_offset(le).into(), h.p_filesz(le).into().min(MAX_NOTES))?;
        parse_build_id(&notes)
    });
    let sections = read_sections::<E>(source, head).unwrap_or_default();
    let names = sections.get(usize::from(head.e_shstrndx(le)));
    let mut segments: Vec<Segment> = of_kind(elf::PT_LOAD).map(segment).collect();
    if headers.is_empty() {
        // What older versions of `perf inject --jit` write (tools/perf/util/genelf.c) has sections alone.
        let code = sections.iter().filter(|section| section.executable);
        segments.extend(code.take(MAX_SEGMENTS).map(Segment::of_section));
    }
    let layout = ElfLayout {
        class,
        build_id: notes.unwrap_or_default(),
        segments,
        section_names: names.map(|names| names.offset),
        sections,
        eh_frame_hdr: of_kind(elf::PT_GNU_EH_FRAME).map(segment).next(),
        debug_link: None,
    };
    let link = layout.unmapped_section(source, ".gnu_debuglink");
    Ok(ElfLayout {
        debug_link: link.and_then(|link| DebugLink::read(source, link.offset.0, link.len)),
        ..layout
    })
}

impl Segment {
    fn of_section(section: &Section) -> Self {
        Self {
            offset: section.offset,
            start: section.start,
            len: section.len,
            executable: section.executable,
        }
    }
}

fn segment<P: ProgramHeader<Endian = LittleEndian>>(header: &P) -> Segment {
    let le = LittleEndian;
    Segment {
        offset: FileOff(header.p_offset(le).into()),
        start: ImageAddr(header.p_vaddr(le).into()),
        len: header.p_filesz(le).into(),
        executable: header.p_flags(le) & elf::PF_X != 0,
    }
}

/// Sections serve for names only, so damaged ones are as good as none.
fn read_sections<E: FileHeader<Endian = LittleEndian>>(
    source: &ByteSource,
    head: &E,
) -> Option<Vec<Section>> {
    let le = LittleEndian;
    let n_sections = usize::from(head.e_shnum(le));
    if MAX_SECTIONS < n_sections {
        return None;
    }
    let headers: Vec<E::SectionHeader> = read_table(source, head.e_shoff(le).into(), n_sections)?;
    let sections = headers.iter().map(|h| Section {
        kind: h.sh_type(le),
        offset: FileOff(h.sh_offset(le).into()),
        start: ImageAddr(h.sh_addr(le).into()),
        len: h.sh_size(le).into(),
        link: h.sh_link(le),
        name: h.sh_name(le),
        executable: h.sh_flags(le).into() & u64::from(elf::SHF_EXECINSTR) != 0,
    });
    Some(sections.collect())
}

/// Reads `n` records that lie side by side from `offset` on.
pub fn read_table<T: Pod>(source: &ByteSource, offset: u64, n: usize) -> Option<Vec<T>> {
    if n == 0 {
        return Some(Vec::new());
    }
    let bytes = source.read(offset, wide(n.checked_mul(mem::size_of::<T>())?))?;
    let (records, _) = pod::slice_from_bytes::<T>(&bytes, n).ok()?;
    Some(records.to_vec())
}

fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

/// A file with symbols: its bytes and its layout.
#[derive(Clone, Copy, Debug)]
pub struct SymbolFile<'a> {
    /// The bytes.
    pub source: &'a ByteSource,
    /// Their layout.
    pub layout: &'a ElfLayout,
}

impl SymbolFile<'_> {
    /// Whether it holds the symbols of a file: by their build ids, or without one by the checksum that the file has of it.
    pub(crate) fn belongs_to(&self, file: &ElfLayout) -> bool {
        if !file.build_id.is_empty() && !self.layout.build_id.is_empty() {
            return file.build_id == self.layout.build_id;
        }
        let link = file.debug_link.as_ref();
        link.is_some_and(|link| link.is_of(self.source))
    }
}

impl ElfLayout {
    /// The image address of the byte at `offset` of the file, as the loader maps it: whole pages of a segment.
    /// Executable segments are preferred where two segments share a page. Of two executable ones, each of which may be mapped from
    /// this byte on, it is the one around which the others are: `shows` says whether this byte of the file is mapped at a distance
    /// (modulo 2^64) from there.
    pub fn image_addr(&self, offset: FileOff, shows: &dyn Fn(u64, FileOff) -> bool) -> Option<ImageAddr> {
        let holds = |s: &&Segment| {
            let first = s.offset.0 / PAGE * PAGE;
            let end = s
                .offset
                .0
                .saturating_add(s.len)
                .div_ceil(PAGE)
                .saturating_mul(PAGE);
            first <= offset.0 && offset.0 < end
        };
        let addr_in = |segment: &Segment| {
            let from_start = offset.0.wrapping_sub(segment.offset.0);
            from_start.wrapping_add(segment.start.0)
        };
        let holding = || self.segments.iter().filter(holds);
        if holding().filter(|segment| segment.executable).count() < 2 {
            let segment = holding().rev().max_by_key(|segment| segment.executable)?;
            return Some(ImageAddr(addr_in(segment)));
        }
        let n_around = |at: u64| {
            let others = self.segments.iter().filter(|segment| segment.executable);
            let shown = others.filter(|other| {
                let into_page = other.offset.0 % PAGE;
                let distance = other.start.0.wrapping_sub(into_page).wrapping_sub(at);
                shows(distance, FileOff(other.offset.0 - into_page))
            });
            shown.count()
        };
        let executable = holding().rev().filter(|segment| segment.executable);
        executable
            .map(addr_in)
            .max_by_key(|at| n_around(*at))
            .map(ImageAddr)
    }

    /// The segment that holds the byte at `at`.
    pub fn segment_at(&self, at: ImageAddr) -> Option<&Segment> {
        let holds = |s: &&Segment| at.since(s.start).is_some_and(|from_start| from_start < s.len);
        self.segments.iter().filter(holds).max_by_key(|s| s.executable)
    }

    /// The file offset of the byte at `at`.
    pub fn file_off(&self, at: ImageAddr) -> Option<FileOff> {
        let segment = self.segment_at(at)?;
        segment
            .offset
            .0
            .checked_add(at.since(segment.start)?)
            .map(FileOff)
    }

    /// The section of this name that is not in memory.
    pub(crate) fn unmapped_section(&self, source: &ByteSource, name: &str) -> Option<&Section> {
        let mut unmapped = self
            .sections
            .iter()
            .filter(|section| section.kind == elf::SHT_PROGBITS && section.start == ImageAddr(0));
        unmapped.find(|section| self.section_name(source, section).as_deref() == Some(name))
    }

    /// The name of a section.
    pub fn section_name(&self, source: &ByteSource, section: &Section) -> Option<String> {
        let names = self.section_names?;
        source.read_name(names.0.checked_add(u64::from(section.name))?)
    }
}

#[cfg(test)]
mod tests;
