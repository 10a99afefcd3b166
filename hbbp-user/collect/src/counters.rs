//! The perf events of a collection, each with its counters and the program on them.

mod by_ring;
mod period_part;
mod sampled;

use std::io::ErrorKind;
use std::os::fd::AsFd as _;

use anyhow::{Context as _, bail};
use hbbp_ebpf::{EventStats, MAX_EVENTS};

use super::bpf::program_runs;
use super::cpus::Cpus;
use super::object::Object;
use super::overhead::Runs;
use super::scope::Scope;
use super::source::Source;
use super::stacks::Stacks;
use super::stride::Sampler;
use super::totals::{Totals, add_losses, sum};
pub use by_ring::StackEvents;
pub(super) use by_ring::apart;
use hbbp_model::addr::Ring;
use hbbp_model::advice::{Advice, Advised};
use hbbp_model::snapshot::Loss;
use hbbp_model::snapshot::run::{Event, EventUnit, Period};
pub(super) use period_part::{SHORTEST, scaled};
use period_part::{is_off, part_of_period};
use sampled::{Sampled, no_counter};

/// The events, by their numbers.
pub(super) struct Counters {
    events: Vec<Sampled>,
    /// All periods times this are those of the start ([`Self::set_scale`]).
    scale: f64,
    /// Instructions of kernel and user code when totals were taken last ([`Self::ran`]).
    ran_before: [u64; 2],
}

/// What the samples with branch stacks brought.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StacksSeen {
    /// Too few such samples have arrived to decide, or none is asked for.
    NotYet,
    /// At least one held branches.
    Filled,
    /// All were empty, as on some virtual machines.
    Empty,
}

impl Counters {
    /// Opens the events, disabled, with the programs on them.
    pub(super) fn open(
        object: &mut Object,
        sources: Vec<Source>,
        scope: &Scope,
        online: &[u32],
    ) -> anyhow::Result<Self> {
        let mut events = Vec::new();
        for (number, source) in sources.into_iter().enumerate() {
            if MAX_EVENTS <= number {
                let why = format!("too many events in one run (at most {MAX_EVENTS})");
                bail!(Advised::new(why, Advice::FewerEvents));
            }
            let program = match source.request.stack {
                Some(_) => object.on_branch(number)?,
                None if source.request.chain => object.on_chain(number)?,
                None => object.on_ip(number)?,
            };
            let mut sampled = Sampled::new(source, program);
            sampled.counters = sampled.open_on(scope, online)?;
            events.push(sampled);
        }
        Ok(Self {
            events,
            scale: 1.0,
            ran_before: [0; 2],
        })
    }

    /// Starts sampling.
    pub(super) fn enable(&self) -> anyhow::Result<()> {
        let used = || self.events.iter().filter(|event| event.is_used);
        let counters = used().flat_map(|event| &event.counters);
        for counter in counters.filter(|counter| !counter.has_ended()) {
            counter.perf.enable().context("failed to start a perf event")?;
        }
        // An event that cannot have its counter is reported at once, not at the end.
        for sampled in used() {
            for counter in &sampled.counters {
                let read = counter.read();
                if read.is_err_and(|error| error.kind() == ErrorKind::UnexpectedEof) {
                    let why = no_counter(&counter.perf, &sampled.source);
                    bail!(Advised::new(why, Advice::SampleTheClock));
                }
            }
        }
        Ok(())
    }

    /// Opens the counters of a CPU, disabled.
    pub(super) fn open_on(&mut self, scope: &Scope, cpu: u32) -> anyhow::Result<()> {
        for event in self.events.iter_mut().filter(|event| event.is_used) {
            let opened = event.open_on(scope, &[cpu])?;
            event.counters.extend(opened);
        }
        Ok(())
    }

    /// Starts the counters of a CPU.
    pub(super) fn enable_on(&self, cpu: u32) -> anyhow::Result<()> {
        let used = self.events.iter().filter(|event| event.is_used);
        let counters = used.flat_map(|event| &event.counters);
        let mut of_cpu = counters.filter(|it| it.perf.cpu() == Some(cpu) && !it.has_ended());
        of_cpu.try_for_each(|counter| counter.perf.enable().context("failed to start a perf event"))
    }

    /// Leaves the counters of a CPU that went offline as they are.
    pub(super) fn leave(&mut self, cpu: u32) {
        let counters = self.events.iter_mut().flat_map(|event| &mut event.counters);
        let of_cpu = counters.filter(|it| it.perf.cpu() == Some(cpu));
        of_cpu.for_each(Sampler::leave);
    }

