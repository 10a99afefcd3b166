//! When a measurement does what: a function of the time alone, which the event loop of [`super::measure`] serves.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// What a measurement does at its time. Of several that are due, the first of these is done first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Task {
    /// Ends the measurement.
    End,
    /// Takes the counts out of the maps.
    Drain,
    /// Gives the counters to the next of the events that take turns.
    TakeTurns,
    /// Adjusts the periods of rings with events of their own, before the first drains do.
    ShareOut,
    /// Splits the interval, as text was patched.
    Split,
    /// Looks whether branch stacks have entries.
    LookAtStacks,
    /// Compares the cost of samples with the budget.
    CheckBudget,
    /// Looks which CPUs are online.
    FollowCpus,
    /// Reads the records of processes, and looks whether the command has ended.
    ReadRecords,
    /// Follows the bursts that have begun: when there are some, and at no time that is planned.
    FollowBursts,
}

/// A task at a time, once or again and again.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Instant,
    every: Option<Duration>,
}

/// The tasks of a measurement and their times.
#[derive(Debug, Default)]
pub(super) struct Schedule(BTreeMap<Task, Entry>);

impl Schedule {
    /// Does the task after each such time, first at `start + every`.
    pub(super) fn repeat(&mut self, task: Task, start: Instant, every: Duration) {
        let entry = Entry {
            at: start + every,
            every: Some(every),
        };
        self.0.insert(task, entry);
    }

    /// Does the task once, at this time, or no more. What was planned of it before is replaced.
    pub(super) fn once(&mut self, task: Task, at: Option<Instant>) {
        match at {
            Some(at) => self.0.insert(task, Entry { at, every: None }),
            None => self.0.remove(&task),
        };
    }

    /// What is done next and when: the first task of those that are due by now, or else the one that is due earliest.
    pub(super) fn next(&self, now: Instant) -> Option<(Task, Instant)> {
        let entries = self.0.iter().map(|(task, entry)| (*task, entry.at));
        let due = entries.clone().find(|(_, at)| *at <= now);
        due.or_else(|| entries.reduce(|a, b| if b.1 < a.1 { b } else { a }))
    }

    /// Plans the task anew, which is being done at this time. One that comes late is not caught up on: the next drain, for
    /// example, takes more.
    pub(super) fn begun(&mut self, task: Task, now: Instant) {
        match self.0.get_mut(&task) {
            Some(Entry {
                at,
                every: Some(every),
            }) => *at = now + *every,
            Some(_) => self.once(task, None),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The tasks in their order up to a time, in ms, where each takes as long as this.
    fn done(schedule: &mut Schedule, start: Instant, until: u32, takes: Duration) -> Vec<(Task, u128)> {
        let (mut now, mut done) = (start, Vec::new());
        while let Some((task, at)) = schedule.next(now) {
            now = now.max(at);
            if start + MS * until < now {
                break;
            }
            done.push((task, (now - start).as_millis()));
            schedule.begun(task, now);
            now += takes;
        }
        done
    }

    #[test]
    fn tasks_come_at_their_times_once_or_again_and_again() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        assert_eq!(schedule.next(start), None);
        schedule.repeat(Task::ReadRecords, start, 50 * MS);
        schedule.repeat(Task::Drain, start, 100 * MS);
        schedule.once(Task::Split, Some(start + 60 * MS));
        let expected = [
            (Task::ReadRecords, 50),
            (Task::Split, 60),
            (Task::Drain, 100),
            (Task::ReadRecords, 100),
            (Task::ReadRecords, 150),
        ];
        assert_eq!(done(&mut schedule, start, 199, Duration::ZERO), expected);
    }

    #[test]
    fn late_task_is_not_caught_up_on() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        schedule.repeat(Task::ReadRecords, start, 50 * MS);
        let expected = [50, 250, 450].map(|at| (Task::ReadRecords, at));
        assert_eq!(done(&mut schedule, start, 500, 200 * MS), expected);
    }

    #[test]
    fn end_comes_before_all_that_is_due_with_it() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        schedule.repeat(Task::Drain, start, MS);
        schedule.once(Task::End, Some(start + MS));
        assert_eq!(schedule.next(start + 7 * MS), Some((Task::End, start + MS)));
        schedule.once(Task::End, None);
        assert_eq!(schedule.next(start), Some((Task::Drain, start + MS)));
    }
}
