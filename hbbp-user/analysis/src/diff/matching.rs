//! Names by which the keys of two profiles are matched.

use std::collections::{BTreeMap, BTreeSet};

use crate::mix::{Axis, Dimension};
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{Module, ModuleIdx, ProcessIdx, Snapshot, hex};

/// What the modules of one profile are called in a difference.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Modules {
    names: BTreeMap<String, Name>,
}

/// What a module is called.
#[derive(Clone, Debug, Default, PartialEq)]
struct Name {
    /// Its name in the difference.
    name: String,
    /// What is appended to code without a name: the other profile has another build of the module, in which the same address
    /// is other code.
    build: String,
    /// What is taken off addresses: kernel code runs at another address after each boot.
    base: u64,
}

impl Modules {
    /// Names for the modules of both profiles, each given by the snapshots of its runs.
    pub fn of_both(first: &[&Snapshot], second: &[&Snapshot]) -> [Self; 2] {
        let ids = [build_ids(first), build_ids(second)];
        // A module has the name that it has in the first profile; so that the order of the profiles does not matter, the
        // first of all its names.
        let mut by_build_id: BTreeMap<&[u8], &str> = BTreeMap::new();
        for (name, builds) in ids.iter().flatten() {
            for build_id in builds.iter().filter(|build_id| !build_id.is_empty()) {
                let known = by_build_id.entry(build_id).or_insert(name);
                *known = (*known).min(name);
            }
        }
        let name = |name: &str, own: &BTreeSet<&[u8]>, other: Option<&BTreeSet<&[u8]>>| {
            let in_common = own.iter().find(|build_id| {
                !build_id.is_empty()
                    && ids
                        .iter()
                        .all(|ids| ids.values().any(|builds| builds.contains(*build_id)))
            });
            let same_build = in_common.is_some() || other.is_none_or(|other| other == own);
            let build = own.iter().next().filter(|_| !same_build);
            Name {
                name: in_common
                    .and_then(|id| by_build_id.get(id))
                    .map_or(name, |name| name)
                    .to_owned(),
                build: build.map_or_else(String::new, |build_id| format!("@{}", digits(build_id))),
                base: 0,
            }
        };
        let side = |own: usize, runs: &[&Snapshot]| {
            let (own, other) = if own == 0 {
                (&ids[0], &ids[1])
            } else {
                (&ids[1], &ids[0])
            };
            let mut names: BTreeMap<String, Name> = own
                .iter()
                .map(|(path, builds)| ((*path).to_owned(), name(path, builds, other.get(path))))
                .collect();
            for (path, base) in runs.iter().flat_map(|run| kernel_bases(run)) {
                if let Some(name) = names.get_mut(path) {
                    name.base = base;
                }
            }
            Self { names }
        };
        [side(0, first), side(1, second)]
    }

    /// The key of a row in the difference.
    pub(super) fn key(&self, by: &[Axis], key: &[String]) -> Vec<String> {
        let value = |(axis, value): (&Axis, &String)| match axis.dimension() {
            Some(Dimension::Module) => self.names.get(value).map_or(value, |name| &name.name).clone(),
            Some(Dimension::Function) => self
                .code(value)
                .unwrap_or_else(|| without_clone(value).to_owned()),
            _ => self.code(value).unwrap_or_else(|| value.clone()),
        };
        by.iter().zip(key).map(value).collect()
    }

    /// Code that is named by its module: `/bin/gzip+0x4290` or `[/bin/gzip]`.
    fn code(&self, value: &str) -> Option<String> {
        if let Some(name) = value
            .strip_prefix('[')
            .and_then(|value| self.names.get(value.strip_suffix(']')?))
        {
            return Some(format!("[{}]", name.name));
        }
        let (module, address) = value.rsplit_once("+0x")?;
        let address = u64::from_str_radix(address, 16).ok()?;
        let Name { name, build, base } = self.names.get(module)?;
        Some(format!(
            "{name}+{}{build}",
            ImageAddr(address.wrapping_sub(*base))
        ))
    }
}

/// The function that a clone was made of: which clones there are changes from build to build, and their code moves between them.
fn without_clone(name: &str) -> &str {
    /// What gcc and Clang append to the names of clones and of parts of functions, with a number after some.
    const PARTS: [&str; 5] = ["constprop", "isra", "part", "cold", "llvm"];

    let is_clone = |at: usize| {
        let mut parts = name.get(at..).unwrap_or_default().split('.').skip(1);
        parts.next().is_some_and(|part| PARTS.contains(&part))
    };
    let dots = name.match_indices('.').map(|(at, _)| at);
    let first = dots.filter(|at| 0 < *at).find(|at| is_clone(*at));
    first.and_then(|at| name.get(..at)).unwrap_or(name)
}

