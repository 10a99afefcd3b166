//! The sections `run` and `losses`: facts of the run, its events and their counters, and what was lost.

use std::collections::BTreeMap;

use super::classes::ClassMessage;
use super::malformed::Malformed;
use crate::addr::Ring;
use crate::snapshot::Losses;
use crate::snapshot::run::{
    Counter, CpuBudget, Event, EventUnit, HostFacts, KernelTextSource, Overhead, Period, Run, RunTime,
};

/// The section `run`.
#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::snapshot) struct RunSection {
    #[prost(string, tag = "1")]
    tool_version: String,
    #[prost(string, tag = "2")]
    host: String,
    #[prost(string, tag = "3")]
    cpu_model: String,
    #[prost(string, tag = "4")]
    kernel_release: String,
    #[prost(bytes = "vec", tag = "5")]
    kernel_build_id: Vec<u8>,
    #[prost(uint32, tag = "6")]
    n_cpus: u32,
    #[prost(uint64, tag = "7")]
    started: u64,
    #[prost(uint64, tag = "8")]
    duration: u64,
    #[prost(string, tag = "9")]
    scope: String,
    #[prost(message, repeated, tag = "10")]
    events: Vec<EventMessage>,
    /// 0 nowhere, 1 /proc/kcore, 2 copied by a BPF program, 3 a static image.
    #[prost(uint32, tag = "11")]
    kernel_text: u32,
    /// Path of the static image.
    #[prost(string, tag = "12")]
    kernel_text_path: String,
    #[prost(string, repeated, tag = "13")]
    notes: Vec<String>,
    #[prost(uint64, tag = "14")]
    own_cpu: u64,
    #[prost(uint64, tag = "15")]
    own_memory: u64,
    #[prost(uint64, tag = "16")]
    own_sampling: u64,
    /// Parts per million of all CPUs.
    #[prost(uint32, optional, tag = "17")]
    budget: Option<u32>,
    /// Whether the kernel measured the run time of the programs.
    #[prost(bool, tag = "18")]
    measured_programs: bool,
    /// Since version 3.6.
    #[prost(message, repeated, tag = "19")]
    classes: Vec<ClassMessage>,
    /// Time in ns by note. Since version 3.8.
    #[prost(btree_map = "string, uint64", tag = "20")]
    unmeasured: BTreeMap<String, u64>,
    /// Since version 3.9.
    #[prost(string, tag = "21")]
    without_executions: String,
}

/// One event of the run.
#[derive(Clone, PartialEq, prost::Message)]
struct EventMessage {
    #[prost(string, tag = "1")]
    name: String,
    /// Index in [`UNITS`]; a unit of a newer version reads as "other".
    #[prost(uint32, tag = "2")]
    unit: u32,
    #[prost(bool, tag = "3")]
    branch_stack: bool,
    #[prost(uint32, tag = "4")]
    precise: u32,
    /// Exactly one of the two periods is there.
    #[prost(uint64, optional, tag = "5")]
    fixed_period: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    frequency: Option<u64>,
    #[prost(uint64, tag = "7")]
    runs: u64,
    #[prost(message, repeated, tag = "8")]
    counters: Vec<CounterMessage>,
    /// Whether it is known to count near branches only.
    #[prost(bool, tag = "9")]
    near_only: bool,
    /// The longest of the successive periods; the fixed period is the shortest.
    #[prost(uint64, optional, tag = "10")]
    longest_period: Option<u64>,
    /// Index in [`RINGS`]. Since version 3.7.
    #[prost(uint32, tag = "11")]
    ring: u32,
}

/// One counter of an event.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct CounterMessage {
    #[prost(uint32, optional, tag = "1")]
    cpu: Option<u32>,
    #[prost(uint64, tag = "2")]
    count: u64,
    #[prost(uint64, tag = "3")]
    enabled: u64,
    #[prost(uint64, tag = "4")]
    running: u64,
    #[prost(uint64, optional, tag = "5")]
    runs: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    idle: Option<u64>,
    #[prost(uint64, optional, tag = "7")]
    due: Option<u64>,
    #[prost(uint64, optional, tag = "8")]
    steal: Option<u64>,
    /// Since version 3.9.
    #[prost(uint64, optional, tag = "9")]
    guest: Option<u64>,
}

/// The section `losses`: counts by the stable name of the loss.
#[derive(Clone, PartialEq, prost::Message)]
pub(in crate::snapshot) struct LossesSection {
    #[prost(btree_map = "string, uint64", tag = "1")]
    counts: BTreeMap<String, u64>,
}

/// The numbers of the units: new ones go to the end.
const UNITS: [EventUnit; 6] = [
    EventUnit::Other,
    EventUnit::Nanoseconds,
    EventUnit::Cycles,
    EventUnit::Instructions,
    EventUnit::TakenBranches,
    EventUnit::MicroOps,
];

/// The numbers of the rings; 0 is that of both.
const RINGS: [Option<Ring>; 3] = [None, Some(Ring::Kernel), Some(Ring::User)];

/// The number of one of these.
fn place<T: PartialEq>(all: &[T], wanted: &T) -> u32 {
    let mut numbered = (0..).zip(all);
    numbered
        .find(|(_, one)| *one == wanted)
        .map_or(0, |(number, _)| number)
}

