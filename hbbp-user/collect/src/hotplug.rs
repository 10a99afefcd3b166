//! CPUs that go offline and come online during a run.
//!
//! The kernel ends the events of a CPU that goes offline, and does not start them when it comes back (kernel/events/core.c,
//! `perf_event_exit_cpu`): they are opened anew. Nothing runs on a CPU that is offline; what is missed is the time from when it
//! came until its events were opened. That is known to lie between two looks, and counts as if it had gone on there as in the
//! time that was measured.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use hbbp_model::advice::Advised;
use hbbp_model::snapshot::run::Event;

/// A counter that was stopped for longer while its CPU was always seen online had a CPU that went and came between two looks.
pub(super) const UNSEEN: u64 = 250_000_000;

/// CPUs in the course of a run.
#[derive(Debug)]
pub(super) struct Online {
    /// Those that were there at the start or came since.
    known: BTreeSet<u32>,
    /// Those that are online, as far as is known, and when that was looked at.
    pub(super) now: BTreeSet<u32>,
    pub(super) looked: Instant,
    /// What changed since the last profile was taken.
    pub(super) changes: BTreeMap<u32, Change>,
}

/// What happened to a CPU.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Change {
    /// How long it may have run without its events, in ns.
    missed: u64,
    /// Why its events could not be opened when it came.
    refused: Option<Advised>,
}

impl Online {
    pub(super) fn new(now: &[u32]) -> Self {
        let now: BTreeSet<u32> = now.iter().copied().collect();
        Self {
            known: now.clone(),
            now,
            looked: Instant::now(),
            changes: BTreeMap::new(),
        }
    }

    /// Sets which are online now; returns those that went, and those that came.
    pub(super) fn look(&mut self, now: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let now: BTreeSet<u32> = now.iter().copied().collect();
        let went: Vec<u32> = self.now.difference(&now).copied().collect();
        let came: Vec<u32> = now.difference(&self.now).copied().collect();
        for cpu in &went {
            self.changes.entry(*cpu).or_default();
        }
        self.known.extend(&came);
        self.now = now;
        (went, came)
    }

    /// Notes that the events of a CPU were opened anew, or why not, after it may have run without them for this time.
    pub(super) fn opened(&mut self, cpu: u32, missed: u64, refused: Option<Advised>) {
        let change = self.changes.entry(cpu).or_default();
        change.missed = change.missed.saturating_add(missed);
        change.refused = refused;
    }

    /// Adds the samples that were missed to those that were due, and returns what is to be said.
    pub(super) fn settle(&mut self, events: &mut [Event], period: impl Fn(usize) -> u64) -> Vec<Advised> {
        let enabled = enabled(events);
        let longest = enabled.values().copied().max().unwrap_or(0);
        let changes = std::mem::take(&mut self.changes);
        for (number, event) in events.iter_mut().enumerate() {
            for counter in &mut event.counters {
                let missed = counter
                    .cpu
                    .and_then(|cpu| changes.get(&cpu))
                    .map_or(0, |it| it.missed);
                if 0 < missed && 0 < counter.enabled {
                    let due = counter.due_at(period(number));
                    let more = u128::from(due) * u128::from(missed) / u128::from(counter.enabled);
                    counter.due = Some(due.saturating_add(u64::try_from(more).unwrap_or(0)));
                }
            }
        }
        let offline = self
            .known
            .difference(&self.now)
            .filter(|cpu| !changes.contains_key(cpu));
        let offline = offline.map(|cpu| format!("CPU {cpu} was offline").into());
        let mut notes: Vec<Advised> = offline.collect();
        let ms = |ns: u64| Duration::from_nanos(ns).as_millis();
        notes.extend(changes.iter().map(|(cpu, change)| match &change.refused {
            Some(why) => Advised::new(
                format!("CPU {cpu} came online and was not measured: {why}"),
                why.advice,
            ),
            None => format!(
                "CPU {cpu} went offline or came online: of {} ms it was measured for {} ms, and for up to {} ms it ran \
                 unmeasured",
                ms(longest),
                ms(enabled.get(cpu).copied().unwrap_or(0)),
                ms(change.missed)
            )
            .into(),
        }));
        notes
    }
}

/// How long counters were enabled on each CPU, in ns: of the event for which that is longest.
pub(super) fn enabled(events: &[Event]) -> BTreeMap<u32, u64> {
    let mut all = BTreeMap::new();
    for counter in events.iter().flat_map(|event| &event.counters) {
        if let Some(cpu) = counter.cpu {
            let longest: &mut u64 = all.entry(cpu).or_default();
            *longest = counter.enabled.max(*longest);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::advice::Advice;
    use hbbp_model::snapshot::run::{Counter, Period};

    const MS: u64 = 1_000_000;

    fn event(enabled: &[(u32, u64)]) -> Event {
        let counter = |(cpu, ms): &(u32, u64)| Counter {
            cpu: Some(*cpu),
            enabled: ms * MS,
            count: ms * 100,
            ..Counter::default()
        };
        Event {
            period: Period::Fixed(10),
            counters: enabled.iter().map(counter).collect(),
            ..Event::default()
        }
    }

    #[test]
    fn time_that_was_missed_is_stated_and_due() {
        let mut online = Online::new(&[0, 1, 2, 3]);
        assert_eq!(online.look(&[0, 1, 3]), (vec![2], vec![]));
        assert_eq!(online.look(&[0, 1, 2, 3]), (vec![], vec![2]));
        online.opened(2, 200 * MS, None);
        let mut events = [event(&[(0, 3_000), (1, 3_000), (2, 2_000), (3, 2_999)])];
        let notes = online.settle(&mut events, |_| 10);
        let expected = "CPU 2 went offline or came online: of 3000 ms it was measured for 2000 ms, and for up to 200 ms it \
                        ran unmeasured";
        assert_eq!(notes, [Advised::from(expected.to_owned())]);
        let due: Vec<_> = events[0].counters.iter().map(|it| it.due).collect();
        assert_eq!(due, [None, None, Some(20_000 + 2_000), None]);
        assert!(online.settle(&mut events, |_| 10).is_empty(), "said once");
    }

    #[test]
    fn cpus_that_stay_offline_and_that_are_refused_are_named() {
        let mut online = Online::new(&[0, 1]);
        online.look(&[0]);
        online.settle(&mut [event(&[(0, 10), (1, 5)])], |_| 10);
        assert_eq!(
            online.settle(&mut [event(&[(0, 10)])], |_| 10),
            [Advised::from("CPU 1 was offline".to_owned())]
        );
        assert_eq!(online.look(&[0, 1]), (vec![], vec![1]));
        online.opened(1, MS, Some(Advised::new("no counter", Advice::CheckPermissions)));
        let notes = online.settle(&mut [event(&[(0, 10)])], |_| 10);
        let expected = "CPU 1 came online and was not measured: no counter";
        assert_eq!(notes, [Advised::new(expected, Advice::CheckPermissions)]);
    }
}