/// The first digits of a build id, as git shortens its own.
fn digits(build_id: &[u8]) -> String {
    const SHOWN: usize = 4;

    hex(build_id.get(..SHOWN).unwrap_or(build_id))
}

/// The build ids of each name.
fn build_ids<'a>(runs: &[&'a Snapshot]) -> BTreeMap<&'a str, BTreeSet<&'a [u8]>> {
    let mut ids: BTreeMap<&str, BTreeSet<&[u8]>> = BTreeMap::new();
    for Module { name, build_id, .. } in runs.iter().flat_map(|run| &run.modules) {
        ids.entry(name).or_default().insert(build_id);
    }
    ids
}

/// Where the text of the kernel and its modules begins.
fn kernel_bases(run: &Snapshot) -> Vec<(&str, u64)> {
    let kernel = run.processes.get(ProcessIdx::KERNEL.0 as usize);
    let mappings = kernel.map_or(&[][..], |kernel| &kernel.mappings);
    let modules = run.modules.iter().zip((0..).map(ModuleIdx));
    let bases = modules
        .filter(|(module, _)| module.kind.is_kernel())
        .filter_map(|(module, idx)| {
            let first = mappings.iter().find(|mapping| mapping.module == idx)?;
            Some((module.name.as_str(), first.start.0))
        });
    bases.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::addr::Va;
    use hbbp_model::snapshot::{Mapping, ModuleKind, Process};

    fn snapshot(kernel_at: u64, files: &[(&str, u8)]) -> Snapshot {
        let module = |name: &str, kind, id: u8| Module {
            name: name.to_owned(),
            kind,
            build_id: vec![id; 20],
            symbols: Vec::new(),
        };
        let kernel = module("[kernel]", ModuleKind::Kernel, 1);
        let files = files
            .iter()
            .map(|(name, id)| module(name, ModuleKind::Elf64, *id));
        let mapping = Mapping {
            start: Va(kernel_at),
            end: Va(kernel_at + 0x1000),
            module: ModuleIdx(0),
            image_start: ImageAddr(kernel_at),
            from: 0,
        };
        Snapshot {
            modules: [kernel].into_iter().chain(files).collect(),
            processes: vec![Process {
                mappings: vec![mapping],
                ..Process::default()
            }],
            ..Snapshot::default()
        }
    }

    #[test]
    fn clones_are_their_function() {
        for (name, function) in [
            ("hash", "hash"),
            ("hash.constprop.0", "hash"),
            ("hash.isra.0.cold", "hash"),
            ("_ZN4hash4sizeEv.llvm.123", "_ZN4hash4sizeEv"),
            ("f.part", "f"),
            ("operator.partition", "operator.partition"),
            ("counter.0", "counter.0"),
            (".cold", ".cold"),
        ] {
            assert_eq!(without_clone(name), function);
        }
        let snapshot = snapshot(0, &[]);
        let [modules, _] = Modules::of_both(&[&snapshot], &[&snapshot]);
        let function = [Axis::from(Dimension::Function)];
        assert_eq!(modules.key(&function, &["hash.part.7".to_owned()]), ["hash"]);
    }

    #[test]
    fn modules_are_matched_by_build_id_then_by_name() {
        let a = snapshot(0xffff_ffff_8100_0000, &[("/old/same", 2), ("/bin/rebuilt", 3)]);
        let b = snapshot(0xffff_ffff_9200_0000, &[("/new/same", 2), ("/bin/rebuilt", 4)]);
        let [first, second] = Modules::of_both(&[&a], &[&b]);
        let by = [Axis::from(Dimension::Module), Axis::from(Dimension::Function)];
        let key = |modules: &Modules, module: &str, function: &str| {
            modules.key(&by, &[module.to_owned(), function.to_owned()])
        };
        assert_eq!(key(&first, "/old/same", "f"), ["/new/same", "f"]);
        assert_eq!(
            key(&second, "/new/same", "/new/same+0x10"),
            ["/new/same", "/new/same+0x10"]
        );
        assert_eq!(
            key(&first, "/old/same", "[/old/same]"),
            ["/new/same", "[/new/same]"]
        );
        assert_eq!(
            key(&first, "/bin/rebuilt", "/bin/rebuilt+0x10"),
            ["/bin/rebuilt", "/bin/rebuilt+0x10@03030303"]
        );
        assert_eq!(key(&second, "/bin/rebuilt", "g"), ["/bin/rebuilt", "g"]);
        let block = |modules: &Modules, at: u64| key(modules, "[kernel]", &format!("[kernel]+{at:#x}"));
        assert_eq!(
            block(&first, 0xffff_ffff_8100_0040),
            block(&second, 0xffff_ffff_9200_0040)
        );
    }
}
