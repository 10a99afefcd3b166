//! `.gnu_debugdata`: a symbol table of its own, packed with xz, that distributions put into stripped files ("MiniDebugInfo" in
//! gdb's manual). It has the functions that .dynsym lacks.

use std::io::Read as _;

use object::elf;

use crate::byte_source::ByteSource;
use crate::layout::{ElfLayout, SymbolFile, read_layout};

/// Bytes of it, packed and unpacked: the largest libraries have some MiB.
const MAX_PACKED: u64 = 16 << 20;
const MAX_UNPACKED: u64 = 64 << 20;
/// Memory in KiB that unpacking may take: xz(1) takes 65 MiB at its highest level.
const MAX_MEMORY: u32 = 96 << 10;

/// What was packed in a file.
#[derive(Debug)]
pub(crate) struct Unpacked {
    source: ByteSource,
    layout: ElfLayout,
}

/// Unpacks the symbols of a file; `None` if there are none.
pub(crate) fn unpack(own: SymbolFile<'_>) -> Option<Unpacked> {
    let section = own.layout.unmapped_section(own.source, ".gnu_debugdata")?;
    let packed = own.source.read(section.offset.0, section.len.min(MAX_PACKED))?;
    let reader = lzma_rust2::XzReader::new_mem_limit(packed.as_slice(), false, MAX_MEMORY);
    let mut bytes = Vec::new();
    reader.take(MAX_UNPACKED).read_to_end(&mut bytes).ok()?;
    let source = ByteSource::Memory(bytes);
    let layout = read_layout(&source).ok()?;
    Some(Unpacked { source, layout })
}

impl Unpacked {
    /// Its symbols.
    pub(crate) const fn symbols(&self) -> SymbolFile<'_> {
        SymbolFile {
            source: &self.source,
            layout: &self.layout,
        }
    }

    /// The names of its symbols.
    pub(crate) fn into_names(self) -> ByteSource {
        let sections = &self.layout.sections;
        let table = sections.iter().find(|section| section.kind == elf::SHT_SYMTAB);
        let strings = table.and_then(|table| sections.get(usize::try_from(table.link).ok()?));
        let names = strings.and_then(|strings| self.source.read(strings.offset.0, strings.len));
        ByteSource::Memory(names.unwrap_or_default())
    }
}
