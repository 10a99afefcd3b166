//! An event that samples: its counters, the program on them, and what both had counted when that was taken last.

use std::io::ErrorKind;
use std::os::fd::{AsFd as _, OwnedFd};
use std::{iter, mem};

use anyhow::Context as _;
use hbbp_ebpf::EventStats;

use super::super::perf::Perf;
use super::super::scope::{Scope, open_counters};
use super::super::source::Source;
use super::super::stride::Sampler;
use super::period_part::{first_part, part_of, scaled};
use hbbp_model::addr::Ring;
use hbbp_model::advice::Advised;
use hbbp_model::snapshot::run::{Counter, Period};
use hbbp_model::streams::StackStats;

/// An event with its counters and the program on them.
pub(super) struct Sampled {
    pub(super) source: Source,
    /// Its period now.
    pub(super) period: Period,
    /// The shortest and the longest since the totals were taken last.
    pub(super) periods: (u64, u64),
    /// Of the period for both rings, the part that is that of its ring; 1 where it counts both.
    pub(super) part: f64,
    pub(super) program: OwnedFd,
    /// Those of CPUs that went offline come before those that were opened when these came back.
    pub(super) counters: Vec<Sampler>,
    /// Whether it was not stopped for good.
    pub(super) is_used: bool,
    /// What its program had counted on each CPU when that was taken last.
    pub(super) taken: Vec<EventStats>,
    /// What had become of its stacks then.
    pub(super) taken_stacks: StackStats,
}

impl Sampled {
    /// One without counters, with its first period.
    pub(super) fn new(source: Source, program: OwnedFd) -> Self {
        let part = first_part(source.request.ring);
        Self {
            period: part_of(source.request.period, part),
            periods: (u64::MAX, 0),
            part,
            source,
            program,
            counters: Vec::new(),
            is_used: true,
            taken: Vec::new(),
            taken_stacks: StackStats::default(),
        }
    }

    pub(super) const fn has_stack(&self) -> bool {
        self.source.request.stack.is_some()
    }

    pub(super) const fn counts_executions(&self) -> bool {
        self.source.unit.counts_executions()
    }

    pub(super) const fn ring(&self) -> Option<Ring> {
        self.source.request.ring
    }

    /// Its period since the last call, the shortest and the longest where there were several.
    pub(super) const fn take_period(&mut self) -> Period {
        match mem::replace(&mut self.periods, (u64::MAX, 0)) {
            (shortest, longest) if shortest < longest => Period::Between(shortest, longest),
            _ => self.period,
        }
    }

    /// Its period now; 1 where the kernel changes it as it likes, and none is known to be due.
    pub(super) const fn nominal_period(&self) -> u64 {
        match self.period {
            Period::Fixed(period) | Period::Between(period, _) => period,
            Period::Frequency(_) => 1,
        }
    }

    /// Opens its counters on these CPUs, disabled, with the program on them and the period of now.
    pub(super) fn open_on(&self, scope: &Scope, online: &[u32]) -> anyhow::Result<Vec<Sampler>> {
        let mut source = self.source.clone();
        source.request.period = self.period;
        let opened = open_counters(&source, scope, online)?;
        for perf in &opened {
            perf.attach(self.program.as_fd())
                .context("failed to attach the program to a perf event")?;
        }
        let samplers = opened.into_iter().map(|perf| Sampler::new(perf, &source));
        Ok(samplers.collect())
    }

    pub(super) fn stop(&self) -> anyhow::Result<()> {
        for counter in self.counters.iter().filter(|counter| !counter.has_ended()) {
            counter.perf.disable().context("failed to stop a perf event")?;
        }
        Ok(())
    }

    /// What its program counted on each CPU since the last call, where it has counted `now` in all.
    pub(super) fn take_stats(&mut self, now: Vec<EventStats>) -> Vec<EventStats> {
        let taken = mem::replace(&mut self.taken, now);
        let taken = taken.into_iter().chain(iter::repeat(EventStats::default()));
        let both = self.taken.iter().zip(taken);
        both.map(|(now, taken)| now.since(taken)).collect()
    }

    /// What became of its stacks since the last call.
    pub(super) const fn take_stacks(&mut self, now: StackStats) -> StackStats {
        now.since(mem::replace(&mut self.taken_stacks, now))
    }

    /// What its counters counted since the last call; of those that lost their counter there is a note.
    pub(super) fn take_counts(
        &mut self,
        by_cpu: &[EventStats],
        notes: &mut Vec<Advised>,
    ) -> anyhow::Result<Vec<Counter>> {
        let mut counters = Vec::new();
        let period = self.nominal_period();
        for sampler in &mut self.counters {
            match sampler.take(period) {
                Ok(mut counter) => {
                    // Of several periods, those of a CPU are known to its counter alone.
                    if self.periods.0 < self.periods.1 {
                        counter.due = Some(counter.due_at(period));
                    }
                    let cpu = counter.cpu.and_then(|cpu| by_cpu.get(cpu as usize));
                    counter.runs = cpu.map(|stats| stats.runs);
                    let same = |it: &&mut Counter| it.cpu.is_some() && it.cpu == counter.cpu;
                    match counters.iter_mut().find(same) {
                        // Its CPU went offline and came back: its samples are those of the CPU already.
                        Some(before) => before.add_later(&counter, period),
                        None => counters.push(counter),
                    }
                }
                // What it sampled until then is good; only how much was due is not known.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    notes.push(no_counter(&sampler.perf, &self.source).into());
                }
                Err(error) => return Err(error).context("failed to read a perf event"),
            }
        }
        self.counters.retain(|sampler| !sampler.has_ended());
        Ok(counters)
    }

    /// Whether its period may change: counters that follow tasks keep the first one.
    pub(super) fn is_adaptable(&self) -> bool {
        self.is_used && self.counters.iter().all(Sampler::is_adaptable)
    }

    /// The period that it would have for both rings, at the start.
    pub(super) const fn of_both(&self) -> u64 {
        match self.source.request.period {
            Period::Fixed(period) | Period::Between(period, _) => period,
            Period::Frequency(_) => 1,
        }
    }

    /// Samples every `part` of the period for both rings, or near it, from now on, while it runs.
    pub(super) fn set_part(&mut self, part: f64, scale: f64) -> anyhow::Result<()> {
        let Period::Fixed(of_both) = self.source.request.period else {
            return Ok(());
        };
        let before = self.nominal_period();
        let period = scaled(of_both, scale * part).max(1);
        for counter in &mut self.counters {
            counter
                .adapt(period)
                .context("failed to set the period of a perf event")?;
        }
        let (shortest, longest) = self.periods;
        self.periods = (shortest.min(before).min(period), longest.max(before).max(period));
        self.part = part;
        self.period = Period::Fixed(period);
        Ok(())
    }
}

/// The message to the user about a counter that another one took.
pub(super) fn no_counter(perf: &Perf, source: &Source) -> String {
    let place = perf
        .cpu()
        .map_or_else(|| "a task".to_owned(), |cpu| format!("CPU {cpu}"));
    format!(
        "event {} lost its counter on {place} to another user of the PMU",
        source.name
    )
}
