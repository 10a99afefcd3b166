//! Which events of a run serve which estimate, and what the figures then are.
//!
//! Paper section V.A: the eventing IPs of retired instructions are EBS data, the branch stacks of retired taken branches
//! are LBR data; other combinations are read for what they are worth, and the unit says it.
//! In falling order of preference:
//!
//! 1. retired instructions as EBS, branch stacks of taken branches as LBR, or both together: executions;
//! 2. branch stacks that another event triggered, alone: they weigh code by that event;
//! 3. micro-operations, cycles, nanoseconds, or anything else as EBS, alone.
//!
//! What stands lower in the list is not mixed in: its scale is another one.

use super::Unit;
use crate::snapshot::{Event, EventIdx, EventUnit, Snapshot};

/// The events that an estimate uses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Roles {
    /// Events whose eventing IPs are used.
    pub ebs: Vec<EventIdx>,
    /// Events whose branch stacks are used.
    pub lbr: Vec<EventIdx>,
    /// What the figures are.
    pub unit: Unit,
}

/// Chooses the events of a snapshot.
///
/// Events of one unit serve together where no CPU has two of them, as on processors with two kinds of cores;
/// otherwise the first in the order of the run counts, and the others would count the same executions again.
pub fn roles(snapshot: &Snapshot) -> Roles {
    let events = &snapshot.run.events;
    let sampled = |idx: EventIdx| {
        snapshot
            .intervals
            .iter()
            .any(|i| i.ips.iter().any(|c| c.event == idx))
    };
    let stacked = |idx: EventIdx| {
        snapshot
            .intervals
            .iter()
            .any(|i| i.streams.iter().any(|c| c.event == idx))
    };
    let with_ips = |unit| disjoint(events, |event, idx| event.unit == unit && sampled(idx));
    let with_stacks = |unit| disjoint(events, |event, idx| event.unit == unit && stacked(idx));

    let ebs = with_ips(EventUnit::Instructions);
    let lbr = with_stacks(EventUnit::TakenBranches);
    if !(ebs.is_empty() && lbr.is_empty()) {
        return Roles {
            ebs,
            lbr,
            unit: Unit::Executions,
        };
    }
    let others = [
        EventUnit::Instructions,
        EventUnit::MicroOps,
        EventUnit::Cycles,
        EventUnit::Nanoseconds,
        EventUnit::Other,
    ];
    let first = |serve: &dyn Fn(EventUnit) -> Vec<EventIdx>| {
        others
            .iter()
            .map(|unit| (*unit, serve(*unit)))
            .find(|(_, events)| !events.is_empty())
    };
    if let Some((_, lbr)) = first(&with_stacks) {
        return Roles {
            ebs: Vec::new(),
            lbr,
            unit: Unit::EventWeightedSamples,
        };
    }
    match first(&with_ips) {
        Some((unit, ebs)) => Roles {
            ebs,
            lbr: Vec::new(),
            unit: sample_unit(unit),
        },
        None => Roles {
            ebs: Vec::new(),
            lbr: Vec::new(),
            unit: idle_unit(events),
        },
    }
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

/// The wanted events, without those that share a CPU with an earlier one.
fn disjoint(events: &[Event], wanted: impl Fn(&Event, EventIdx) -> bool) -> Vec<EventIdx> {
    let mut chosen: Vec<(EventIdx, &Event)> = Vec::new();
    for (event, idx) in events.iter().zip((0u32..).map(EventIdx)) {
        if wanted(event, idx) && chosen.iter().all(|(_, other)| apart(event, other)) {
            chosen.push((idx, event));
        }
    }
    chosen.into_iter().map(|(idx, _)| idx).collect()
}

/// Whether two events are known to have counted on different CPUs.
fn apart(a: &Event, b: &Event) -> bool {
    let known = |event: &Event| !event.counters.is_empty() && event.counters.iter().all(|c| c.cpu.is_some());
    let shared = a
        .counters
        .iter()
        .any(|c| b.counters.iter().any(|d| c.cpu == d.cpu));
    known(a) && known(b) && !shared
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Va;
    use crate::snapshot::run::Counter;
    use crate::snapshot::{Interval, IpCount, ProcessIdx, StreamCount};

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

    /// A run in which every event has IPs, and those of `stacked` have streams.
    fn snapshot(events: Vec<Event>, stacked: &[u32]) -> Snapshot {
        let process = ProcessIdx(0);
        let ip = |event| IpCount {
            event,
            process,
            ip: Va(0),
            exact: true,
            hits: 1,
            weight: 1,
        };
        let stream = |event| {
            let event = EventIdx(event);
            StreamCount {
                event,
                process,
                start: Va(0),
                end: Va(0),
                source: None,
                hits: 1,
                weight: 1.0,
                cycles: None,
            }
        };
        let ips = (0u32..).map(EventIdx).take(events.len()).map(ip).collect();
        let streams = stacked.iter().copied().map(stream).collect();
        let mut snapshot = Snapshot::default();
        snapshot.run.events = events;
        snapshot.intervals = vec![Interval {
            ips,
            streams,
            ..Interval::default()
        }];
        snapshot
    }

    #[test]
    fn executions_win_over_time() {
        let events = vec![
            event(EventUnit::Nanoseconds, 0),
            event(EventUnit::Instructions, 0),
            event(EventUnit::TakenBranches, 0),
        ];
        let roles = roles(&snapshot(events, &[2]));
        assert_eq!(
            roles,
            Roles {
                ebs: vec![EventIdx(1)],
                lbr: vec![EventIdx(2)],
                unit: Unit::Executions
            }
        );
    }

    #[test]
    fn events_of_one_unit_serve_together_only_on_different_cpus() {
        let both = vec![
            event(EventUnit::Instructions, 0),
            event(EventUnit::Instructions, 1),
        ];
        assert_eq!(roles(&snapshot(both, &[])).ebs, [EventIdx(0), EventIdx(1)]);
        let same = vec![
            event(EventUnit::Instructions, 0),
            event(EventUnit::Instructions, 0),
        ];
        assert_eq!(roles(&snapshot(same, &[])).ebs, [EventIdx(0)]);
    }

    #[test]
    fn stacks_of_a_cycles_event_are_no_executions() {
        let roles = roles(&snapshot(vec![event(EventUnit::Cycles, 0)], &[0]));
        assert_eq!(roles.unit, Unit::EventWeightedSamples);
        assert_eq!((roles.ebs.len(), roles.lbr.len()), (0, 1));
    }

    #[test]
    fn a_clock_alone_weighs_by_time() {
        assert_eq!(
            roles(&snapshot(vec![event(EventUnit::Nanoseconds, 0)], &[])).unit,
            Unit::TimeWeightedSamples
        );
    }
}
