//! What the thread of the segments does, and how intervals are handed to it without waiting.

use std::ops::ControlFlow;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::budget_watch::BudgetWatch;
use super::counters::{Counter, Counters};
use hbbp_model::snapshot::Snapshot;

/// Intervals that wait while the thread of the segments is busy, and a profile that was requested.
pub(super) const WAITING: usize = 2 + 1;

/// What the thread of the segments does.
#[derive(Debug)]
pub(super) enum Work {
    /// Keeps an interval.
    Keep(Box<Snapshot>),
    /// Reads a profile.
    Profile(ProfileRequest),
}

/// A profile that is requested.
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
    /// Hands over an interval. Ends the collection where the thread has ended: its measurements would be lost.
    pub(super) fn deliver(&mut self, mut snapshot: Snapshot) -> ControlFlow<()> {
        if self.lost != Duration::ZERO {
            let note = format!(
                "the {:.1} s before this interval are lost: writing segments took longer than several intervals",
                self.lost.as_secs_f64()
            );
            let lost = u64::try_from(self.lost.as_nanos()).unwrap_or(u64::MAX);
            snapshot.run.note_unmeasured(note, lost);
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

    /// Lost intervals are reported in the next one, and the end of the keeper ends the thread.
    #[test]
    fn lost_intervals_are_reported_in_the_next_one() {
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
        let run = || match received.recv().unwrap() {
            Work::Keep(snapshot) => snapshot.run,
            Work::Profile(_) => panic!("nobody asked for a profile"),
        };
        assert!(run().notes.is_empty());
        assert!(delivery.deliver(interval()).is_continue());
        let next = run();
        let [said] = next.notes.as_slice() else {
            panic!("{:?}", next.notes);
        };
        assert!(
            said.starts_with("the 3.0 s before this interval are lost"),
            "{said}"
        );
        // 3 s of 4.5 s.
        assert!((next.share_unmeasured(said) - 2.0 / 3.0).abs() < 1e-9);
        assert!(delivery.deliver(interval()).is_continue());
        assert!(run().notes.is_empty());
        drop(received);
        assert!(delivery.deliver(interval()).is_break());
    }
}
