//! Which events of a run serve as EBS and as LBR, and what the estimates then are.
//!
//! Paper section V.A: the eventing IPs of retired instructions are EBS data, the branch stacks of retired taken branches
//! are LBR data. Together, or where stacks of another trigger are missing, they give executions.
//! Stacks of any other triggers give executions on a scale of their own, which does not mix with these. They serve alone,
//! all together, unless there are so few of them that samples of retired instructions have the smaller expected error.
//! Without stacks and without instructions, samples of micro-operations, cycles, time, or anything else serve as they are.

use std::collections::BTreeSet;

use hbbp_code::locate::{Located, LocatedBranch, Tally};
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::{Event, EventIdx, EventUnit, Snapshot};

/// The unit of estimates.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// Estimated executions of instructions.
    Executions,
    /// Samples of a clock or of cycles: they say where time passed, not what was executed.
    TimeWeightedSamples,
    /// Samples of an event that counts neither executions nor time, such as micro-operations: they weigh an instruction by
    /// that event.
    EventWeightedSamples,
    /// Executions on a scale of its own: of streams in branch stacks that another event than taken branches triggered. As
    /// many as streams were seen.
    RelativeExecutions,
}

/// The events that an estimate uses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EventAssignment {
    /// Events whose eventing IPs are used, sorted.
    pub ebs: Vec<EventIdx>,
    /// Events whose branch stacks are used, sorted.
    pub lbr: Vec<EventIdx>,
    /// The unit of the estimates.
    pub unit: Unit,
}

impl Unit {
    /// Whether amounts are numbers of samples, which are whole in sum.
    pub const fn is_samples(self) -> bool {
        matches!(self, Self::TimeWeightedSamples | Self::EventWeightedSamples)
    }

    /// Stable name, used in JSON.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Executions => "executions",
            Self::TimeWeightedSamples => "time_weighted_samples",
            Self::EventWeightedSamples => "event_weighted_samples",
            Self::RelativeExecutions => "relative_executions",
        }
    }

    /// What a column of such estimates is called.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Executions => "estimated executions",
            Self::TimeWeightedSamples => "time-weighted samples",
            Self::EventWeightedSamples => "event-weighted samples",
            Self::RelativeExecutions => "relative executions",
        }
    }
}

/// Average weighted error of EBS with samples without end, on the emulated machine with the skid of Ivy Bridge
/// (kernel-tests/results/accuracy.txt).
const EBS_BIAS: f64 = 0.08;

/// The same of stacks that cycles triggered: 5.7 % on the emulated machine, 2.8 % on a Skylake server.
const STACK_BIAS: f64 = 0.057;

/// Mnemonics that make up most of a mix: each has this share of the samples.
const MNEMONICS: f64 = 20.0;

/// Streams of a full stack of 32 entries: of one loop, all of them tell as much as one.
const STREAMS: f64 = 31.0;

/// Events other than retired instructions, in falling order of preference.
const OTHERS: [EventUnit; 4] = [
    EventUnit::MicroOps,
    EventUnit::Cycles,
    EventUnit::Nanoseconds,
    EventUnit::Other,
];

/// Chooses the events of a snapshot by what they brought: samples on instructions, and accepted streams.
///
/// Events of one unit serve together where no ring of a CPU has two of them, as on processors with two kinds of cores;
/// otherwise the first in the order of the run counts, and the others would count the same executions again.
pub fn assign(snapshot: &Snapshot, samples: &Tally<()>, streams: &Tally<()>) -> EventAssignment {
    let ips = snapshot.intervals.iter().flat_map(|interval| &interval.ips);
    let mut sampled: BTreeSet<EventIdx> = ips.map(|ip| ip.event).collect();
    sampled.extend(with_counts(samples));
    let stacked: BTreeSet<EventIdx> = with_counts(streams).collect();
    let with_samples = |unit| {
        disjoint(snapshot, |event, idx| {
            event.unit == unit && sampled.contains(&idx)
        })
    };
    let is_taken = |event: &Event| event.unit == EventUnit::TakenBranches;
    let taken = disjoint(snapshot, |event, idx| is_taken(event) && stacked.contains(&idx));
    let instructions = with_samples(EventUnit::Instructions);
    if taken.is_empty() {
        let events = snapshot.run.events.iter().zip((0u32..).map(EventIdx));
        let others = events.filter(|(event, idx)| !is_taken(event) && stacked.contains(idx));
        let lbr: Vec<EventIdx> = others.map(|(_, idx)| idx).collect();
        let by_stacks = expected_error(STACK_BIAS, total(streams, &lbr) / STREAMS);
        let by_samples = expected_error(EBS_BIAS, total(samples, &instructions));
        if !lbr.is_empty() && by_stacks <= by_samples {
            return EventAssignment::new(Vec::new(), lbr, Unit::RelativeExecutions);
        }
    }
    if !(instructions.is_empty() && taken.is_empty()) {
        return EventAssignment::new(instructions, taken, Unit::Executions);
    }
    let mut others = OTHERS.into_iter().map(|unit| (unit, with_samples(unit)));
    match others.find(|(_, events)| !events.is_empty()) {
        Some((unit, ebs)) => EventAssignment::new(ebs, Vec::new(), sample_unit(unit)),
        None => EventAssignment::new(Vec::new(), Vec::new(), idle_unit(&snapshot.run.events)),
    }
}

