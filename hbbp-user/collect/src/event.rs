//! Which events a run samples: the best rung of the ladder that the kernel opens, or what the user asks for.
//!
//! The ladder: branch stacks beside retired instructions; instructions alone; core cycles; the clock.
//! Each rung has its events once for each PMU of the machine.

use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use perf_event_open_sys::bindings;

use super::counters::{StackEvents, apart};
use super::perf::{Perf, Request, Stack, Target};
use super::periods::period;
use super::pmu::{DEVICES, Pmu, read_pmus};
use super::raw_event::raw;
use super::uarch::{self, Core, Encoding};
use hbbp_model::advice::{Advice, Advised};
use hbbp_model::slices::SliceCut;
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

/// What a user may say about events.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// `--event`: a name of [`NAMES`], or `PMU/config=0x..,name=../`.
    pub event: Option<String>,
    /// `--period` or `--frequency`, for the event that samples instruction pointers.
    pub period: Option<Period>,
    /// `--branch-period`, for the event that samples branch stacks.
    pub branch_period: Option<u64>,
    /// How long the run is expected to last.
    pub duration: Option<Duration>,
    /// `--time`: the period of cycles that are sampled beside executions; `None` where they are not.
    pub time: Option<u64>,
    /// `--callers`: the samples of time carry call chains.
    pub callers: bool,
    /// Whether each ring has branch stacks by an event of its own.
    pub stacks: StackEvents,
    /// What makes a slice, whose length is followed by periods that were not said; `None` where slices are not told apart.
    /// Kernel code is to be kept apart by process with them.
    pub slices: Option<SliceCut>,
}

/// The names that `--event` knows beside `PMU/../`.
pub const NAMES: [&str; 5] = ["branches", "instructions", "cycles", "cpu-clock", "task-clock"];

/// A step of the ladder: its events, or the one that the kernel refuses.
#[derive(Debug)]
pub struct Rung {
    /// What it is, in words.
    pub what: &'static str,
    /// The events with the precise level that the kernel grants, or the reason why there is none.
    pub sources: Result<Vec<Source>, Refused>,
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
    #[error("event {event} was refused: {error}")]
    Event {
        /// Its name.
        event: String,
        /// What the kernel says.
        error: io::Error,
    },
}

