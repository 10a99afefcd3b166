//! The file of a module, for exports in the terms of that file: where it is, whether it is the executed one, and how
//! the addresses of the snapshot correspond to it.
//!
//! Programs and shared objects have the addresses of their file already. The kernel was relocated as a whole when it
//! booted, and each section of a kernel module whenever it was loaded: functions whose names represent one address say by
//! how much.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use object::elf::PF_X;
use object::read::ReadCache;
use object::{Object as _, ObjectKind, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};
use object::{SectionFlags, SectionIndex, SectionKind, SegmentFlags};

use super::dwarf::open;
use crate::debug_places::{debug_file_place, usual_places};
use crate::user::find_file::same_build_id;
use hbbp_model::addr::{FileOff, ImageAddr};
use hbbp_model::snapshot::{FilePart, ImageLayout, Linked, Module, ModuleKind, hex};

type Parsed<'a> = object::File<'a, &'a ReadCache<File>>;

/// Why a file does not serve as the image of a module.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NotTheFile {
    /// It does not exist, is not a regular file, or may not be read.
    Unreadable,
    /// It is not an ELF file.
    NotElf,
    /// It is another one, with this build id.
    Other(Vec<u8>),
    /// No executed function is in its symbol table, so its load address is unknown.
    NoFunction,
}

impl fmt::Display for NotTheFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable => f.write_str("is missing or cannot be read"),
            Self::NotElf => f.write_str("is not an ELF file; unpack it first if it is compressed"),
            Self::Other(id) if id.is_empty() => {
                f.write_str("has no build id, and that of the profile has one")
            }
            Self::Other(id) => write!(f, "is another one, with build id {}", hex(id)),
            Self::NoFunction => {
                f.write_str("has no symbol of a function that ran, so its load address is unknown")
            }
        }
    }
}

impl std::error::Error for NotTheFile {}

/// A section of code of a relocatable file.
struct Section {
    name: String,
    offset: Option<FileOff>,
    len: u64,
}

/// Where the file of a module may be: where the user says, at its own path, and where distributions put it.
pub fn image_places(module: &Module, release: &str, named: &[PathBuf]) -> Vec<PathBuf> {
    let mut places = named.to_vec();
    match module.kind {
        ModuleKind::Kernel => places.extend(usual_places(release, &module.build_id)),
        ModuleKind::KernelModule => {
            places.extend(module_place(&module.name, release));
            places.extend(debug_file_place(&module.build_id));
        }
        ModuleKind::Elf64 | ModuleKind::Elf32 => {
            places.push(PathBuf::from(&module.name));
            places.extend(debug_file_place(&module.build_id));
        }
        ModuleKind::Bpf | ModuleKind::Trampoline | ModuleKind::Vdso | ModuleKind::Anonymous => {}
    }
    places
}

/// The path of a kernel module by the list of depmod(8). The kernel writes `_` where file names may have `-`.
fn module_place(name: &str, release: &str) -> Option<PathBuf> {
    let folder = Path::new("/lib/modules").join(release);
    let list = fs::read_to_string(folder.join("modules.dep")).ok()?;
    let files = list.lines().filter_map(|line| line.split(':').next());
    let stem = |file: &str| {
        Some(
            Path::new(file)
                .file_name()?
                .to_str()?
                .split('.')
                .next()?
                .replace('-', "_"),
        )
    };
    let mut files = files.filter(|file| stem(file).as_deref() == Some(name));
    files.next().map(|file| folder.join(file))
}

/// The build id of an ELF file; empty if it has none.
pub fn read_build_id(path: &Path) -> Result<Vec<u8>, NotTheFile> {
    let cache = ReadCache::new(open(path).ok_or(NotTheFile::Unreadable)?);
    let file = object::File::parse(&cache).map_err(|_| NotTheFile::NotElf)?;
    Ok(file.build_id().ok().flatten().unwrap_or_default().to_vec())
}

/// Reads where the addresses of a module are in this file. If both have a build id, these must be the same.
pub fn open_layout(path: &Path, module: &Module) -> Result<ImageLayout, NotTheFile> {
    let cache = ReadCache::new(open(path).ok_or(NotTheFile::Unreadable)?);
    let file = object::File::parse(&cache).map_err(|_| NotTheFile::NotElf)?;
    let build_id = file.build_id().ok().flatten().unwrap_or_default();
    if !module.build_id.is_empty() && !same_build_id(build_id, &module.build_id) {
        return Err(NotTheFile::Other(build_id.to_vec()));
    }
    let name = path.display().to_string();
    let layout = match module.kind {
        ModuleKind::Kernel => ImageLayout::linked(name, relocated(&file, slide(&file, module)?)),
        ModuleKind::KernelModule if file.kind() == ObjectKind::Relocatable => {
            ImageLayout::relocatable(name, loaded(&file, module))
        }
        _ => ImageLayout::linked(name, relocated(&file, 0)),
    };
    if layout.is_empty() {
        return Err(NotTheFile::NoFunction);
    }
    Ok(layout)
}

