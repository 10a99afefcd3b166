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
}

/// Reads the layout of an ELF file.
pub fn read_layout(source: &ByteSource) -> Result<ElfLayout, ElfError> {
    read(source, Sections::Read)
}

/// The same without its sections, which serve for names only.
pub(crate) fn read_segments(source: &ByteSource) -> Result<ElfLayout, ElfError> {
    read(source, Sections::LeftOut)
}

/// What becomes of the table of sections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Sections {
    Read,
    LeftOut,
}

fn read(source: &ByteSource, sections: Sections) -> Result<ElfLayout, ElfError> {
    let ident = source.read(0, 16).ok_or(ElfError::NotElf)?;
    if !ident.starts_with(&elf::ELFMAG) {
        return Err(ElfError::NotElf);
    }
    match (ident.get(4).copied(), ident.get(5).copied()) {
        (Some(elf::ELFCLASS64), Some(elf::ELFDATA2LSB)) => {
            read_headers::<FileHeader64<LittleEndian>>(source, sections)
        }
        (Some(elf::ELFCLASS32), Some(elf::ELFDATA2LSB)) => {
            read_headers::<FileHeader32<LittleEndian>>(source, sections)
        }
        _ => Err(ElfError::Foreign),
    }
}

fn read_headers<E: FileHeader<Endian = LittleEndian>>(
    source: &ByteSource,
    sections: Sections,
) -> Result<ElfLayout, ElfError> {
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
    let sections = match sections {
        Sections::Read => read_sections::<E>(source, head).unwrap_or_default(),
        Sections::LeftOut => Vec::new(),
    };
    let names = sections.get(usize::from(head.e_shstrndx(le)));
    Ok(ElfLayout {
        class,
        build_id: notes.unwrap_or_default(),
        segments: of_kind(elf::PT_LOAD).map(segment).collect(),
        section_names: names.map(|names| names.offset),
        sections,
        eh_frame_hdr: of_kind(elf::PT_GNU_EH_FRAME).map(segment).next(),
    })
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

impl ElfLayout {
    /// The image address of the byte at `offset` of the file, as the loader maps it: whole pages of a segment.
    /// Executable segments are preferred where two segments share a page.
    pub fn image_addr(&self, offset: FileOff) -> Option<ImageAddr> {
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
        let segment = self
            .segments
            .iter()
            .rev()
            .filter(holds)
            .max_by_key(|s| s.executable)?;
        Some(ImageAddr(
            offset
                .0
                .wrapping_sub(segment.offset.0)
                .wrapping_add(segment.start.0),
        ))
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

    /// The name of a section.
    pub fn section_name(&self, source: &ByteSource, section: &Section) -> Option<String> {
        let names = self.section_names?;
        source.read_name(names.0.checked_add(u64::from(section.name))?)
    }
}

#[cfg(test)]
mod tests;
