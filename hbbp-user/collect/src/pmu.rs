//! The PMUs of this machine, as sysfs shows them.
//!
//! PMUs are found by what their folders hold, whatever their names: a hybrid processor has one for each kind of core,
//! and a driver may add one of its own.

use std::path::{Path, PathBuf};

use super::cpu_list;
use super::uarch::Encoding;

/// Where sysfs lists all PMUs.
pub const DEVICES: &str = "/sys/bus/event_source/devices";

/// A PMU that counts the instructions of a core.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Pmu {
    /// Name of its folder, such as `cpu`, `cpu_core`, `cpu_atom`.
    pub name: String,
    /// `perf_event_attr.type` of its events.
    pub kind: u32,
    /// Highest `precise_ip` that it says it grants.
    pub max_precise: u8,
    /// Depth of its branch stack; 0 where it has none.
    pub branches: u32,
    /// The CPUs it is on; all where empty.
    pub cpus: Vec<u32>,
    /// `config` of its event `instructions`.
    pub instructions: u64,
    /// `config` of its event `branches_taken`, where the driver names one.
    pub taken: Option<u64>,
    /// All events that its driver names, with their `config`.
    pub named: Vec<(String, u64)>,
}

/// Reads the PMUs below `devices` that have an event `instructions`, by name.
pub fn read_pmus(devices: &Path) -> Vec<Pmu> {
    let Ok(entries) = std::fs::read_dir(devices) else {
        return Vec::new();
    };
    let mut folders: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.sort();
    folders.iter().filter_map(|folder| read_pmu(folder)).collect()
}

fn read_pmu(folder: &Path) -> Option<Pmu> {
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
    let number = |file: &str| read(file).and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    Some(Pmu {
        name: folder.file_name()?.to_str()?.to_owned(),
        kind: read("type")?.trim().parse().ok()?,
        max_precise: u8::try_from(number("caps/max_precise")).unwrap_or(0),
        branches: number("caps/branches"),
        cpus: read("cpus")
            .and_then(|text| cpu_list::parse(&text))
            .unwrap_or_default(),
        instructions: parse_terms(&read("events/instructions")?)?,
        taken: read("events/branches_taken").and_then(|terms| parse_terms(&terms)),
        named: read_named(&folder.join("events")),
    })
}

/// The events of a driver by name; those with other terms are left out.
fn read_named(events: &Path) -> Vec<(String, u64)> {
    let entries = std::fs::read_dir(events).into_iter().flatten();
    let mut named: Vec<(String, u64)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let terms = std::fs::read_to_string(&path).ok()?;
            Some((path.file_name()?.to_str()?.to_owned(), parse_terms(&terms)?))
        })
        .collect();
    named.sort();
    named
}

/// Interprets the terms of an event such as `event=0xc4,umask=0x20`, in the layout of x86 core PMUs: the event in
/// bits 0 to 7 of `config`, its unit mask in bits 8 to 15. `None` where there are other terms.
fn parse_terms(terms: &str) -> Option<u64> {
    terms.trim().split(',').try_fold(0, |config, term| {
        let (name, value) = term.split_once('=')?;
        let value = u64::from_str_radix(value.trim_start_matches("0x"), 16)
            .ok()
            .filter(|value| *value < 0x100)?;
        match name {
            "event" => Some(config | value),
            "umask" => Some(config | value << 8),
            _ => None,
        }
    })
}

impl Pmu {
    /// Its own encoding of retired instructions.
    pub(crate) const fn instructions(&self) -> Encoding {
        Encoding {
            config: self.instructions,
            precise: self.max_precise,
            name: "instructions",
            near_only: false,
        }
    }

    /// Its own encoding of taken branches, by which drivers mean near ones.
    pub(crate) fn taken(&self) -> Option<Encoding> {
        Some(Encoding {
            config: self.taken?,
            precise: self.max_precise,
            name: "branches_taken",
            near_only: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake_pmu(devices: &Path, name: &str, files: &[(&str, &str)]) {
        for (file, text) in files {
            let path = devices.join(name).join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn a_hybrid_processor_has_one_pmu_for_each_kind_of_core() {
        let devices = tempfile::tempdir().unwrap();
        let path = devices.path();
        let event = ("events/instructions", "event=0xc0\n");
        fake_pmu(path, "cpu_core", &[("type", "4\n"), ("cpus", "0-3\n"), event]);
        fake_pmu(
            path,
            "cpu_core",
            &[("caps/branches", "32\n"), ("caps/max_precise", "3\n")],
        );
        fake_pmu(path, "cpu_atom", &[("type", "10\n"), ("cpus", "4-7\n"), event]);
        fake_pmu(
            path,
            "uncore_imc",
            &[("type", "20\n"), ("events/data_reads", "event=1\n")],
        );
        let pmus = read_pmus(path);
        let names: Vec<_> = pmus.iter().map(|pmu| pmu.name.as_str()).collect();
        assert_eq!(names, ["cpu_atom", "cpu_core"]);
        assert_eq!(
            (pmus[1].max_precise, pmus[1].branches, pmus[1].cpus.len()),
            (3, 32, 4)
        );
        assert_eq!((pmus[0].kind, pmus[0].taken()), (10, None));
        assert_eq!(pmus[0].named, [("instructions".to_owned(), 0xc0)]);
    }

    #[test]
    fn terms_of_events() {
        assert_eq!(parse_terms("event=0xc4,umask=0x20\n"), Some(0x20c4));
        assert_eq!(parse_terms("event=0xc0"), Some(0xc0));
        for wrong in ["", "event", "event=0x1ff", "event=0xc0,ldlat=3"] {
            assert_eq!(parse_terms(wrong), None, "{wrong}");
        }
    }
}
