//! Retired instructions and taken branches of the whole run, as the two events counted them.
//!
//! Every taken branch ends a stream, so that there are as many as were counted, and both counts together say how long they are in the
//! mean. Nothing in that is left to chance, and no bias of branch stacks is in it: where stacks are read late, streams before slow code
//! are too many, and where these are short, 5 % of all instructions were missing (the emulated machine;
//! kernel-tests/results/totals.txt).

use std::collections::BTreeSet;

use super::near::{ends_near, near_only};
use super::rings::unknown;
use super::sources::stream::Stream;
use super::sources::streams::Judged;
use super::{EventAssignment, Sampled, units};
use crate::sums::over;
use hbbp_code::blocks::BlockMap;
use hbbp_code::locate::Located;
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::run::Counter;
use hbbp_model::snapshot::{Event, EventIdx, EventUnit};

/// How far off the quotient of both counts may be. Counters of Intel count an instruction too many at each interrupt. Stacks lose
/// what the kernel's filter takes out. Some time also passes between reading one counter and the next. Half of it and twice as much
/// changed mean errors on the emulated machine by at most 0.03 points, five times as much by 0.2.
const FLOOR: f64 = 0.001;

/// The part of what is not known that it may differ by from what is: streams of the emulated machine are up to a tenth shorter than
/// all are, before they are balanced.
const OF_UNKNOWN: f64 = 0.1;

/// The part of its time by which one event may have counted longer than the other: they are opened one after the other. What ran in it
/// is not known, so that the counts are as uncertain.
const APART: f64 = 1e-2;

/// What was counted of known code.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Totals {
    /// Taken branches.
    pub(super) taken: f64,
    /// Retired instructions for each of them, of the code that was sampled.
    pub(super) per_branch: f64,
    /// Its relative standard error.
    pub(super) off: f64,
    /// Whether far branches are not among the taken branches.
    pub(super) near_only: bool,
}

impl Totals {
    /// What the events counted; `None` if one of them was not counted exactly, or they did not count the same.
    pub(super) fn new(
        events: &[Event],
        assignment: &EventAssignment,
        sampled: &Sampled,
        judged: &Judged,
        located: &Located,
    ) -> Option<Self> {
        let (ebs, lbr) = (assignment.ebs.as_slice(), assignment.lbr.as_slice());
        let apart = apart(events, ebs, lbr)?;
        let resolved = sampled.resolved.of_events(ebs).total() as f64;
        let tallies = [&sampled.unresolved, &located.unresolved];
        let unresolved: u64 = tallies.iter().map(|tally| tally.of_events(ebs).total()).sum();
        let accepted = judged.accepted.of_events(lbr).total() as f64;
        let unknown = unknown(lbr, [&judged.discarded, &located.discarded]).total() as f64;
        let known = over(resolved, resolved + unresolved as f64);
        let known_streams = over(accepted, accepted + unknown);
        let instructions = known * units(events, ebs, EventUnit::Instructions);
        let taken = known_streams * units(events, lbr, EventUnit::TakenBranches);
        let (of_instructions, of_taken) = (Reached::of(events, ebs), Reached::of(events, lbr));
        (0.0 < instructions && 0.0 < taken).then(|| Self {
            taken,
            per_branch: instructions * of_instructions.share / (taken * of_taken.share),
            off: FLOOR
                .hypot(apart)
                .hypot(of_instructions.off)
                .hypot(of_taken.off)
                .hypot(OF_UNKNOWN * (2.0 - known - known_streams)),
            near_only: near_only(events, lbr),
        })
    }

    /// Less a share of the code, which samples show and streams do not.
    pub(super) fn without(self, share: f64) -> Self {
        Self {
            taken: self.taken * (1.0 - share),
            ..self
        }
    }

    /// Scales the streams so that they end in as many taken branches as were counted. A stack represents a period of these, but far
    /// branches share in it where the event does not count them: of a load of system calls, streams were 1.3 % too few.
    pub(super) fn set_right(self, streams: &mut [Stream], map: &BlockMap) {
        let counted = |stream: &&Stream| !self.near_only || ends_near(stream, map);
        let sum: f64 = streams.iter().filter(counted).map(|stream| stream.weight).sum();
        if 0.0 < sum {
            streams
                .iter_mut()
                .for_each(|stream| stream.weight *= self.taken / sum);
        }
    }
}

