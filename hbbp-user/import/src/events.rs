//! What of a recording serves: branch stacks as LBR data, addresses of an instructions event as EBS data.
//!
//! Paper section V.A. All other samples are named and left out; where there is nothing better, samples of a clock or
//! of cycles serve as what they are.

use super::attr::intel_unit;
use super::count::Use;
use super::error::ImportError;
use super::header::Header;
use hbbp_model::snapshot::run::Period;
use hbbp_model::snapshot::{Event, EventUnit};

/// What serves of each event, and what the reader of the result must know.
#[derive(Debug, Default)]
pub struct Choice {
    /// For each event.
    pub uses: Vec<Use>,
    /// Sentences.
    pub notes: Vec<String>,
}

impl Header {
    /// The events as a snapshot states them; `n_samples` are their samples.
    pub fn describe(&self, n_samples: &[u64]) -> Result<Vec<Event>, ImportError> {
        let counted = self
            .events
            .iter()
            .zip(n_samples.iter().copied().chain(std::iter::repeat(0)));
        let describe = |(recorded, runs): (&super::RecordedEvent, u64)| {
            let attr = &recorded.attr;
            let name = if recorded.name.is_empty() {
                attr.name(&self.pmus)
            } else {
                recorded.name.clone()
            };
            // Events without samples may hold what they like.
            let branch_stack = 0 < runs && attr.branch_stack(&name)?;
            let (precise, period) = (attr.precise, attr.period);
            Ok(Event {
                unit: attr.unit(&self.pmus),
                near_only: attr.near_only(&self.pmus),
                name,
                branch_stack,
                precise,
                period,
                runs,
                ..Event::default()
            })
        };
        counted.map(describe).collect()
    }
}

/// An event with only a name, as in texts; the name is empty if there is none.
pub fn describe_by_name(name: &str, runs: u64) -> Event {
    let shown = if name.is_empty() { "unnamed event" } else { name };
    let unit = unit_of_name(name);
    Event {
        name: shown.to_owned(),
        unit,
        period: Period::Fixed(1),
        runs,
        ..Event::default()
    }
}

fn unit_of_name(name: &str) -> EventUnit {
    let name = name.to_ascii_lowercase();
    let base = name
        .split([':', '/'])
        .find(|part| !part.is_empty() && !part.starts_with("cpu_"))
        .unwrap_or("");
    let raw = base
        .strip_prefix('r')
        .and_then(|digits| u64::from_str_radix(digits, 16).ok());
    match base {
        "cycles" | "cpu-cycles" | "ref-cycles" => EventUnit::Cycles,
        "cpu-clock" | "task-clock" => EventUnit::Nanoseconds,
        "instructions" => EventUnit::Instructions,
        _ if base.starts_with("cpu_clk_unhalted") => EventUnit::Cycles,
        _ if base.starts_with("inst_retired") => EventUnit::Instructions,
        _ if name.contains("taken") && !name.contains("not_taken") || base == "ex_ret_brn_tkn" => {
            EventUnit::TakenBranches
        }
        _ => raw.map_or(EventUnit::Other, intel_unit),
    }
}

/// Chooses what serves: events that have samples, or branch stacks of an unknown number.
pub fn choose(events: &[Event]) -> Result<Choice, ImportError> {
    let mut choice = Choice {
        uses: vec![Use::default(); events.len()],
        notes: Vec::new(),
    };
    let retired = |event: &Event| matches!(event.unit, EventUnit::Instructions | EventUnit::MicroOps);
    let mut has = |serves: &dyn Fn(&Event) -> bool, set: fn(&mut Use)| {
        let serving = events
            .iter()
            .zip(&mut choice.uses)
            .filter(|(event, _)| (0 < event.runs || event.branch_stack) && serves(event));
        serving.map(|(_, wanted)| set(wanted)).count()
    };
    // Several clocks count the same time: the one with the most samples is used.
    let clocks = events.iter().filter(|event| event.unit == EventUnit::Nanoseconds);
    let clock = clocks.max_by_key(|event| event.runs).map(|event| &event.name);
    let is_used = |event: &Event| event.unit != EventUnit::Nanoseconds || Some(&event.name) == clock;
    let n_stacks = has(&|event| event.branch_stack, |wanted| wanted.stacks = true);
    let n_retired = has(&retired, |wanted| wanted.ips = true);
    if n_stacks == 0 && n_retired == 0 {
        let by_time = [EventUnit::Cycles, EventUnit::Nanoseconds].iter().any(|unit| {
            0 < has(&|event| event.unit == *unit && is_used(event), |wanted| {
                wanted.ips = true;
            })
        });
        if !by_time {
            return Err(ImportError::Empty);
        }
    }
    for (event, wanted) in events.iter().zip(&choice.uses) {
        choice.notes.extend(note(event, *wanted));
    }
    Ok(choice)
}

