//! Which event a machine offers for the job, best first, and what a user may ask for instead.
//!
//! The ladder of design: hardware events where a PMU is there, else the clock.
//! PMUs are found by their folders in sysfs, whatever their names, so that a hybrid processor with one PMU for each
//! kind of core, and a PMU that a driver has added, need no case of their own.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use perf_event_open_sys::bindings;

use super::perf::{Perf, Request, Target, parse_cpu_list};
use crate::snapshot::run::{EventUnit, Period};

/// An event that this machine can sample.
#[derive(Clone, Debug)]
pub struct Source {
    /// Name for the report.
    pub name: String,
    /// What one unit of its count is.
    pub unit: EventUnit,
    /// How to open it.
    pub request: Request,
    /// The CPUs it can be opened on; all where empty.
    pub cpus: Vec<u32>,
}

/// Default period of the clock: about a thousand samples a second on each CPU, and a prime number of ns, so that the
/// samples do not keep step with anything that happens every millisecond.
const CLOCK_PERIOD_NS: u64 = 1_000_003;

/// Default period of retired instructions for runs of seconds (paper section V.A, Table 4).
const INSTRUCTIONS_PERIOD: u64 = 1_000_037;

/// Default period of core cycles: about a thousand samples a second at 3 GHz, prime.
const CYCLES_PERIOD: u64 = 3_000_017;

const SYSFS: &str = "/sys/bus/event_source/devices";

/// What a user may say about events.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// `--event`: a name of [`NAMES`], or `PMU/config=0x..,name=../`.
    pub event: Option<String>,
    /// `--period` or `--frequency`.
    pub period: Option<Period>,
}

/// The names that `--event` knows beside `PMU/../`.
pub const NAMES: [&str; 4] = ["instructions", "cycles", "cpu-clock", "task-clock"];

/// The events to sample: what the user chose, or the best rung of the ladder that the kernel opens.
pub fn choose(choice: &Choice) -> anyhow::Result<Vec<Source>> {
    let sources = match &choice.event {
        Some(event) => named(event)?,
        None => ladder()
            .into_iter()
            .find(|rung| rung.iter().all(opens))
            .unwrap_or_else(|| vec![clock()]),
    };
    Ok(sources
        .into_iter()
        .map(|source| with_period(source, choice.period))
        .collect())
}

/// The rungs, best first; a rung is one event on each PMU of a hybrid processor.
pub fn ladder() -> Vec<Vec<Source>> {
    let pmus = read_core_pmus(Path::new(SYSFS));
    let rung = |build: fn(&Pmu) -> Source| pmus.iter().map(build).collect::<Vec<_>>();
    let mut rungs = Vec::new();
    if !pmus.is_empty() {
        rungs.push(rung(instructions));
        rungs.push(rung(cycles));
    }
    rungs.push(vec![clock()]);
    rungs
}

/// Whether the kernel opens the event here and now, on the first CPU that has it.
pub fn opens(source: &Source) -> bool {
    try_open(source).is_ok()
}

/// Opens the event on the first CPU that has it, and closes it again.
pub fn try_open(source: &Source) -> io::Result<()> {
    let cpu = source.cpus.first().copied().unwrap_or(0);
    Perf::open(&source.request, &Target::Cpu(cpu)).map(drop)
}

/// A PMU that counts core events.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pmu {
    /// Name of its folder, such as `cpu`, `cpu_core`, `cpu_atom`.
    pub name: String,
    /// `perf_event_attr.type` of its events.
    pub kind: u32,
    /// Highest `precise_ip` that it grants.
    pub max_precise: u8,
    /// Depth of its branch stack; 0 where it has none.
    pub branches: u32,
    /// The CPUs it is on; all where empty.
    pub cpus: Vec<u32>,
}

/// Reads the PMUs that count instructions of a core: those with an event `instructions` in sysfs.
pub fn read_core_pmus(devices: &Path) -> Vec<Pmu> {
    let Ok(entries) = std::fs::read_dir(devices) else {
        return Vec::new();
    };
    let mut folders: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.sort();
    let mut pmus: Vec<Pmu> = folders.iter().filter_map(|folder| read_pmu(folder)).collect();
    pmus.sort_by_key(|pmu| pmu.name.clone());
    pmus
}

fn read_pmu(folder: &Path) -> Option<Pmu> {
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
    read("events/instructions")?;
    Some(Pmu {
        name: folder.file_name()?.to_str()?.to_owned(),
        kind: read("type")?.trim().parse().ok()?,
        max_precise: read("caps/max_precise")
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0),
        branches: read("caps/branches")
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0),
        cpus: read("cpus")
            .and_then(|text| parse_cpu_list(&text))
            .unwrap_or_default(),
    })
}

fn hardware(pmu: &Pmu, event: &str, config: u32, unit: EventUnit, period: u64) -> Source {
    // The generic events of the first PMU need no type of their own; others carry theirs in the upper half
    // (PERF_PMU_TYPE_SHIFT, include/uapi/linux/perf_event.h, Linux 5.13).
    let generic = pmu.name == "cpu";
    let kind = if generic { 0 } else { u64::from(pmu.kind) << 32 };
    Source {
        name: if generic {
            event.to_owned()
        } else {
            format!("{}/{event}/", pmu.name)
        },
        unit,
        request: Request {
            kind: bindings::PERF_TYPE_HARDWARE,
            config: u64::from(config) | kind,
            period: Period::Fixed(period),
            precise: 0,
            exclude_guest: true,
            pinned: true,
        },
        cpus: pmu.cpus.clone(),
    }
}

