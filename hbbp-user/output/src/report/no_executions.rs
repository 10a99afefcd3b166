//! Why figures are not executions, and what would give them: one sentence, which is the first line of every output.

use hbbp_analysis::mix::{Estimated, Unit};
use hbbp_estimate::EventAssignment;
use hbbp_model::advice::{Advice, Wording, followed};
use hbbp_model::snapshot::{EventIdx, Run};

/// The figures of a run that are not executions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NoExecutions {
    unit: Unit,
    /// Names of the events.
    events: String,
    /// Why no executions could be sampled; empty where it is not known.
    why: String,
}

impl NoExecutions {
    /// Of a run; `None` where its figures are executions, or where it has none and nothing is known of the reason.
    pub(super) fn of(run: &Run, assignment: &EventAssignment) -> Option<Self> {
        let has_figures = !assignment.ebs.is_empty() || !assignment.lbr.is_empty();
        match assignment.unit {
            Unit::Executions | Unit::RelativeExecutions => None,
            _ if !has_figures && run.without_executions.is_empty() => None,
            unit @ (Unit::TimeWeightedSamples | Unit::EventWeightedSamples) => Some(Self {
                unit,
                events: serving(run, assignment),
                why: run.without_executions.clone(),
            }),
        }
    }

    /// Stable name of the warning, used in JSON.
    pub(super) const fn id(&self) -> &'static str {
        match self.unit {
            Unit::EventWeightedSamples => "unit.other_event",
            _ => "unit.time_only",
        }
    }

    /// The sentence, with advice in these words.
    pub(super) fn in_words(&self, wording: Wording) -> String {
        let Self { events, why, .. } = self;
        let (show, instead) = match self.unit {
            Unit::EventWeightedSamples => (
                "instructions weighted by this event, not by how often they ran",
                "instructions weighted by this event, not executions",
            ),
            _ => (
                "where time went, not how often instructions ran",
                "where time went, not executions",
            ),
        };
        let sentence = if why.is_empty() {
            format!("figures are samples of {events}: they show {show}")
        } else {
            format!("{why}: samples of {events} show {instead}")
        };
        followed(&sentence, Some(Advice::CountExecutions), wording)
    }
}

/// The sentence on an estimate; `None` where its figures are executions.
pub(super) fn without_executions(estimated: &Estimated<'_>, wording: Wording) -> Option<String> {
    let run = &estimated.snapshot.run;
    let found = NoExecutions::of(run, &estimated.counts().assignment);
    found.map(|it| it.in_words(wording))
}

/// Names of the events that figures are made of; all where they are made of none.
pub(super) fn serving(run: &Run, assignment: &EventAssignment) -> String {
    let serves = |idx: &EventIdx| assignment.uses_ips_of(*idx) || assignment.uses_stacks_of(*idx);
    let none = assignment.ebs.is_empty() && assignment.lbr.is_empty();
    let events = run.events.iter().zip((0_u32..).map(EventIdx));
    let names = events
        .filter(|(_, idx)| none || serves(idx))
        .map(|(event, _)| event.name.as_str());
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::snapshot::Event;

    fn said(unit: Unit, why: &str) -> Option<String> {
        let run = Run {
            events: vec![Event {
                name: "cpu-clock".to_owned(),
                ..Event::default()
            }],
            without_executions: why.to_owned(),
            ..Run::default()
        };
        let assignment = EventAssignment {
            ebs: vec![EventIdx(0)],
            lbr: Vec::new(),
            unit,
        };
        let found = NoExecutions::of(&run, &assignment);
        found.map(|it| it.in_words(|_| "look it up"))
    }

    #[test]
    fn the_reason_comes_before_what_it_leaves() {
        let why = "this EC2 instance (m5.large) has no PMU (use a *.metal type)";
        assert_eq!(
            said(Unit::TimeWeightedSamples, why).unwrap(),
            "this EC2 instance (m5.large) has no PMU (use a *.metal type): samples of cpu-clock show where time went, \
             not executions; look it up"
        );
        assert_eq!(
            said(Unit::TimeWeightedSamples, "").unwrap(),
            "figures are samples of cpu-clock: they show where time went, not how often instructions ran; look it up"
        );
        assert!(
            said(Unit::EventWeightedSamples, "")
                .unwrap()
                .contains("weighted by this event")
        );
        assert_eq!(said(Unit::Executions, why), None);
        assert_eq!(said(Unit::RelativeExecutions, ""), None);
    }
}