    /// Whether there is a counter for each CPU, rather than for each task.
    pub(super) fn is_on_cpus(&self) -> bool {
        let mut counters = self.events.iter().flat_map(|event| &event.counters);
        counters.all(|counter| counter.perf.cpu().is_some())
    }

    /// The period of each event, by number; 1 where the kernel chooses it.
    pub(super) fn periods(&self) -> Vec<u64> {
        self.events.iter().map(Sampled::nominal_period).collect()
    }

    /// Changes the periods a little while the events run.
    pub(super) fn vary(&mut self) -> anyhow::Result<()> {
        let used = self.events.iter_mut().filter(|event| event.is_used);
        for counter in used.flat_map(|event| &mut event.counters) {
            counter
                .vary()
                .context("failed to change the period of a perf event")?;
        }
        Ok(())
    }

    /// Sets the periods to those of the start times `scale`. To be called after [`Self::take_totals`], while the events
    /// are still disabled.
    pub(super) fn set_scale(&mut self, scale: f64) -> anyhow::Result<()> {
        for event in self.events.iter_mut().filter(|event| event.is_used) {
            let Period::Fixed(period) = event.source.request.period else {
                continue;
            };
            let period = scaled(period, scale * event.part);
            for counter in &mut event.counters {
                counter
                    .set_period(period)
                    .context("failed to set the period of a perf event")?;
            }
            event.period = Period::Fixed(period);
        }
        self.scale = scale;
        Ok(())
    }

    /// Whether periods can be set: no event has its period from the kernel, and none follows tasks.
    pub(super) fn is_adaptable(&self) -> bool {
        let mut counters = self.events.iter().flat_map(|event| &event.counters);
        counters.all(Sampler::is_adaptable)
    }

    /// The period of each clock event, by number. The kernel gives the samples of a clock the period that the event was opened
    /// with (kernel/events/core.c, `perf_swevent_init_hrtimer` sets `last_period` once).
    pub(super) fn clock_periods(&self) -> Vec<Option<u64>> {
        let period = |event: &Sampled| match (event.source.unit, event.period) {
            (EventUnit::Nanoseconds, Period::Fixed(period)) => Some(period),
            _ => None,
        };
        self.events.iter().map(period).collect()
    }

    /// Runs of the programs of each event so far: samples, and their run time by the kernel's measure.
    pub(super) fn runs(&self, cpus: &Cpus) -> Vec<Runs> {
        let numbers = self.events.iter().zip(0usize..);
        let runs = numbers.map(|(event, number)| Runs {
            has_stack: event.has_stack(),
            samples: sum(&cpus.stats(number)).runs,
            // Without the sysctl both stay 0.
            measured: program_runs(event.program.as_fd()).unwrap_or_default(),
        });
        runs.collect()
    }

    /// Whether the samples of the event with this number carry branch stacks.
    pub(super) fn has_stack(&self, number: u32) -> bool {
        let event = usize::try_from(number)
            .ok()
            .and_then(|number| self.events.get(number));
        event.is_some_and(Sampled::has_stack)
    }

    /// Whether a sampled event counts executions, rather than time.
    pub(super) fn has_executions(&self) -> bool {
        self.events.iter().any(Sampled::counts_executions)
    }

    /// What the samples with branch stacks brought so far.
    pub(super) fn stacks_seen(&self, cpus: &Cpus) -> StacksSeen {
        let numbers = self.events.iter().zip(0usize..);
        let with_stacks = numbers.filter(|(event, _)| event.has_stack());
        let stats = with_stacks.map(|(_, number)| sum(&cpus.stats(number)));
        seen(&stats.fold(EventStats::default(), EventStats::plus))
    }

    /// How long a PMU sampled, in ns summed over its CPUs, by its event for which that is longest.
    pub(super) fn enabled_on(&self, kind: u32, events: &[Event]) -> u64 {
        let sampled = self.events.iter().zip(events);
        let of_pmu = sampled.filter(|(sampled, _)| sampled.source.request.kind == kind);
        let enabled = of_pmu.map(|(_, event)| event.counters.iter().map(|it| it.enabled).sum());
        enabled.max().unwrap_or(0)
    }

    /// Stops the events with branch stacks for good.
    pub(super) fn stop_stacks(&mut self) -> anyhow::Result<()> {
        let mut with_stacks = self.events.iter_mut().filter(|event| event.has_stack());
        with_stacks.try_for_each(|event| {
            event.is_used = false;
            event.stop()
        })
    }

