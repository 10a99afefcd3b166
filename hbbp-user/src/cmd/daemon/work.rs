//! What the thread of the segments does, and how intervals are handed to it without waiting.

use std::ops::ControlFlow;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::budget_watch::BudgetWatch;
use super::counters::{Counter, Counters};
use hbbp_model::snapshot::Snapshot;

/// Intervals that wait while the thread of the segments is busy, and beside them a profile that is asked for.
pub(super) const WAITING: usize = 2 + 1;

/// What the thread of the segments does.
#[derive(Debug)]
pub(super) enum Work {
    /// Keeps an interval.
    Keep(Box<Snapshot>),
    /// Reads a profile.
    Profile(ProfileRequest),
}

/// A profile that is asked for.
#[derive(Debug)]
pub(super) struct ProfileRequest {
    /// The time before now, in seconds.
    pub(super) seconds: u64,
    /// Takes the file, or why there is none.
    pub(super) answer: oneshot::Sender<Result<Vec<u8>, String>>,
}

/// Hands intervals to the thread of the segments, without waiting for it.
pub(super) struct Delivery<'a> {
    pub(super) work: SyncSender<Work>,
    pub(super) counters: &'a Counters,
    /// Length of the intervals that were lost since the last one that was taken.
    pub(super) lost: Duration,
    pub(super) watch: BudgetWatch,
}

impl Delivery<'_> {
    /// Hands over an interval. Ends the collection where the thread has ended: what is measured then is kept by nobody.
    pub(super) fn deliver(&mut self, mut snapshot: Snapshot) -> ControlFlow<()> {
        if self.lost != Duration::ZERO {
            snapshot.run.notes.push(format!(
                "the {:.1} s before this interval are lost: writing segments took longer than several intervals",
                self.lost.as_secs_f64()
            ));
        }
        self.watch.look(&mut snapshot.run, self.counters);
        let duration = Duration::from_nanos(snapshot.run.duration);
        match self.work.try_send(Work::Keep(Box::new(snapshot))) {
            Ok(()) => self.lost = Duration::ZERO,
            Err(TrySendError::Full(_)) => {
                self.counters.add(Counter::IntervalsRefused, 1);
                self.lost += duration;
            }
            Err(TrySendError::Disconnected(_)) => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn lost_intervals_are_told_in_the_next_one_and_the_end_of_the_keeper_ends_it() {
        let counters = Counters::default();
        let (work, received) = sync_channel(1);
        let mut delivery = Delivery {
            work,
            counters: &counters,
            lost: Duration::ZERO,
            watch: BudgetWatch::default(),
        };
        let interval = || {
            let mut snapshot = Snapshot::default();
            snapshot.run.duration = 1_500_000_000;
            snapshot
        };
        for _ in 0..3 {
            assert!(delivery.deliver(interval()).is_continue());
        }
        assert_eq!(counters.get(Counter::IntervalsRefused), 2);
        let notes = || match received.recv().unwrap() {
            Work::Keep(snapshot) => snapshot.run.notes,
            Work::Profile(_) => panic!("nobody asked for a profile"),
        };
        assert!(notes().is_empty());
        assert!(delivery.deliver(interval()).is_continue());
        let said = notes();
        assert!(
            said.len() == 1 && said[0].starts_with("the 3.0 s before this interval are lost"),
            "{said:?}"
        );
        assert!(delivery.deliver(interval()).is_continue());
        assert!(notes().is_empty());
        drop(received);
        assert!(delivery.deliver(interval()).is_break());
    }
}