fn instructions(pmu: &Pmu) -> Source {
    let config = bindings::PERF_COUNT_HW_INSTRUCTIONS;
    hardware(
        pmu,
        "instructions",
        config,
        EventUnit::Instructions,
        INSTRUCTIONS_PERIOD,
    )
}

fn cycles(pmu: &Pmu) -> Source {
    hardware(
        pmu,
        "cycles",
        bindings::PERF_COUNT_HW_CPU_CYCLES,
        EventUnit::Cycles,
        CYCLES_PERIOD,
    )
}

fn software(name: &str, config: u32) -> Source {
    Source {
        name: name.to_owned(),
        unit: EventUnit::Nanoseconds,
        request: Request {
            kind: bindings::PERF_TYPE_SOFTWARE,
            config: config.into(),
            period: Period::Fixed(CLOCK_PERIOD_NS),
            precise: 0,
            exclude_guest: true,
            pinned: false,
        },
        cpus: Vec::new(),
    }
}

fn clock() -> Source {
    software("cpu-clock", bindings::PERF_COUNT_SW_CPU_CLOCK)
}

fn named(event: &str) -> anyhow::Result<Vec<Source>> {
    let pmus = read_core_pmus(Path::new(SYSFS));
    match event {
        "cpu-clock" => return Ok(vec![clock()]),
        "task-clock" => return Ok(vec![software("task-clock", bindings::PERF_COUNT_SW_TASK_CLOCK)]),
        "instructions" | "cycles" if pmus.is_empty() => {
            bail!(
                "this machine shows no hardware counters, so there is no event {event}; try `--event cpu-clock`"
            )
        }
        "instructions" => return Ok(pmus.iter().map(instructions).collect()),
        "cycles" => return Ok(pmus.iter().map(cycles).collect()),
        _ => {}
    }
    let Some((pmu, terms)) = event.strip_suffix('/').and_then(|event| event.split_once('/')) else {
        bail!(
            "no event {event}; known are {} and PMU/config=0x..,name=../",
            NAMES.join(", ")
        );
    };
    Ok(vec![raw(pmu, terms)?])
}

/// An event of a PMU by its numbers: `config`, `precise`, `unit` (instructions, cycles, other) and a `name`.
fn raw(pmu: &str, terms: &str) -> anyhow::Result<Source> {
    if pmu.is_empty() || pmu.contains(['/', '.']) {
        bail!("{pmu:?} is no name of a PMU");
    }
    let folder = Path::new(SYSFS).join(pmu);
    let kind = std::fs::read_to_string(folder.join("type"))
        .with_context(|| format!("no PMU {pmu}; `hbbp-sys check` lists what is there"))?;
    let mut source = Source {
        name: format!("{pmu}/{terms}/"),
        unit: EventUnit::Other,
        request: Request {
            kind: kind
                .trim()
                .parse()
                .with_context(|| format!("the PMU {pmu} has no type"))?,
            config: 0,
            period: Period::Fixed(INSTRUCTIONS_PERIOD),
            precise: 0,
            exclude_guest: false,
            pinned: true,
        },
        cpus: std::fs::read_to_string(folder.join("cpus"))
            .ok()
            .and_then(|text| parse_cpu_list(&text))
            .unwrap_or_default(),
    };
    for term in terms.split(',').filter(|term| !term.is_empty()) {
        let (key, value) = term.split_once('=').unwrap_or((term, "1"));
        match key {
            "config" => source.request.config = number(value)?,
            "precise" => source.request.precise = u8::try_from(number(value)?).unwrap_or(u8::MAX),
            "name" => source.name = value.to_owned(),
            "unit" => {
                source.unit = match value {
                    "instructions" => EventUnit::Instructions,
                    "cycles" => EventUnit::Cycles,
                    "other" => EventUnit::Other,
                    _ => bail!("the unit of an event is instructions, cycles or other, not {value}"),
                }
            }
            _ => bail!("{key} is no term of an event; known are config, precise, unit and name"),
        }
    }
    Ok(source)
}

fn number(text: &str) -> anyhow::Result<u64> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.with_context(|| format!("{text} is not a number"))
}

fn with_period(mut source: Source, period: Option<Period>) -> Source {
    if let Some(period) = period {
        source.request.period = period;
    }
    source
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
        fake_pmu(
            path,
            "cpu_core",
            &[
                ("type", "4\n"),
                ("cpus", "0-3\n"),
                ("events/instructions", "event=0xc0\n"),
            ],
        );
        fake_pmu(
            path,
            "cpu_atom",
            &[
                ("type", "10\n"),
                ("cpus", "4-7\n"),
                ("events/instructions", "event=0xc0\n"),
            ],
        );
        fake_pmu(
            path,
            "cpu_core",
            &[("caps/branches", "32\n"), ("caps/max_precise", "3\n")],
        );
        fake_pmu(
            path,
            "uncore_imc",
            &[("type", "20\n"), ("events/data_reads", "event=1\n")],
        );
        let pmus = read_core_pmus(path);
        let names: Vec<_> = pmus.iter().map(|pmu| pmu.name.as_str()).collect();
        assert_eq!(names, ["cpu_atom", "cpu_core"]);
        assert_eq!(
            (pmus[1].max_precise, pmus[1].branches, pmus[1].cpus.len()),
            (3, 32, 4)
        );
        let source = instructions(&pmus[0]);
        assert_eq!(
            (source.name.as_str(), source.request.config),
            ("cpu_atom/instructions/", (10 << 32) | 1)
        );
    }

    #[test]
    fn wrong_events_say_what_is_known() {
        let error = named("flops").unwrap_err().to_string();
        assert!(error.contains("cpu-clock"), "{error}");
        assert!(raw("../../etc", "config=1").is_err());
        assert!(number("0xzz").is_err());
    }
}