/// The part of what events counted that was sampled.
///
/// Counters go on while the kernel skips the programs of events, as it does on a CPU that is in a system call on maps
/// (`bpf_prog_active`, kernel/bpf/syscall.c). What runs then is our own reading of maps, mostly: short streams, so that all code has
/// other instructions for each taken branch than the sampled code. Of a run of 2.7 s on the emulated machine 0.8 % of the instructions
/// and 1.5 % of the taken branches were not sampled: true streams were called 0.6 % too long.
struct Reached {
    share: f64,
    /// Relative standard deviation of the share, if samples are lost independently.
    off: f64,
}

impl Reached {
    /// All, where it is not known how many samples were due. Events of the rings may have periods of their own, so that a sample
    /// weighs as its period does.
    fn of(events: &[Event], served: &[EventIdx]) -> Self {
        let events = served.iter().filter_map(|event| events.get(event.0 as usize));
        let known = events.filter_map(|event| Some((event.runs, event.due()?, event.mean_period()? as f64)));
        let (mut reached, mut due, mut variance, mut unit) = (0.0, 0.0, 0.0, None);
        for (runs, of_event, period) in known {
            let weight = period / *unit.get_or_insert(period);
            reached += weight * runs.min(of_event) as f64;
            due += weight * of_event as f64;
            variance += weight * weight * of_event.saturating_sub(runs) as f64;
        }
        match 0.0 < reached {
            true => Self {
                share: reached / due,
                off: variance.sqrt() / reached,
            },
            false => Self { share: 1.0, off: 0.0 },
        }
    }
}