impl From<&Run> for RunSection {
    fn from(run: &Run) -> Self {
        let (kernel_text, kernel_text_path) = match &run.kernel_text {
            KernelTextSource::None => (0, String::new()),
            KernelTextSource::Kcore => (1, String::new()),
            KernelTextSource::Probe => (2, String::new()),
            KernelTextSource::Vmlinux(path) => (3, path.clone()),
        };
        Self {
            tool_version: run.tool_version.clone(),
            host: run.host.name.clone(),
            cpu_model: run.host.cpu_model.clone(),
            kernel_release: run.host.kernel_release.clone(),
            kernel_build_id: run.host.kernel_build_id.clone(),
            n_cpus: run.host.n_cpus,
            started: run.started,
            duration: run.duration,
            scope: run.scope.clone(),
            events: run.events.iter().map(EventMessage::from).collect(),
            kernel_text,
            kernel_text_path,
            notes: run.notes.clone(),
            unmeasured: run.unmeasured.clone(),
            without_executions: run.without_executions.clone(),
            own_cpu: run.overhead.cpu,
            own_memory: run.overhead.memory,
            own_sampling: run.overhead.sampling,
            budget: run.overhead.budget.map(|budget| budget.share),
            measured_programs: run
                .overhead
                .budget
                .is_some_and(|budget| budget.programs == RunTime::Measured),
            classes: run.classes.iter().map(ClassMessage::from).collect(),
        }
    }
}

impl TryFrom<RunSection> for Run {
    type Error = Malformed;

    fn try_from(section: RunSection) -> Result<Self, Malformed> {
        let kernel_text = match section.kernel_text {
            0 => KernelTextSource::None,
            1 => KernelTextSource::Kcore,
            2 => KernelTextSource::Probe,
            3 => KernelTextSource::Vmlinux(section.kernel_text_path),
            other => return Err(Malformed::Value("the source of kernel text", other.into())),
        };
        Ok(Self {
            tool_version: section.tool_version,
            host: HostFacts {
                name: section.host,
                cpu_model: section.cpu_model,
                kernel_release: section.kernel_release,
                kernel_build_id: section.kernel_build_id,
                n_cpus: section.n_cpus,
            },
            started: section.started,
            duration: section.duration,
            scope: section.scope,
            events: section
                .events
                .into_iter()
                .map(Event::try_from)
                .collect::<Result<_, _>>()?,
            classes: section
                .classes
                .into_iter()
                .filter_map(|class| class.known().transpose())
                .collect::<Result<_, _>>()?,
            kernel_text,
            notes: section.notes,
            unmeasured: section.unmeasured,
            without_executions: section.without_executions,
            overhead: Overhead {
                cpu: section.own_cpu,
                memory: section.own_memory,
                sampling: section.own_sampling,
                budget: section.budget.map(|share| CpuBudget {
                    share,
                    programs: if section.measured_programs {
                        RunTime::Measured
                    } else {
                        RunTime::Estimated
                    },
                }),
            },
        })
    }
}

impl From<&Event> for EventMessage {
    fn from(event: &Event) -> Self {
        let (fixed_period, frequency, longest_period) = match event.period {
            Period::Fixed(period) => (Some(period), None, None),
            Period::Frequency(frequency) => (None, Some(frequency), None),
            Period::Between(shortest, longest) => (Some(shortest), None, Some(longest)),
        };
        let counters = event.counters.iter().map(|c| CounterMessage {
            cpu: c.cpu,
            count: c.count,
            enabled: c.enabled,
            running: c.running,
            runs: c.runs,
            idle: c.idle,
            due: c.due,
            steal: c.steal,
            guest: c.guest,
        });
        Self {
            name: event.name.clone(),
            unit: place(&UNITS, &event.unit),
            near_only: event.near_only,
            branch_stack: event.branch_stack,
            precise: event.precise.into(),
            fixed_period,
            frequency,
            runs: event.runs,
            counters: counters.collect(),
            longest_period,
            ring: place(&RINGS, &event.ring),
        }
    }
}

impl TryFrom<EventMessage> for Event {
    type Error = Malformed;

    fn try_from(message: EventMessage) -> Result<Self, Malformed> {
        let period = match (message.fixed_period, message.frequency) {
            (Some(period), None) => match message.longest_period {
                None => Period::Fixed(period),
                Some(longest) => Period::Between(period, longest),
            },
            (None, Some(frequency)) => Period::Frequency(frequency),
            (None, None) => return Err(Malformed::Value("the number of periods of an event", 0)),
            (Some(_), Some(_)) => return Err(Malformed::Value("the number of periods of an event", 2)),
        };
        let unit = usize::try_from(message.unit)
            .ok()
            .and_then(|number| UNITS.get(number).copied());
        let ring = usize::try_from(message.ring)
            .ok()
            .and_then(|number| RINGS.get(number).copied());
        let ring = ring.ok_or_else(|| Malformed::Value("the ring of an event", message.ring.into()))?;
        let precise = u8::try_from(message.precise)
            .map_err(|_| Malformed::Value("precise_ip of an event", message.precise.into()))?;
        let counters = message.counters.into_iter().map(|c| Counter {
            cpu: c.cpu,
            count: c.count,
            enabled: c.enabled,
            running: c.running,
            runs: c.runs,
            idle: c.idle,
            due: c.due,
            steal: c.steal,
            guest: c.guest,
        });
        Ok(Self {
            name: message.name,
            unit: unit.unwrap_or(EventUnit::Other),
            near_only: message.near_only,
            ring,
            branch_stack: message.branch_stack,
            precise,
            period,
            runs: message.runs,
            counters: counters.collect(),
        })
    }
}

impl From<&Losses> for LossesSection {
    fn from(losses: &Losses) -> Self {
        Self {
            counts: losses.iter().map(|(id, n, _)| (id.to_owned(), n)).collect(),
        }
    }
}

impl From<LossesSection> for Losses {
    fn from(section: LossesSection) -> Self {
        section.counts.into_iter().collect()
    }
}
