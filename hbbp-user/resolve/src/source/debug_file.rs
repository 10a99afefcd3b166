//! Files with debug information: where they are, whether they belong to what was executed, and their DWARF sections.
//!
//! A file belongs to a module when it has the same build id; the paths are those of gdb's manual ("Debugging
//! Information in Separate Files"). Where neither has one, it is the executed file if it has the text that was executed, and was
//! not written since. Kernel modules are relocatable: their sections get addresses of our own choice, and their DWARF is relocated
//! to these.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use object::read::ReadCache;
use object::{
    Object as _, ObjectKind, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, SectionIndex,
    SectionKind,
};

use super::dwarf::{Bytes, Parsed, SectionNames, load, open_cached};
use super::section::{Budget, TooLarge};
use super::split::SplitUnits;
use crate::debug_places::{debug_file_place, usual_places};
use crate::debuginfod::{Artifact, fetch};
use crate::user::find_file::same_build_id;
use hbbp_model::snapshot::{Module, ModuleIdx, ModuleKind, Snapshot, Text};

/// The distance between the sections of a relocatable file: 32-bit relocations never reach from one to another.
const APART: u64 = 1 << 32;

/// An open file with debug information.
pub(super) struct DebugFile {
    /// Its DWARF.
    pub(super) dwarf: Arc<gimli::Dwarf<Bytes>>,
    /// Its units that are in other files.
    pub(super) split: SplitUnits,
    /// Addresses of its functions by name; empty for files of user code, where addresses are those of the file.
    pub(super) functions: HashMap<String, Vec<u64>>,
    /// Addresses of its code sections by name; empty for files that have addresses of their own.
    pub(super) sections: HashMap<String, u64>,
}

/// Finds the debug information of a module: among the files that the user named, in the executed file, and where debug packages put
/// it. Servers that the user names come last. `None` if there is none.
pub(super) fn find_debug_file(
    snapshot: &Snapshot,
    idx: ModuleIdx,
    named: &[PathBuf],
    budget: &mut Budget,
) -> Result<Option<DebugFile>, TooLarge> {
    let Some(module) = snapshot.modules.get(idx.0 as usize) else {
        return Ok(None);
    };
    let release = &snapshot.run.host.kernel_release;
    let mut places = named.to_vec();
    match module.kind {
        _ if module.build_id.is_empty() => {
            // Of a file that the user names, the name says which it was; of others the text that was executed.
            let own = PathBuf::from(&module.name);
            places.retain(|place| place.file_name() == own.file_name());
            let is_file = matches!(module.kind, ModuleKind::Elf64 | ModuleKind::Elf32);
            places.extend(Some(own).filter(|own| is_file && is_what_ran(own, snapshot, idx)));
        }
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
    for place in &places {
        let found = open_debug_file(place, module, named, budget)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    // The build id of the vDSO is not one of a file.
    let is_file = !matches!(module.kind, ModuleKind::Vdso);
    let fetched = Some(&module.build_id).filter(|_| is_file);
    match fetched.and_then(|build_id| fetch(Artifact::DebugInfo, build_id)) {
        Some(place) => open_debug_file(&place, module, named, budget),
        None => Ok(None),
    }
}

/// Opens a file if it has the build id of the module, and debug information.
fn open_debug_file(
    path: &Path,
    module: &Module,
    named: &[PathBuf],
    budget: &mut Budget,
) -> Result<Option<DebugFile>, TooLarge> {
    let Some((source, cache)) = open_cached(path) else {
        return Ok(None);
    };
    let Some(file) = parse_of(&cache, &module.build_id) else {
        return Ok(None);
    };
    if file.section_by_name(".debug_info").is_none() && file.section_by_name(".zdebug_info").is_none() {
        return Ok(None);
    }
    let bases = section_bases(&file);
    let mut dwarf = load(&source, &file, SectionNames::Own(&bases), budget)?;
    if let Some(sup) = open_supplement(path, &file, budget)? {
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
    Ok(Some(DebugFile {
        dwarf: Arc::new(dwarf),
        split: SplitUnits::of(path, Path::new(&module.name), named),
        functions,
        sections,
    }))
}

/// The file, if it has this build id, or if neither has one.
fn parse_of<'a>(cache: &'a ReadCache<File>, build_id: &[u8]) -> Option<Parsed<'a>> {
    let file = object::File::parse(cache).ok()?;
    let own = file.build_id().ok()?.unwrap_or_default();
    (own.is_empty() == build_id.is_empty() && same_build_id(own, build_id)).then_some(file)
}

/// Whether a file has all text of a module that was executed, and was there before.
fn is_what_ran(path: &Path, snapshot: &Snapshot, idx: ModuleIdx) -> bool {
    let Some((source, cache)) = open_cached(path) else {
        return false;
    };
    let written = source.metadata().and_then(|metadata| metadata.modified());
    // A recording does not say when it began: each file is then of later.
    let started = SystemTime::UNIX_EPOCH + Duration::from_nanos(snapshot.run.started);
    if written.is_ok_and(|written| started < written) {
        return false;
    }
    let Ok(file) = object::File::parse(&cache) else {
        return false;
    };
    let has = |text: &Text| {
        let len = text.bytes.len() as u64;
        let mut segments = file.segments();
        segments.any(|segment| segment.data_range(text.start.0, len) == Ok(Some(&text.bytes)))
    };
    let mut ran = snapshot.text.iter().filter(|text| text.module == idx).peekable();
    ran.peek().is_some() && ran.all(has)
}

/// Where the file that `.gnu_debuglink` names may lie.
fn debug_link_places(path: &Path) -> Vec<PathBuf> {
    let link = || {
        let (_, cache) = open_cached(path)?;
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

/// The file with the data that several debug files share (`dwz`), if it exists with the requested build id.
fn open_supplement(
    path: &Path,
    file: &Parsed<'_>,
    budget: &mut Budget,
) -> Result<Option<gimli::Dwarf<Bytes>>, TooLarge> {
    let Ok(Some((name, build_id))) = file.gnu_debugaltlink() else {
        return Ok(None);
    };
    let name = std::str::from_utf8(name).ok();
    let beside = name.zip(path.parent()).map(|(name, folder)| folder.join(name));
    for place in beside.into_iter().chain(debug_file_place(build_id)) {
        let Some((source, cache)) = open_cached(&place) else {
            continue;
        };
        if let Some(file) = parse_of(&cache, build_id) {
            return load(&source, &file, SectionNames::Own(&HashMap::new()), budget).map(Some);
        }
    }
    Ok(None)
}

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
