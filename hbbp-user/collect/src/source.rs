//! An event to sample, and how it is opened on trial.

use std::io;

use perf_event_open_sys::bindings;

use super::perf::{Perf, Request, Target};
use super::pmu::Pmu;
use super::uarch::{self, Core, Encoding};
use hbbp_model::snapshot::run::{EventUnit, Period};

/// An event to sample.
#[derive(Clone, Debug)]
pub struct Source {
    /// Name for the report.
    pub name: String,
    /// What one unit of its count is.
    pub unit: EventUnit,
    /// Whether it is known to count near branches only.
    pub near_only: bool,
    /// How to open it.
    pub request: Request,
    /// The CPUs it can be opened on; all where empty.
    pub cpus: Vec<u32>,
}

impl Source {
    /// Has its samples carry call chains, if they are samples of time.
    pub(super) fn ask_for_chains(&mut self) {
        let is_time = matches!(self.unit, EventUnit::Cycles | EventUnit::Nanoseconds);
        self.request.chain = is_time && self.request.stack.is_none();
    }
}

/// Why a step of the ladder has no events.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// No PMU of the processor.
    #[error("no hardware counters")]
    NoCounters,
    /// A PMU without branch records.
    #[error("PMU {0} has no branch records")]
    NoBranchRecords(String),
    /// A PMU of which no event is known that counts all taken branches.
    #[error("PMU {0} has no event that counts all taken branches")]
    NoTakenBranches(String),
    /// The kernel does not open an event.
    #[error("event {event} was refused")]
    Event {
        /// Its name.
        event: String,
        /// What the kernel says.
        #[source]
        error: io::Error,
    },
}

/// What counts the progress of slices.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SliceEvents {
    /// The events, by the bit of their number.
    pub events: u32,
    /// Whether what the idle task executed, such as its interrupts, counts for all that is measured. It does where an idle CPU
    /// counts nothing; a clock goes on.
    pub in_idle: bool,
}

/// The events that count what makes a slice: retired instructions; else what is sampled instead, cycles or a clock.
pub(super) fn counting(sources: &[Source]) -> SliceEvents {
    let of = |is: fn(&Source) -> bool| {
        let numbered = (0..).zip(sources);
        numbered
            .filter(|(_, source)| source.request.stack.is_none() && is(source))
            .fold(0, |all, (n, _)| all | 1 << n)
    };
    let events = match of(|source| source.unit == EventUnit::Instructions) {
        0 => of(|_| true),
        instructions => instructions,
    };
    SliceEvents {
        events,
        in_idle: events & of(|source| source.unit == EventUnit::Nanoseconds) == 0,
    }
}

/// The source with the highest precise level that the kernel grants, at most the one it asks for.
pub(super) fn settle(mut source: Source) -> Result<Source, Refused> {
    loop {
        let error = match try_open(&source) {
            Ok(()) => return Ok(source),
            Err(error) => error,
        };
        if source.request.precise == 0 {
            return Err(Refused::Event {
                event: source.name,
                error,
            });
        }
        source.request.precise -= 1;
    }
}

pub(super) fn try_open(source: &Source) -> io::Result<()> {
    let cpu = source.cpus.first().copied().unwrap_or(0);
    Perf::open(&source.request, &Target::Cpu(cpu)).map(drop)
}

/// The events of a PMU's processor; a driver that names its taken branches knows best.
pub(super) fn core_of(pmu: &Pmu) -> Option<Core> {
    processor_of(pmu).filter(|_| pmu.taken.is_none())
}

/// What is known of a PMU's processor.
pub(super) fn processor_of(pmu: &Pmu) -> Option<Core> {
    let known = uarch::read_cpu().and_then(|cpu| uarch::core(cpu, &pmu.name));
    known.filter(|_| pmu.name.starts_with("cpu"))
}

pub(super) fn hardware(pmu: &Pmu, encoding: &Encoding, unit: EventUnit) -> Source {
    Source {
        name: format!("{}/{}/", pmu.name, encoding.name),
        unit,
        near_only: encoding.near_only,
        request: Request {
            kind: pmu.kind,
            config: encoding.config,
            period: Period::default(),
            precise: encoding.precise.min(pmu.max_precise),
            exclude_guest: true,
            pinned: true,
            stack: None,
            chain: false,
            ring: None,
        },
        cpus: pmu.cpus.clone(),
    }
}

pub(super) fn cycles(pmu: &Pmu) -> Source {
    // A generic event on this PMU: its type is in the upper half (PERF_PMU_TYPE_SHIFT, Linux 5.13).
    let config = u64::from(bindings::PERF_COUNT_HW_CPU_CYCLES) | u64::from(pmu.kind) << 32;
    let mut source = hardware(
        pmu,
        &Encoding {
            config,
            precise: 0,
            name: "cycles",
            near_only: false,
        },
        EventUnit::Cycles,
    );
    source.request.kind = bindings::PERF_TYPE_HARDWARE;
    source
}

pub(super) fn software(name: &str, config: u32) -> Source {
    Source {
        name: name.to_owned(),
        unit: EventUnit::Nanoseconds,
        near_only: false,
        request: Request {
            kind: bindings::PERF_TYPE_SOFTWARE,
            config: config.into(),
            period: Period::default(),
            precise: 0,
            exclude_guest: true,
            pinned: false,
            stack: None,
            chain: false,
            ring: None,
        },
        cpus: Vec::new(),
    }
}

pub(super) fn clock() -> Source {
    software("cpu-clock", bindings::PERF_COUNT_SW_CPU_CLOCK)
}
