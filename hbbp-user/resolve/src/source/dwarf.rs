//! The sections of DWARF of a file, its own or those of split units, as they are when the file has its addresses.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use gimli::{EndianArcSlice, LittleEndian, SectionId};
use object::read::{ReadCache, RelocationKind, RelocationTarget};
use object::{Object as _, ObjectKind, ObjectSection as _, ObjectSymbol as _, SectionIndex};

use super::section::{self, Budget, TooLarge};
use crate::regular_file::open_own;
use hbbp_elf::byte_source::ByteSource;

/// The bytes of one section.
pub(super) type Bytes = EndianArcSlice<LittleEndian>;

/// Which sections of a file are read.
#[derive(Clone, Copy)]
pub(super) enum SectionNames<'a> {
    /// Those of its own code, whose sections have these addresses.
    Own(&'a HashMap<SectionIndex, u64>),
    /// Those of split units.
    Split,
}

impl SectionNames<'_> {
    fn of(self, id: SectionId) -> Option<&'static str> {
        match self {
            Self::Own(_) => Some(id.name()),
            Self::Split => id.dwo_name(),
        }
    }

    fn base(self, section: SectionIndex) -> u64 {
        match self {
            Self::Own(bases) => bases.get(&section).copied().unwrap_or(0),
            Self::Split => 0,
        }
    }
}

/// Reads all sections of DWARF.
pub(super) fn load(
    source: &File,
    file: &Parsed<'_>,
    names: SectionNames<'_>,
    budget: &mut Budget,
) -> Result<gimli::Dwarf<Bytes>, TooLarge> {
    let before = budget.of(source);
    let mut left = before;
    let dwarf = gimli::Dwarf::load(|id| read_section(source, file, id, names, &mut left));
    budget.take(before, left);
    dwarf
}

/// Reads all sections of a package of split units; `None` if its index is damaged.
pub(super) fn load_package(
    source: &File,
    file: &Parsed<'_>,
    budget: &mut Budget,
) -> Result<Option<gimli::DwarfPackage<Bytes>>, TooLarge> {
    let before = budget.of(source);
    let mut left = before;
    let mut read = Ok(());
    let section = |id| {
        let found = read_section(source, file, id, SectionNames::Split, &mut left);
        Ok::<_, gimli::Error>(found.unwrap_or_else(|TooLarge| {
            read = Err(TooLarge);
            nothing()
        }))
    };
    let package = gimli::DwarfPackage::load(section, nothing());
    budget.take(before, left);
    read.map(|()| package.ok())
}

/// A section without bytes.
fn nothing() -> Bytes {
    EndianArcSlice::new(Arc::default(), LittleEndian)
}

/// A regular file; never one that makes us wait.
pub(super) fn open(path: &Path) -> Option<File> {
    match open_own(path).ok()?.source {
        ByteSource::File(file, _) => Some(file),
        ByteSource::Bounded(..) | ByteSource::Memory(_) => None,
    }
}

/// A file, and the same for its headers and tables, which are kept as they are read.
pub(super) fn open_cached(path: &Path) -> Option<(File, ReadCache<File>)> {
    let file = open(path)?;
    let cache = ReadCache::new(file.try_clone().ok()?);
    Some((file, cache))
}

pub(super) type Parsed<'a> = object::File<'a, &'a ReadCache<File>>;

/// Reads one section of DWARF; empty if there is none.
fn read_section(
    source: &File,
    file: &Parsed<'_>,
    id: SectionId,
    names: SectionNames<'_>,
    budget: &mut Budget,
) -> Result<Bytes, TooLarge> {
    let Some(section) = names.of(id).and_then(|name| file.section_by_name(name)) else {
        return Ok(nothing());
    };
    let Ok(range) = section.compressed_file_range() else {
        return Ok(nothing());
    };
    let Some(mut bytes) = section::read(source, range, budget)? else {
        return Ok(nothing());
    };
    if file.kind() == ObjectKind::Relocatable
        && let Some(bytes) = Arc::get_mut(&mut bytes)
    {
        relocate(file, &section, names, bytes);
    }
    Ok(EndianArcSlice::new(bytes, LittleEndian))
}

/// Applies the relocations of a section of DWARF: absolute ones, of addresses and of offsets into other sections.
fn relocate<'a>(
    file: &Parsed<'a>,
    section: &object::Section<'a, '_, &'a ReadCache<File>>,
    names: SectionNames<'_>,
    bytes: &mut [u8],
) {
    for (at, relocation) in section.relocations() {
        let base = |section| names.base(section);
        let target = match relocation.target() {
            RelocationTarget::Symbol(symbol) => file.symbol_by_index(symbol).ok().map(|symbol| {
                symbol
                    .address()
                    .wrapping_add(symbol.section_index().map_or(0, base))
            }),
            RelocationTarget::Section(section) => Some(base(section)),
            _ => None,
        };
        let value = target.map(|target| target.wrapping_add_signed(relocation.addend()).to_le_bytes());
        let len = usize::from(relocation.size() / 8);
        let field = usize::try_from(at)
            .ok()
            .and_then(|at| bytes.get_mut(at..)?.get_mut(..len));
        let value = value.as_ref().and_then(|value| value.get(..len));
        if let (Some(field), Some(value), RelocationKind::Absolute) = (field, value, relocation.kind()) {
            field.copy_from_slice(value);
        }
    }
}