fn note(event: &Event, wanted: Use) -> Option<String> {
    let Event { name, unit, runs, .. } = event;
    match (wanted, unit) {
        (Use { ips: true, .. }, EventUnit::Cycles | EventUnit::Nanoseconds) => Some(format!(
            "no branch stacks and no instructions event: samples of {name} show where time was spent, not \
             what was executed"
        )),
        (
            Use {
                ips: false,
                stacks: false,
            },
            _,
        ) if 0 < *runs => Some(format!(
            "ignored {runs} samples of {name}: they have no branch stacks, and samples of another event serve"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(unit: EventUnit, branch_stack: bool, runs: u64) -> Event {
        Event {
            name: format!("{unit:?}"),
            unit,
            branch_stack,
            runs,
            ..Event::default()
        }
    }

    fn uses(events: &[Event]) -> (Vec<(bool, bool)>, usize) {
        let choice = choose(events).unwrap();
        (
            choice
                .uses
                .iter()
                .map(|wanted| (wanted.ips, wanted.stacks))
                .collect(),
            choice.notes.len(),
        )
    }

    #[test]
    fn stacks_are_lbr_data_and_instructions_are_ebs_data() {
        let paper = [
            event(EventUnit::Instructions, true, 5),
            event(EventUnit::TakenBranches, true, 5),
        ];
        assert_eq!(uses(&paper), (vec![(true, true), (false, true)], 0));
        let cycles = [
            event(EventUnit::Cycles, true, 5),
            event(EventUnit::Other, false, 5),
        ];
        assert_eq!(
            uses(&cycles),
            (vec![(false, true), (false, false)], 1),
            "the other one is named"
        );
    }

    #[test]
    fn time_serves_where_there_is_nothing_better() {
        let clock = event(EventUnit::Nanoseconds, false, 5);
        assert_eq!(uses(std::slice::from_ref(&clock)), (vec![(true, false)], 1));
        let mut second = event(EventUnit::Nanoseconds, false, 4);
        second.name = "task-clock".to_owned();
        assert_eq!(
            uses(&[second, clock.clone()]),
            (vec![(false, false), (true, false)], 2)
        );
        assert_eq!(
            uses(&[clock, event(EventUnit::Instructions, false, 5)]).0,
            [(false, false), (true, false)]
        );
        assert!(matches!(
            choose(&[event(EventUnit::Other, false, 5)]),
            Err(ImportError::Empty)
        ));
        assert!(matches!(
            choose(&[event(EventUnit::Instructions, false, 0)]),
            Err(ImportError::Empty)
        ));
    }

    #[test]
    fn units_of_names() {
        for (name, unit) in [
            ("cycles:u", EventUnit::Cycles),
            ("br_inst_retired.near_taken:upp", EventUnit::TakenBranches),
            ("cpu_core/br_inst_retired.near_taken/u", EventUnit::TakenBranches),
            ("br_inst_exec:taken", EventUnit::TakenBranches),
            ("br_inst_retired.not_taken", EventUnit::Other),
            ("cpu_atom/instructions/", EventUnit::Instructions),
            ("r20c4:pp", EventUnit::TakenBranches),
            ("inst_retired.prec_dist", EventUnit::Instructions),
            ("", EventUnit::Other),
        ] {
            assert_eq!(unit_of_name(name), unit, "{name}");
        }
    }
}
