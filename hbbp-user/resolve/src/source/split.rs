//! Split DWARF: the debug information of a unit is in a file of its own (`.dwo`), or in a package of them (`.dwp`).
//!
//! The executed file has a skeleton of it (DWARF 5, section 3.1.2). What belongs to the skeleton has its id.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use addr2line::SplitDwarfLoad;
use gimli::Reader as _;

use super::dwarf::{Bytes, SectionNames, load, load_package, open_cached};
use super::section::{Budget, TooLarge};

/// Where the units of a debug file are, and what was found of them.
pub(super) struct SplitUnits {
    /// Folder of the debug file.
    folder: PathBuf,
    /// Files that may be or hold units: those that the user named, and the packages next to the debug file and the executed one.
    named: Vec<PathBuf>,
    packages: Option<Vec<gimli::DwarfPackage<Bytes>>>,
    /// Whether a unit was not found.
    pub(super) lacks_some: bool,
    /// Whether one takes more memory than is granted to it.
    pub(super) is_too_large: bool,
}

/// Where a package lies that belongs to a file.
fn package_place(file: &Path) -> PathBuf {
    let mut place = file.as_os_str().to_owned();
    place.push(".dwp");
    place.into()
}

impl SplitUnits {
    /// Of a debug file, of these executed and named files.
    pub(super) fn of(debug_file: &Path, executed: &Path, named: &[PathBuf]) -> Self {
        let beside = [debug_file, executed].map(package_place);
        Self {
            folder: debug_file.parent().unwrap_or(Path::new("/")).to_owned(),
            named: named.iter().cloned().chain(beside).collect(),
            packages: None,
            lacks_some: false,
            is_too_large: false,
        }
    }

    /// The unit of a skeleton.
    pub(super) fn load(
        &mut self,
        wanted: &SplitDwarfLoad<Bytes>,
        budget: &mut Budget,
    ) -> Option<Arc<gimli::Dwarf<Bytes>>> {
        let found = match self.load_packed(wanted, budget) {
            Some(unit) => Ok(Some(unit)),
            None => self.load_file(wanted, budget),
        };
        match &found {
            Ok(unit) => self.lacks_some |= unit.is_none(),
            Err(TooLarge) => self.is_too_large = true,
        }
        found.ok().flatten().map(Arc::new)
    }

    fn load_packed(
        &mut self,
        wanted: &SplitDwarfLoad<Bytes>,
        budget: &mut Budget,
    ) -> Option<gimli::Dwarf<Bytes>> {
        let Self {
            named,
            packages,
            is_too_large,
            ..
        } = self;
        let packages = packages.get_or_insert_with(|| {
            let is_package = |place: &&PathBuf| place.extension().is_some_and(|name| name == "dwp");
            let places = named.iter().filter(is_package);
            let opened = places.filter_map(|place| open_package(place, budget).transpose());
            let readable = opened.filter_map(|package| package.inspect_err(|_| *is_too_large = true).ok());
            readable.collect()
        });
        packages
            .iter()
            .find_map(|package| package.find_cu(wanted.dwo_id, &wanted.parent).ok()?)
    }

    fn load_file(
        &self,
        wanted: &SplitDwarfLoad<Bytes>,
        budget: &mut Budget,
    ) -> Result<Option<gimli::Dwarf<Bytes>>, TooLarge> {
        let places = self.places(wanted).unwrap_or_default();
        let mut found = places
            .iter()
            .map(|place| open_unit(place, wanted, budget).transpose());
        found.find_map(|unit| unit).transpose()
    }

    /// Where the file of a unit may be: where it was compiled, next to the debug file, and where the user says.
    fn places(&self, wanted: &SplitDwarfLoad<Bytes>) -> Option<Vec<PathBuf>> {
        let text = |bytes: &Bytes| Some(PathBuf::from(bytes.to_string().ok()?.into_owned()));
        let path = text(wanted.path.as_ref()?)?;
        let name = path.file_name()?;
        let compiled = wanted.comp_dir.as_ref().and_then(text).unwrap_or_default();
        let named = self.named.iter().filter(|place| place.file_name() == Some(name));
        let mut places: Vec<PathBuf> = named.cloned().collect();
        places.extend([
            compiled.join(&path),
            self.folder.join(&path),
            self.folder.join(name),
        ]);
        places.dedup();
        Some(places)
    }
}

/// Opens the file of a unit, if it has the wanted one.
fn open_unit(
    place: &Path,
    wanted: &SplitDwarfLoad<Bytes>,
    budget: &mut Budget,
) -> Result<Option<gimli::Dwarf<Bytes>>, TooLarge> {
    let Some((source, cache)) = open_cached(place) else {
        return Ok(None);
    };
    let Ok(file) = object::File::parse(&cache) else {
        return Ok(None);
    };
    let mut unit = load(&source, &file, SectionNames::Split, budget)?;
    let id = || {
        let header = unit.units().next().ok()??;
        unit.unit(header).ok()?.dwo_id
    };
    if id() != Some(wanted.dwo_id) {
        return Ok(None);
    }
    unit.make_dwo(&wanted.parent);
    Ok(Some(unit))
}

/// Opens a package of units.
fn open_package(place: &Path, budget: &mut Budget) -> Result<Option<gimli::DwarfPackage<Bytes>>, TooLarge> {
    let Some((source, cache)) = open_cached(place) else {
        return Ok(None);
    };
    let Ok(file) = object::File::parse(&cache) else {
        return Ok(None);
    };
    load_package(&source, &file, budget)
}
