//! Which events a run samples: the best rung of the ladder that the kernel opens, or what the user asks for.
//!
//! The ladder: branch stacks with retired instructions; instructions alone; core cycles; the clock. Each rung has its
//! events once for each PMU of the machine.

use std::path::Path;

use anyhow::{Context as _, bail};
use perf_event_open_sys::bindings;

use super::choice::{Choice, NAMES};
use super::counters::{StackEvents, apart};
use super::perf::Stack;
use super::periods::period;
use super::pmu::{DEVICES, Pmu, read_pmus};
use super::raw_event::raw;
use super::source::{
    Refused, Source, clock, core_of, cycles, hardware, processor_of, settle, software, try_open,
};
use super::uarch::Core;
use hbbp_model::advice::{Advice, Advised};
use hbbp_model::snapshot::run::{EventUnit, Period};

/// What the events of a rung sample.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RungKind {
    /// Branch stacks, and retired instructions.
    BranchStacks,
    /// Retired instructions.
    Instructions,
    /// Core cycles.
    Cycles,
    /// The clock.
    Clock,
}

impl RungKind {
    /// The kind in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::BranchStacks => "branch stacks and instructions",
            Self::Instructions => "instructions",
            Self::Cycles => "cycles",
            Self::Clock => "the clock",
        }
    }
}

/// One alternative of the ladder of sources, with its events or the reason why the kernel refused one.
#[derive(Debug)]
pub struct Rung {
    /// What it samples.
    pub kind: RungKind,
    /// The events with the precise level that the kernel grants, or the reason why there is none.
    pub sources: Result<Vec<Source>, Refused>,
}

/// The events to sample.
pub(crate) fn choose(choice: &Choice) -> anyhow::Result<Vec<Source>> {
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

/// The event that samples time along with these. A PMU that buffers its records has no call chains for them, and then
/// it is the clock, with as many nanoseconds as cycles were asked for.
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

/// Cycles on each PMU that counts executions, as precise as its instructions are: a processor without precise
/// instructions has no precise cycles on the same counters. Where the events already measure time, nothing is added.
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
        // Levels 1 and 2 of the generic event are those for which the kernel has a precise replacement
        // (intel_pebs_aliases in arch/x86/events/intel/core.c, Linux v6.12).
        source.request.precise = precise.min(2);
        source.request.period = Period::Fixed(period);
        settle(source).context(Advised::new(
            "time cannot be sampled in addition to executions",
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
    let why = Advised::new("no event can be sampled", Advice::CheckMachine);
    Err(anyhow::Error::from(refused).context(why))
}

/// The rungs of this machine, best first; each was tried just now.
pub fn ladder() -> Vec<Rung> {
    let pmus = read_pmus(Path::new(DEVICES));
    vec![
        Rung {
            kind: RungKind::BranchStacks,
            sources: on_each(&pmus, with_branches),
        },
        Rung {
            kind: RungKind::Instructions,
            sources: on_each(&pmus, |pmu| Ok(vec![instructions(pmu)?])),
        },
        Rung {
            kind: RungKind::Cycles,
            sources: on_each(&pmus, |pmu| Ok(vec![settle(cycles(pmu))?])),
        },
        Rung {
            kind: RungKind::Clock,
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
pub(crate) fn quirks() -> (bool, bool) {
    let cores: Vec<Core> = read_pmus(Path::new(DEVICES))
        .iter()
        .filter_map(processor_of)
        .collect();
    (
        cores.iter().any(|core| core.repeats_newest),
        cores.iter().any(|core| core.wrong_paths),
    )
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

fn named(event: &str) -> anyhow::Result<Vec<Source>> {
    let kind = match event {
        "cpu-clock" => return Ok(vec![clock()]),
        "task-clock" => return Ok(vec![software("task-clock", bindings::PERF_COUNT_SW_TASK_CLOCK)]),
        "branches" => RungKind::BranchStacks,
        "instructions" => RungKind::Instructions,
        "cycles" => RungKind::Cycles,
        _ => match event.strip_suffix('/').and_then(|event| event.split_once('/')) {
            Some((pmu, terms)) => return Ok(vec![raw(pmu, terms)?]),
            None => bail!(
                "unknown event `{event}`; expected one of {}, or PMU/config=0x..,name=../",
                NAMES.join(", ")
            ),
        },
    };
    let rung = ladder().into_iter().find(|rung| rung.kind == kind);
    match rung.map(|rung| rung.sources) {
        Some(Ok(sources)) => Ok(sources),
        Some(Err(reason)) => {
            let why = format!("event `{event}` is not available");
            Err(anyhow::Error::from(reason).context(Advised::new(why, Advice::SampleTheClock)))
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
