//! Refuses sums of runs whose figures are not of one unit.

use std::collections::BTreeSet;

use anyhow::bail;

use hbbp_estimate::EventAssignment;
use hbbp_model::printable::harmless;
use hbbp_model::snapshot::{Event, EventUnit, Run};

/// What the figures of a run count.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Counted {
    noun: &'static str,
    /// Of samples, what their events count: samples of cycles and of nanoseconds have no sum either.
    of: BTreeSet<String>,
}

impl Counted {
    fn of(run: &Run, assignment: &EventAssignment) -> Self {
        let events = assignment
            .ebs
            .iter()
            .filter_map(|idx| run.events.get(idx.0 as usize));
        let is_samples = assignment.unit.is_samples();
        Self {
            noun: assignment.unit.noun(),
            of: events.filter(|_| is_samples).map(quantity).collect(),
        }
    }

    /// Whether figures have a sum with others. An idle run has no samples, whatever they would be of.
    fn adds_to(&self, other: &Self) -> bool {
        self.noun == other.noun && (self.of == other.of || self.of.is_empty() || other.of.is_empty())
    }

    fn in_words(&self) -> String {
        let of: Vec<&str> = self.of.iter().map(String::as_str).collect();
        match of.as_slice() {
            [] => self.noun.to_owned(),
            of => format!("{} of {}", self.noun, of.join(", ")),
        }
    }
}

/// What an event counts.
fn quantity(event: &Event) -> String {
    match event.unit {
        EventUnit::Nanoseconds => "a clock".to_owned(),
        EventUnit::Cycles => "cycles".to_owned(),
        EventUnit::MicroOps => "micro-operations".to_owned(),
        EventUnit::Instructions | EventUnit::TakenBranches | EventUnit::Other => harmless(&event.name),
    }
}

/// Refuses runs whose figures have no sum; each comes with the events that its figures are made of.
pub(super) fn check_one_unit<'a>(
    runs: impl IntoIterator<Item = (&'a Run, &'a EventAssignment)>,
) -> anyhow::Result<()> {
    let mut first: Option<(&Run, Counted)> = None;
    for (run, assignment) in runs {
        let counted = Counted::of(run, assignment);
        match &first {
            Some((other, of_other)) if !counted.adds_to(of_other) => bail!(
                "runs of different units have no sum: {} has {}, {} has {}; take runs of one unit, as with --since and --until",
                harmless(&other.host.name),
                of_other.in_words(),
                harmless(&run.host.name),
                counted.in_words()
            ),
            // The first one with samples decides.
            Some((_, of_other)) if !of_other.of.is_empty() || counted.of.is_empty() => {}
            _ => first = Some((run, counted)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_estimate::Unit;
    use hbbp_model::snapshot::{EventIdx, HostFacts};

    fn run(unit: EventUnit) -> Run {
        Run {
            host: HostFacts {
                name: format!("{unit:?}"),
                ..HostFacts::default()
            },
            events: vec![Event {
                unit,
                ..Event::default()
            }],
            ..Run::default()
        }
    }

    fn assignment(unit: Unit, n_events: u32) -> EventAssignment {
        EventAssignment {
            ebs: (0..n_events).map(EventIdx).collect(),
            lbr: Vec::new(),
            unit,
        }
    }

    #[test]
    fn time_and_executions_have_no_sum_nor_two_kinds_of_time() {
        let clock = (
            run(EventUnit::Nanoseconds),
            assignment(Unit::TimeWeightedSamples, 1),
        );
        let cycles = (run(EventUnit::Cycles), assignment(Unit::TimeWeightedSamples, 1));
        let idle = (
            run(EventUnit::Nanoseconds),
            assignment(Unit::TimeWeightedSamples, 0),
        );
        let retired = (run(EventUnit::Instructions), assignment(Unit::Executions, 1));
        let check = |runs: &[&(Run, EventAssignment)]| {
            let checked = check_one_unit(runs.iter().map(|(run, assignment)| (run, assignment)));
            checked.err().map(|error| error.to_string())
        };
        assert_eq!(check(&[]), None);
        assert_eq!(check(&[&clock, &clock, &idle]), None);
        assert_eq!(check(&[&idle, &cycles]), None);
        for (runs, said) in [
            (
                [&clock, &retired],
                "Nanoseconds has time-weighted samples of a clock, Instructions has estimated executions",
            ),
            (
                [&cycles, &clock],
                "Cycles has time-weighted samples of cycles, Nanoseconds has time-weighted samples of a clock",
            ),
            (
                [&idle, &retired],
                "Nanoseconds has time-weighted samples, Instructions has estimated executions",
            ),
        ] {
            let error = check(&runs).unwrap();
            assert!(error.contains(said), "{error}");
        }
        assert!(check(&[&idle, &clock, &cycles]).is_some());
    }
}