/// The events to sample.
pub fn choose(choice: &Choice) -> anyhow::Result<Vec<Source>> {
    let mut sources = match &choice.event {
        Some(event) => named(event)?,
        None => best()?,
    };
    if choice.stacks == StackEvents::ForEachRing {
        sources = apart(sources)?;
    }
    for source in &mut sources {
        source.request.period = period(source, choice);
        match (source.unit, source.request.period) {
            (EventUnit::Nanoseconds, Period::Fixed(period)) if period < SHORTEST_CLOCK => {
                let why = format!(
                    "period {period} ns is too short: the shortest clock period is {SHORTEST_CLOCK} ns"
                );
                bail!(Advised::new(why, Advice::LongerPeriod));
            }
            _ => {}
        }
        if let (None, Some(slices), Period::Fixed(period)) =
            (source.request.stack, choice.slices, source.request.period)
            && slices.length < period
        {
            let why = format!(
                "an interval of {} is shorter than the period of {}, {period}: no sample may fall into it",
                slices.length, source.name
            );
            bail!(Advised::new(why, Advice::LongerIntervals));
        }
    }
    if choice.callers {
        sources.iter_mut().for_each(Source::ask_for_chains);
    }
    if let Some(period) = choice.time {
        let beside = time_beside(&sources, period, choice.callers)?;
        sources.extend(beside);
    }
    Ok(sources)
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

/// The events that count what makes a slice: retired instructions; else what is sampled in their place, cycles or a clock.
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

impl Source {
    /// Has its samples carry call chains, if they are samples of time.
    fn ask_for_chains(&mut self) {
        let is_time = matches!(self.unit, EventUnit::Cycles | EventUnit::Nanoseconds);
        self.request.chain = is_time && self.request.stack.is_none();
    }
}

/// What samples time beside these events. A PMU that buffers its records has no call chains for them, and then it is the
/// clock, with as many nanoseconds as cycles were asked for.
fn time_beside(sources: &[Source], period: u64, callers: bool) -> anyhow::Result<Vec<Source>> {
    let mut cycles = cycles_beside(sources, period)?;
    if callers {
        cycles.iter_mut().for_each(Source::ask_for_chains);
        if cycles.iter().any(|source| try_open(source).is_err()) {
            let mut clock = clock();
            clock.request.period = Period::Fixed(period.max(SHORTEST_CLOCK));
            clock.ask_for_chains();
            return Ok(vec![clock]);
        }
    }
    Ok(cycles)
}

/// Cycles on each PMU that counts executions, as precise as its instructions are: a processor without precise instructions has
/// no precise cycles on the same counters. Where the events already tell the time, nothing is added.
fn cycles_beside(sources: &[Source], period: u64) -> anyhow::Result<Vec<Source>> {
    let pmus = read_pmus(Path::new(DEVICES));
    let counting = pmus.iter().filter_map(|pmu| {
        let of_pmu = |source: &&Source| source.request.kind == pmu.kind && source.unit.counts_executions();
        let precise = sources
            .iter()
            .filter(of_pmu)
            .map(|source| source.request.precise)
            .max()?;
        Some((pmu, precise))
    });
    let cycles = counting.map(|(pmu, precise)| {
        let mut source = cycles(pmu);
        // Levels 1 and 2 of the generic event are those that the kernel has a precise event in place of it for
        // (intel_pebs_aliases in arch/x86/events/intel/core.c, Linux v6.12).
        source.request.precise = precise.min(2);
        source.request.period = Period::Fixed(period);
        settle(source).context(Advised::new(
            "time cannot be sampled beside executions",
            Advice::LeaveOutTime,
        ))
    });
    cycles.collect()
}

/// Shorter periods of a clock are lengthened to this without a word (kernel/events/core.c,
/// `perf_swevent_start_hrtimer`), and then the count divided by the period says nothing about the samples due.
const SHORTEST_CLOCK: u64 = 10_000;

fn best() -> anyhow::Result<Vec<Source>> {
    let mut refused = Refused::NoCounters;
    for rung in ladder() {
        match rung.sources {
            Ok(sources) => return Ok(sources),
            Err(reason) => refused = reason,
        }
    }
    let why = format!("no event can be sampled: {refused}");
    bail!(Advised::new(why, Advice::CheckMachine))
}

/// The rungs of this machine, best first; each was tried just now.
pub fn ladder() -> Vec<Rung> {
    let pmus = read_pmus(Path::new(DEVICES));
    vec![
        Rung {
            what: "branch stacks and instructions",
            sources: on_each(&pmus, with_branches),
        },
        Rung {
            what: "instructions",
            sources: on_each(&pmus, |pmu| Ok(vec![instructions(pmu)?])),
        },
        Rung {
            what: "cycles",
            sources: on_each(&pmus, |pmu| Ok(vec![settle(cycles(pmu))?])),
        },
        Rung {
            what: "the clock",
            sources: settle(clock()).map(|clock| vec![clock]),
        },
    ]
}

fn on_each(pmus: &[Pmu], events: fn(&Pmu) -> Result<Vec<Source>, Refused>) -> Result<Vec<Source>, Refused> {
    if pmus.is_empty() {
        return Err(Refused::NoCounters);
    }
    let sources: Result<Vec<Vec<Source>>, Refused> = pmus.iter().map(events).collect();
    Ok(sources?.concat())
}

/// What the branch records of this machine are known for: repeated newest entries, entries of wrong paths.
pub fn quirks() -> (bool, bool) {
    let cores: Vec<Core> = read_pmus(Path::new(DEVICES))
        .iter()
        .filter_map(processor_of)
        .collect();
    (
        cores.iter().any(|core| core.repeats_newest),
        cores.iter().any(|core| core.wrong_paths),
    )
}

/// What is known of the processor behind a PMU.
fn processor_of(pmu: &Pmu) -> Option<Core> {
    let known = uarch::read_cpu().and_then(|cpu| uarch::core(cpu, &pmu.name));
    known.filter(|_| pmu.name.starts_with("cpu"))
}

/// The events of the processor behind a PMU; a driver that names its taken branches knows best.
pub(super) fn core_of(pmu: &Pmu) -> Option<Core> {
    processor_of(pmu).filter(|_| pmu.taken.is_none())
}

fn with_branches(pmu: &Pmu) -> Result<Vec<Source>, Refused> {
    if pmu.branches == 0 {
        return Err(Refused::NoBranchRecords(pmu.name.clone()));
    }
    let core = core_of(pmu);
    let taken = pmu.taken().or_else(|| core?.taken);
    let taken = taken.ok_or_else(|| Refused::NoTakenBranches(pmu.name.clone()))?;
    let stack = match core {
        Some(core) if core.bare_entries => Stack::Bare,
        _ => Stack::Full,
    };
    let mut branches = hardware(pmu, &taken, EventUnit::TakenBranches);
    branches.request.stack = Some(stack);
    Ok(vec![instructions(pmu)?, settle(branches)?])
}

fn instructions(pmu: &Pmu) -> Result<Source, Refused> {
    let own = [pmu.instructions()];
    let core = core_of(pmu);
    let encodings = core.as_ref().map_or(&own[..], |core| core.instructions);
    let mut refused = Refused::NoCounters;
    for encoding in encodings {
        match settle(hardware(pmu, encoding, EventUnit::Instructions)) {
            Ok(source) => return Ok(source),
            Err(reason) => refused = reason,
        }
    }
    Err(refused)
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

fn try_open(source: &Source) -> io::Result<()> {
    let cpu = source.cpus.first().copied().unwrap_or(0);
    Perf::open(&source.request, &Target::Cpu(cpu)).map(drop)
}

fn hardware(pmu: &Pmu, encoding: &Encoding, unit: EventUnit) -> Source {
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

fn cycles(pmu: &Pmu) -> Source {
    // A generic event on this PMU: its type stands in the upper half (PERF_PMU_TYPE_SHIFT, Linux 5.13).
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

fn software(name: &str, config: u32) -> Source {
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

fn named(event: &str) -> anyhow::Result<Vec<Source>> {
    let what = match event {
        "cpu-clock" => return Ok(vec![clock()]),
        "task-clock" => return Ok(vec![software("task-clock", bindings::PERF_COUNT_SW_TASK_CLOCK)]),
        "branches" => "branch stacks and instructions",
        "instructions" | "cycles" => event,
        _ => match event.strip_suffix('/').and_then(|event| event.split_once('/')) {
            Some((pmu, terms)) => return Ok(vec![raw(pmu, terms)?]),
            None => bail!(
                "unknown event `{event}`; expected one of {}, or PMU/config=0x..,name=../",
                NAMES.join(", ")
            ),
        },
    };
    let rung = ladder().into_iter().find(|rung| rung.what == what);
    match rung.map(|rung| rung.sources) {
        Some(Ok(sources)) => Ok(sources),
        Some(Err(reason)) => {
            let why = format!("event `{event}` is not available: {reason}");
            bail!(Advised::new(why, Advice::SampleTheClock))
        }
        None => bail!("event `{event}` is not available"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_ends_at_the_clock_and_names_what_it_lacks() {
        let ladder = ladder();
        assert_eq!(ladder.len(), 4);
        for rung in &ladder {
            let reason = rung.sources.as_ref().err().map(ToString::to_string);
            assert!(reason.is_none_or(|reason| !reason.is_empty()), "{rung:?}");
        }
    }

    #[test]
    fn wrong_events_say_what_is_known() {
        let error = named("flops").unwrap_err().to_string();
        assert!(error.contains("cpu-clock"), "{error}");
    }
}