    /// Stops all events.
    pub(super) fn stop(&self) -> anyhow::Result<()> {
        self.events.iter().try_for_each(Sampled::stop)
    }

    /// What the events counted since the last call, and what of their samples was lost. To be called while they are
    /// disabled.
    pub(super) fn take_totals(&mut self, cpus: &Cpus, stacks: Option<&Stacks>) -> anyhow::Result<Totals> {
        let mut totals = Totals::default();
        self.ran_before = self.ran();
        for (sampled, number) in self.events.iter_mut().zip(0u32..) {
            let by_cpu = sampled.take_stats(cpus.stats(number as usize));
            let stats = sum(&by_cpu);
            let full = match sampled.source.request.stack {
                Some(_) => Loss::StacksFull,
                None => Loss::CountsFull,
            };
            totals.losses.add(full, stats.full);
            let of_stacks = stacks.map(|stacks| stacks.stats(number));
            let of_stacks = sampled.take_stacks(of_stacks.unwrap_or_default());
            add_losses(&mut totals.losses, &stats, &of_stacks);
            let counters = sampled.take_counts(&by_cpu, &mut totals.notes)?;
            let period = sampled.take_period();
            totals.events.push(Event {
                name: sampled.source.name.clone(),
                unit: sampled.source.unit,
                near_only: sampled.source.near_only,
                ring: sampled.ring(),
                branch_stack: sampled.source.request.stack.is_some(),
                precise: sampled.source.request.precise,
                period,
                runs: stats.runs,
                counters,
            });
        }
        Ok(totals)
    }

    /// Whether each ring has branch stacks by an event of its own.
    pub(crate) fn has_rings_apart(&self) -> bool {
        self.events.iter().any(|event| event.ring().is_some())
    }

    /// Sets the period of each ring with an event of its own by its activity since totals were taken last, while the
    /// events run.
    pub(crate) fn share_out(&mut self) -> anyhow::Result<()> {
        let [kernel, user] = self.ran_since();
        let scale = self.scale;
        for event in self.events.iter_mut().filter(|event| event.is_adaptable()) {
            let own = match event.ring() {
                Some(Ring::Kernel) => kernel,
                Some(Ring::User) => user,
                None => continue,
            };
            let wanted = part_of_period(own, kernel.saturating_add(user), event.of_both());
            if let Some(part) = wanted.filter(|part| is_off(*part, event.part)) {
                event.set_part(part, scale)?;
            }
        }
        Ok(())
    }

    /// Taken branches of the kernel and of user code since totals were taken last, of events that count one ring.
    fn ran_since(&self) -> [u64; 2] {
        let ran = self.ran();
        [0, 1].map(|ring| ran[ring].saturating_sub(self.ran_before[ring]))
    }

    /// The same since the events were opened. What lost its counter is reported when totals are taken.
    pub(super) fn ran(&self) -> [u64; 2] {
        let mut ran = [0_u64; 2];
        for event in self.events.iter().filter(|event| event.is_used) {
            let [kernel, user] = &mut ran;
            let of_ring = match event.ring() {
                Some(Ring::Kernel) => kernel,
                Some(Ring::User) => user,
                None => continue,
            };
            let counts = event.counters.iter().filter_map(|counter| counter.read().ok());
            *of_ring = counts.fold(*of_ring, |sum, counter| sum.saturating_add(counter.count));
        }
        ran
    }
}

/// What the samples of events with branch stacks brought, by their counters.
const fn seen(stats: &EventStats) -> StacksSeen {
    /// A stack may be empty by chance, and what is done about empty ones is done for the rest of the run.
    const ENOUGH: u64 = 16;

    if stats.no_stack < stats.runs {
        StacksSeen::Filled
    } else if stats.runs < ENOUGH {
        StacksSeen::NotYet
    } else {
        StacksSeen::Empty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_empty_stacks_are_no_reason_to_give_up() {
        let stats = |runs, no_stack| EventStats {
            runs,
            no_stack,
            ..EventStats::default()
        };
        assert_eq!(seen(&stats(0, 0)), StacksSeen::NotYet);
        assert_eq!(seen(&stats(3, 3)), StacksSeen::NotYet);
        assert_eq!(seen(&stats(3, 2)), StacksSeen::Filled);
        assert_eq!(seen(&stats(90, 90)), StacksSeen::Empty);
    }
}