/// By what part of their time one of the events counted longer; `None` unless they counted in the same rings of the same CPUs, or tasks, all
/// of the time.
fn apart(events: &[Event], ebs: &[EventIdx], lbr: &[EventIdx]) -> Option<f64> {
    let of = |served: &[EventIdx]| {
        let events = served.iter().filter_map(|event| events.get(event.0 as usize));
        let mut places = BTreeSet::new();
        let (mut enabled, mut n, mut is_shared) = (0.0, 0.0, false);
        for event in events {
            let rings = [Ring::Kernel, Ring::User];
            for ring in rings
                .into_iter()
                .filter(|ring| event.ring.is_none_or(|own| own == *ring))
            {
                places.extend(event.counters.iter().map(|counter| (counter.cpu, ring)));
            }
            enabled += event
                .counters
                .iter()
                .map(|counter| counter.enabled as f64)
                .sum::<f64>();
            n += event.counters.len() as f64;
            is_shared |= event.counters.iter().any(Counter::is_multiplexed);
        }
        (places, over(enabled, n), is_shared)
    };
    let ((places, enabled, shared), (of_stacks, also, also_shared)) = (of(ebs), of(lbr));
    let apart = over((enabled - also).abs(), enabled.max(also));
    let same = !places.is_empty() && places == of_stacks && !shared && !also_shared;
    (same && apart <= APART).then_some(apart)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unit;
    use hbbp_code::locate::{Discard, Unresolved};
    use hbbp_model::snapshot::Period;

    fn counter(cpu: u32, count: u64) -> Counter {
        Counter {
            cpu: Some(cpu),
            count,
            enabled: 1_000_000,
            running: 1_000_000,
            ..Counter::default()
        }
    }

    fn events() -> [Event; 2] {
        let event = |unit, counters| Event {
            unit,
            near_only: true,
            counters,
            ..Event::default()
        };
        [
            event(
                EventUnit::Instructions,
                vec![counter(0, 4_000), counter(1, 6_000)],
            ),
            event(EventUnit::TakenBranches, vec![counter(0, 500), counter(1, 500)]),
        ]
    }

    fn totals(events: &[Event], unresolved: u64, unknown: u64) -> Option<Totals> {
        let assignment = EventAssignment {
            ebs: vec![EventIdx(0)],
            lbr: vec![EventIdx(1)],
            unit: Unit::Executions,
        };
        let (mut sampled, mut judged, mut located) =
            (Sampled::default(), Judged::default(), Located::default());
        sampled.resolved.add(EventIdx(0), (), Ring::User, 90);
        located
            .unresolved
            .add(EventIdx(0), Unresolved::NoText, Ring::Kernel, unresolved);
        judged.accepted.add(EventIdx(1), (), Ring::User, 80);
        judged
            .discarded
            .add(EventIdx(1), Discard::NoText, Ring::Kernel, unknown);
        // Others bear the weight of those that cannot have run.
        judged
            .discarded
            .add(EventIdx(1), Discard::Backward, Ring::User, 50);
        Totals::new(events, &assignment, &sampled, &judged, &located)
    }

    #[test]
    fn both_counts_are_of_known_code() {
        let all = totals(&events(), 0, 0).unwrap();
        assert_eq!(
            (all.taken, all.per_branch, all.off, all.near_only),
            (1_000.0, 10.0, FLOOR, true)
        );
        // One counted half a percent longer.
        let mut longer = events();
        for counter in &mut longer[1].counters {
            (counter.enabled, counter.running) = (995_000, 995_000);
        }
        let apart = totals(&longer, 0, 0).unwrap();
        assert!((apart.off - FLOOR.hypot(0.005)).abs() < 1e-9, "{}", apart.off);
        // A tenth of the instructions and half of the taken branches were not sampled; counts must match all of them.
        let mut skipped = events();
        for (event, runs) in skipped.iter_mut().zip([9_000, 500]) {
            (event.runs, event.period) = (runs, Period::Fixed(1));
        }
        let sampled = totals(&skipped, 0, 0).unwrap();
        assert_eq!((sampled.taken, sampled.per_branch), (1_000.0, 10.0 * 0.9 / 0.5));
        let chance = (1_000f64.sqrt() / 9_000.0).hypot(500f64.sqrt() / 500.0);
        assert!(
            (sampled.off - FLOOR.hypot(chance)).abs() < 1e-9,
            "{}",
            sampled.off
        );
        // A tenth of the samples and a fifth of the streams are of code that is not known.
        let part = totals(&events(), 10, 20).unwrap();
        assert!((part.per_branch - 10.0 * 0.9 / 0.8).abs() < 1e-9);
        assert!((part.off - 0.03).abs() < 1e-4, "{}", part.off);
    }

    #[test]
    fn samples_that_were_missed_weigh_as_their_periods() {
        let event = |period, due, runs| Event {
            period: Period::Fixed(period),
            counters: vec![counter(0, period * due)],
            runs,
            ..Event::default()
        };
        // Of 9,000 and 1,000 units the second event missed half.
        let reached = Reached::of(
            &[event(9, 1_000, 1_000), event(1, 1_000, 500)],
            &[EventIdx(0), EventIdx(1)],
        );
        assert!((reached.share - 0.95).abs() < 1e-12, "{}", reached.share);
        assert!(
            (reached.off - 500f64.sqrt() / 9_500.0).abs() < 1e-12,
            "{}",
            reached.off
        );
    }

    #[test]
    fn events_that_counted_other_code_say_nothing() {
        let refused = |change: &dyn Fn(&mut [Event; 2])| {
            let mut events = events();
            change(&mut events);
            assert_eq!(totals(&events, 0, 0), None, "{events:?}");
        };
        refused(&|events| events[1].ring = Some(Ring::User));
        refused(&|events| events[1].counters[1].cpu = Some(2));
        refused(&|events| events[0].counters.truncate(1));
        refused(&|events| events[0].counters[0].running = 900_000);
        refused(&|events| {
            for counter in &mut events[1].counters {
                (counter.enabled, counter.running) = (900_000, 900_000);
            }
        });
        refused(&|events| events.iter_mut().for_each(|event| event.counters.clear()));
        refused(&|events| events[0].counters = vec![counter(0, 0), counter(1, 0)]);
    }
}