/// The average weighted error to expect of N independent samples, as a fraction.
fn expected_error(bias: f64, samples: f64) -> f64 {
    (bias * bias + MNEMONICS / samples).sqrt()
}

/// The events that have counts.
fn with_counts(tally: &Tally<()>) -> impl Iterator<Item = EventIdx> {
    let by_event = tally.by_event().into_iter();
    by_event.filter(|(_, n)| 0 < n.total()).map(|(event, _)| event)
}

/// Samples or streams of these events.
fn total(tally: &Tally<()>, events: &[EventIdx]) -> f64 {
    tally.of_events(events).total() as f64
}

/// The unit of a run without any count, so that an idle run does not claim more than a busy one.
fn idle_unit(events: &[Event]) -> Unit {
    let executions = events.iter().any(|event| event.unit.counts_executions());
    if executions {
        Unit::Executions
    } else {
        Unit::TimeWeightedSamples
    }
}

const fn sample_unit(unit: EventUnit) -> Unit {
    match unit {
        EventUnit::Instructions | EventUnit::TakenBranches => Unit::Executions,
        EventUnit::Cycles | EventUnit::Nanoseconds => Unit::TimeWeightedSamples,
        EventUnit::MicroOps | EventUnit::Other => Unit::EventWeightedSamples,
    }
}

/// The wanted events, without those that may share a ring of a CPU with an earlier one: an event whose CPUs are not known is alone.
pub fn disjoint(snapshot: &Snapshot, wanted: impl Fn(&Event, EventIdx) -> bool) -> Vec<EventIdx> {
    let mut chosen = Vec::new();
    let mut taken: BTreeSet<(u32, Ring)> = BTreeSet::new();
    for (event, idx) in snapshot.run.events.iter().zip((0u32..).map(EventIdx)) {
        if !wanted(event, idx) {
            continue;
        }
        match places(event) {
            Some(places) if places.is_disjoint(&taken) => taken.extend(places),
            None if chosen.is_empty() => return vec![idx],
            _ => continue,
        }
        chosen.push(idx);
    }
    chosen
}

/// The CPUs and rings that an event counted; `None` if the CPUs are not known.
fn places(event: &Event) -> Option<BTreeSet<(u32, Ring)>> {
    let cpus: Option<BTreeSet<u32>> = event.counters.iter().map(|counter| counter.cpu).collect();
    let cpus = cpus.filter(|cpus| !cpus.is_empty())?;
    let rings = [Ring::Kernel, Ring::User];
    let counted = rings
        .into_iter()
        .filter(|ring| event.ring.is_none_or(|own| own == *ring));
    Some(
        counted
            .flat_map(|ring| cpus.iter().map(move |cpu| (*cpu, ring)))
            .collect(),
    )
}

impl EventAssignment {
    const fn new(ebs: Vec<EventIdx>, lbr: Vec<EventIdx>, unit: Unit) -> Self {
        Self { ebs, lbr, unit }
    }

    /// Whether the eventing IPs of an event are used.
    pub fn uses_ips_of(&self, event: EventIdx) -> bool {
        self.ebs.binary_search(&event).is_ok()
    }