/// The segments of a file, moved by `slide` (modulo 2^64).
fn relocated(file: &Parsed<'_>, slide: u64) -> Vec<FilePart> {
    // A file with debug information only has the addresses of its segments, and offsets of nothing.
    let is_hollow = file
        .section_by_name(".text")
        .is_some_and(|text| text.file_range().is_none());
    let parts = file.segments().map(|segment| {
        let (offset, len) = segment.file_range();
        let len = if is_hollow { segment.size() } else { len };
        FilePart {
            start: ImageAddr(segment.address().wrapping_add(slide)),
            len,
            linked: Linked {
                addr: segment.address(),
                offset: (!is_hollow).then_some(FileOff(offset)),
                section: None,
            },
            executable: matches!(
                segment.flags(),
                SegmentFlags::Elf { p_flags } if p_flags & PF_X != 0
            ),
        }
    });
    parts.filter(|part| 0 < part.len).collect()
}

/// Functions of the file by name, with their sections; only names that represent one address.
fn unique_functions(file: &Parsed<'_>) -> HashMap<String, (u64, Option<SectionIndex>)> {
    let mut functions: HashMap<String, Option<(u64, Option<SectionIndex>)>> = HashMap::new();
    for symbol in file.symbols().filter(|symbol| symbol.is_definition()) {
        if let Ok(name) = symbol.name() {
            let at = (symbol.address(), symbol.section_index());
            let known = functions.entry(name.to_owned()).or_insert(Some(at));
            if *known != Some(at) {
                *known = None;
            }
        }
    }
    let unique = functions.into_iter();
    unique.filter_map(|(name, at)| Some((name, at?))).collect()
}

/// What was added to all addresses of the kernel when it booted: what most of its functions say.
fn slide(file: &Parsed<'_>, module: &Module) -> Result<u64, NotTheFile> {
    let functions = unique_functions(file);
    let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
    for symbol in &module.symbols {
        if let Some((at, _)) = functions.get(&symbol.name) {
            *votes.entry(symbol.start.0.wrapping_sub(*at)).or_default() += 1;
        }
    }
    let most = votes.into_iter().max_by_key(|(_, votes)| *votes);
    most.map(|(slide, _)| slide).ok_or(NotTheFile::NoFunction)
}

/// The sections of a kernel module at each address that they were loaded to.
fn loaded(file: &Parsed<'_>, module: &Module) -> Vec<FilePart> {
    let sections = code_sections(file);
    let functions = unique_functions(file);
    let mut parts: BTreeMap<(u64, usize), FilePart> = BTreeMap::new();
    for symbol in &module.symbols {
        let Some((at, Some(idx))) = functions.get(&symbol.name) else {
            continue;
        };
        let Some(section) = sections.get(idx) else {
            continue;
        };
        let start = symbol.start.0.wrapping_sub(*at);
        parts.entry((start, idx.0)).or_insert_with(|| FilePart {
            start: ImageAddr(start),
            len: section.len,
            linked: Linked {
                addr: 0,
                offset: section.offset,
                section: Some(section.name.clone()),
            },
            executable: true,
        });
    }
    parts.into_values().collect()
}

fn code_sections(file: &Parsed<'_>) -> HashMap<SectionIndex, Section> {
    /// `sh_flags`: contains instructions (ELF specification).
    const EXECUTABLE: u64 = 4;

    let is_code = |section: &object::Section<'_, '_, _>| {
        section.kind() == SectionKind::Text
            || matches!(section.flags(), SectionFlags::Elf { sh_flags } if sh_flags & EXECUTABLE != 0)
    };
    let code = file.sections().filter(is_code);
    let section = |section: object::Section<'_, '_, _>| {
        let found = Section {
            name: section.name().unwrap_or_default().to_owned(),
            offset: section.file_range().map(|(offset, _)| FileOff(offset)),
            len: section.size(),
        };
        (section.index(), found)
    };
    code.map(section).collect()
}
