//! Files with debug information: where they are, whether they belong to what ran, and their DWARF sections.
//!
//! A file belongs to a module when it has the same build id; the paths are those of gdb's manual ("Debugging
//! Information in Separate Files"). Kernel modules are relocatable: their sections get addresses of our own choice, and
//! their DWARF is relocated to these.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gimli::{EndianArcSlice, LittleEndian, SectionId};
use object::read::{CompressionFormat, ReadCache, RelocationKind, RelocationTarget};
use object::{Object as _, ObjectKind, ObjectSection as _, ObjectSymbol as _, SectionIndex, SectionKind};

use crate::resolve::elf::byte_source::ByteSource;
use crate::resolve::kernel::vmlinux::{debug_file_place, usual_places};
use crate::resolve::user::mapped_file::open_own;
use crate::snapshot::{Linked, Module, ModuleKind};

/// The bytes of one section.
pub(super) type Bytes = EndianArcSlice<LittleEndian>;

/// The largest sections are those of the kernel, some 300 MiB.
const MAX_SECTION: u64 = 2 << 30;
/// The distance between the sections of a relocatable file: 32-bit relocations never reach from one to another.
const APART: u64 = 1 << 32;

/// An open file with debug information.
pub(super) struct DebugFile {
    /// Its DWARF.
    pub(super) dwarf: gimli::Dwarf<Bytes>,
    /// Addresses of its functions by name; empty for files of user code, where addresses are those of the file.
    pub(super) functions: HashMap<String, Vec<u64>>,
    /// Addresses of its code sections by name; empty for files that have addresses of their own.
    sections: HashMap<String, u64>,
}

/// Finds the debug information of a module: among the files that the user named, in the file that ran, and where debug
/// packages put it. `release` is that of the kernel that ran.
pub(super) fn find_debug_file(module: &Module, release: &str, named: &[PathBuf]) -> Option<DebugFile> {
    if module.build_id.is_empty() {
        return None;
    }
    let mut places = named.to_vec();
    match module.kind {
        ModuleKind::Kernel => places.extend(usual_places(release, &module.build_id)),
        ModuleKind::KernelModule => places.extend(debug_file_place(&module.build_id)),
        ModuleKind::Elf64 | ModuleKind::Elf32 => {
            let own = PathBuf::from(&module.name);
            places.extend(debug_link_places(&own));
            places.push(own);
            places.extend(debug_file_place(&module.build_id));
        }
        ModuleKind::Bpf | ModuleKind::Trampoline | ModuleKind::Vdso | ModuleKind::Anonymous => {}
    }
    places.iter().find_map(|place| open_debug_file(place, module))
}

/// Opens a file if it has the build id of the module, and debug information.
fn open_debug_file(path: &Path, module: &Module) -> Option<DebugFile> {
    let cache = ReadCache::new(open(path)?);
    let file = object::File::parse(&cache).ok()?;
    let same = file.build_id().ok()?? == module.build_id;
    if !same
        || file.section_by_name(".debug_info").is_none() && file.section_by_name(".zdebug_info").is_none()
    {
        return None;
    }
    let bases = section_bases(&file);
    let mut dwarf = gimli::Dwarf::load(|id| read_section(&file, id, &bases)).ok()?;
    if let Some(sup) = open_supplement(path, &file) {
        dwarf.set_sup(sup);
    }
    let is_kernel = matches!(module.kind, ModuleKind::Kernel | ModuleKind::KernelModule);
    let functions = if is_kernel {
        functions(&file, &bases)
    } else {
        HashMap::new()
    };
    let names = file.sections().filter_map(|section| {
        let base = bases.get(&section.index())?;
        Some((section.name().ok()?.to_owned(), *base))
    });
    let sections = names.collect();
    Some(DebugFile {
        dwarf,
        functions,
        sections,
    })
}

impl DebugFile {
    /// The address in the DWARF of a location in the file of the module.
    pub(super) fn addr(&self, linked: &Linked) -> Option<u64> {
        match &linked.section {
            None => Some(linked.addr),
            Some(section) => self.sections.get(section)?.checked_add(linked.addr),
        }
    }
}

/// A regular file; never one that makes us wait.
pub(super) fn open(path: &Path) -> Option<File> {
    match open_own(path).ok()?.source {
        ByteSource::File(file, _) => Some(file),
        ByteSource::Memory(_) => None,
    }
}