    /// The branches of the stacks that are used.
    pub(super) fn branches<'a>(&self, located: &'a Located) -> impl Iterator<Item = &'a LocatedBranch> {
        let branches = located.branches.iter();
        branches.filter(|branch| self.uses_stacks_of(branch.event))
    }

    /// Whether all figures are of bursts, which user code alone has.
    pub fn is_of_bursts(&self, events: &[Event]) -> bool {
        let is_of_bursts = |idx: &EventIdx| events.get(idx.0 as usize).is_some_and(Event::is_of_bursts);
        !self.lbr.is_empty() && self.lbr.iter().all(is_of_bursts)
    }

    /// Whether the branch stacks of an event are used.
    pub fn uses_stacks_of(&self, event: EventIdx) -> bool {
        self.lbr.binary_search(&event).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::snapshot::run::Counter;

    fn event(unit: EventUnit, cpu: u32) -> Event {
        let counter = Counter {
            cpu: Some(cpu),
            ..Counter::default()
        };
        Event {
            unit,
            counters: vec![counter],
            ..Event::default()
        }
    }

    /// The assignment of events, each with its samples and streams.
    fn assigned(events: &[(Event, u64, u64)]) -> EventAssignment {
        let mut snapshot = Snapshot::default();
        let (mut samples, mut streams) = (Tally::default(), Tally::default());
        for ((event, n_samples, n_streams), idx) in events.iter().zip((0u32..).map(EventIdx)) {
            snapshot.run.events.push(event.clone());
            samples.add(idx, (), Ring::User, *n_samples);
            streams.add(idx, (), Ring::User, *n_streams);
        }
        assign(&snapshot, &samples, &streams)
    }

    #[test]
    fn executions_win_over_time() {
        let assignment = assigned(&[
            (event(EventUnit::Nanoseconds, 0), 1, 0),
            (event(EventUnit::Instructions, 0), 1, 0),
            (event(EventUnit::TakenBranches, 0), 1, 1),
        ]);
        let expected = EventAssignment {
            ebs: vec![EventIdx(1)],
            lbr: vec![EventIdx(2)],
            unit: Unit::Executions,
        };
        assert_eq!(assignment, expected);
    }

    #[test]
    fn events_of_one_unit_serve_together_only_on_different_cpus() {
        let on = |cpu| (event(EventUnit::Instructions, cpu), 1, 0);
        assert_eq!(assigned(&[on(0), on(1)]).ebs, [EventIdx(0), EventIdx(1)]);
        assert_eq!(assigned(&[on(0), on(0)]).ebs, [EventIdx(0)]);
    }

    #[test]
    fn events_of_the_two_rings_serve_together() {
        let of = |ring| {
            let mut event = event(EventUnit::TakenBranches, 0);
            event.ring = ring;
            (event, 1, 31)
        };
        let (kernel, user) = (Some(Ring::Kernel), Some(Ring::User));
        assert_eq!(assigned(&[of(user), of(kernel)]).lbr, [EventIdx(0), EventIdx(1)]);
        assert_eq!(assigned(&[of(None), of(kernel)]).lbr, [EventIdx(0)]);
        assert_eq!(assigned(&[of(kernel), of(kernel)]).lbr, [EventIdx(0)]);
    }

    #[test]
    fn stacks_of_a_cycles_event_are_no_executions() {
        let assignment = assigned(&[(event(EventUnit::Cycles, 0), 1, 1)]);
        assert_eq!(assignment.unit, Unit::RelativeExecutions);
        assert_eq!((assignment.ebs.len(), assignment.lbr.len()), (0, 1));
    }

    #[test]
    fn a_clock_alone_weighs_by_time() {
        let assignment = assigned(&[(event(EventUnit::Nanoseconds, 0), 1, 0)]);
        assert_eq!(assignment.unit, Unit::TimeWeightedSamples);
    }

    #[test]
    fn stacks_of_other_triggers_win_over_few_instructions() {
        let of = |samples, streams| {
            assigned(&[
                (event(EventUnit::Cycles, 0), samples, streams),
                (event(EventUnit::Instructions, 0), samples, streams),
            ])
        };
        let both = [EventIdx(0), EventIdx(1)];
        // 62 streams and one sample, as in recordings of other tools.
        assert_eq!(
            (of(1, 31).lbr, of(1, 31).unit),
            (both.to_vec(), Unit::RelativeExecutions)
        );
        // The bias of EBS is the larger one, however many samples there are.
        assert_eq!(of(1_000_000, 310_000).lbr, both);
        // But a few stacks do not replace many samples.
        let few = of(1_000_000, 310);
        assert_eq!((few.ebs, few.unit), (vec![EventIdx(1)], Unit::Executions));
    }
}