/// Where the file that `.gnu_debuglink` names may lie.
fn debug_link_places(path: &Path) -> Vec<PathBuf> {
    let link = || {
        let cache = ReadCache::new(open(path)?);
        let file = object::File::parse(&cache).ok()?;
        let (name, _) = file.gnu_debuglink().ok()??;
        let name = std::str::from_utf8(name).ok()?;
        let folder = path.parent()?;
        let global = Path::new("/usr/lib/debug").join(folder.strip_prefix("/").ok()?);
        // The name is a plain one, or it is not followed.
        let plain = !name.contains('/') && !name.is_empty();
        plain.then(|| {
            vec![
                folder.join(name),
                folder.join(".debug").join(name),
                global.join(name),
            ]
        })
    };
    link().unwrap_or_default()
}

/// The file with what several debug files share (`dwz`), if it is there with the build id that is asked for.
fn open_supplement(path: &Path, file: &Parsed<'_>) -> Option<gimli::Dwarf<Bytes>> {
    let (name, build_id) = file.gnu_debugaltlink().ok()??;
    let name = Path::new(std::str::from_utf8(name).ok()?);
    let beside = path.parent()?.join(name);
    let by_id = debug_file_place(build_id);
    [Some(beside), by_id].into_iter().flatten().find_map(|place| {
        let cache = ReadCache::new(open(&place)?);
        let file = object::File::parse(&cache).ok()?;
        let same = file.build_id().ok()?? == build_id;
        same.then(|| gimli::Dwarf::load(|id| read_section(&file, id, &HashMap::new())).ok())?
    })
}

type Parsed<'a> = object::File<'a, &'a ReadCache<File>>;

/// The addresses that the code sections of a relocatable file get here; none for files that have their own.
fn section_bases(file: &Parsed<'_>) -> HashMap<SectionIndex, u64> {
    if file.kind() != ObjectKind::Relocatable {
        return HashMap::new();
    }
    let code = file
        .sections()
        .filter(|section| section.kind() == SectionKind::Text);
    code.zip(1..)
        .map(|(section, n)| (section.index(), n * APART))
        .collect()
}

/// The functions of a file by name, at its own addresses or those of `bases`.
fn functions(file: &Parsed<'_>, bases: &HashMap<SectionIndex, u64>) -> HashMap<String, Vec<u64>> {
    let mut functions: HashMap<String, Vec<u64>> = HashMap::new();
    for symbol in file.symbols().filter(|symbol| symbol.is_definition()) {
        if let Ok(name) = symbol.name() {
            let base = symbol.section_index().and_then(|section| bases.get(&section));
            let at = symbol.address().wrapping_add(base.copied().unwrap_or(0));
            functions.entry(name.to_owned()).or_default().push(at);
        }
    }
    functions
}

/// Reads one section of DWARF; empty where there is none.
fn read_section(
    file: &Parsed<'_>,
    id: SectionId,
    bases: &HashMap<SectionIndex, u64>,
) -> Result<Bytes, gimli::Error> {
    let section = file.section_by_name(id.name());
    let bytes = section.and_then(|section| {
        let mut bytes = unpack(&section)?.into_owned();
        if file.kind() == ObjectKind::Relocatable {
            relocate(file, &section, bases, &mut bytes);
        }
        Some(bytes)
    });
    Ok(EndianArcSlice::new(
        Arc::from(bytes.unwrap_or_default()),
        LittleEndian,
    ))
}

/// The bytes of a section as they were before a tool compressed it.
fn unpack<'a>(section: &object::Section<'a, '_, &'a ReadCache<File>>) -> Option<Cow<'a, [u8]>> {
    let packed = section.compressed_data().ok()?;
    if MAX_SECTION < packed.uncompressed_size {
        return None;
    }
    let mut bytes = Vec::new();
    match packed.format {
        CompressionFormat::None => return Some(Cow::Borrowed(packed.data)),
        CompressionFormat::Zlib => {
            let reader = flate2::read::ZlibDecoder::new(packed.data);
            reader
                .take(packed.uncompressed_size)
                .read_to_end(&mut bytes)
                .ok()?;
        }
        CompressionFormat::Zstandard => {
            let reader = zstd::Decoder::with_buffer(packed.data).ok()?;
            reader
                .take(packed.uncompressed_size)
                .read_to_end(&mut bytes)
                .ok()?;
        }
        _ => return None,
    }
    Some(Cow::Owned(bytes))
}

/// Applies the relocations of a section of DWARF: absolute ones, of addresses and of offsets into other sections.
fn relocate<'a>(
    file: &Parsed<'a>,
    section: &object::Section<'a, '_, &'a ReadCache<File>>,
    bases: &HashMap<SectionIndex, u64>,
    bytes: &mut [u8],
) {
    for (at, relocation) in section.relocations() {
        let base = |section| bases.get(&section).copied().unwrap_or(0);
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
