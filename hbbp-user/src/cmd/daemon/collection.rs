//! Collection that goes on: after an error it is opened again, after a pause that doubles up to a minute.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::counters::{Counter, Counters};
use super::service_log::tell;
use crate::advice::error_in_words;
use hbbp_model::snapshot::Snapshot;

/// Pause after the first error, and the longest one. It begins anew with each interval that was measured.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How a pause ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pause {
    /// The time is over.
    Over,
    /// The daemon is to end.
    End,
}

/// Delivers interval after interval, until one collection ends without an error, or their receiver is gone: then the
/// daemon is to end. Returns the collection that ended so, to be dropped when what it delivered is written.
pub(super) fn collect<I>(
    first: I,
    open: impl Fn() -> anyhow::Result<I>,
    mut deliver: impl FnMut(Snapshot) -> ControlFlow<()>,
    mut pause: impl FnMut(Duration) -> Pause,
    counters: &Counters,
) -> Option<I>
where
    I: Iterator<Item = anyhow::Result<Snapshot>>,
{
    let mut measured = Instant::now();
    let mut next_pause = FIRST_PAUSE;
    let mut opened = Ok(first);
    loop {
        let failed = opened.and_then(|mut intervals| {
            if next_pause != FIRST_PAUSE {
                counters.add(Counter::GapSeconds, measured.elapsed().as_secs() + 1);
                tell("measuring again");
            }
            for snapshot in &mut intervals {
                let snapshot = snapshot?;
                measured = Instant::now();
                next_pause = FIRST_PAUSE;
                counters.add(Counter::Intervals, 1);
                if deliver(snapshot).is_break() {
                    break;
                }
            }
            Ok(intervals)
        });
        let error = match failed {
            Ok(ended) => return Some(ended),
            Err(error) => error,
        };
        counters.add(Counter::Restarts, 1);
        tell(&format!(
            "collection failed, next try in {next_pause:?}: {}",
            error_in_words(&error)
        ));
        if pause(next_pause) == Pause::End {
            return None;
        }
        next_pause = LONGEST_PAUSE.min(2 * next_pause);
        opened = open();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use anyhow::bail;

    use super::*;

    type Planned = std::vec::IntoIter<anyhow::Result<Snapshot>>;

    fn intervals(plan: &[bool]) -> Planned {
        let snapshot = |ok: &bool| match ok {
            true => Ok(Snapshot::default()),
            false => Err(anyhow::anyhow!("the PMU is gone")),
        };
        plan.iter().map(snapshot).collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn collection_is_opened_again_after_pauses_that_double() {
        let counters = Counters::default();
        let (tries, pauses, delivered) = (Cell::new(0), RefCell::new(Vec::new()), Cell::new(0));
        let open = || {
            tries.set(tries.get() + 1);
            match tries.get() {
                1..=8 => bail!("another user has the PMU"),
                9 => Ok(intervals(&[true, false])),
                _ => Ok(intervals(&[true])),
            }
        };
        let pause = |time: Duration| {
            pauses.borrow_mut().push(time.as_secs());
            Pause::Over
        };
        let deliver = |_| {
            delivered.set(delivered.get() + 1);
            ControlFlow::Continue(())
        };
        collect(intervals(&[true, true, false]), open, deliver, pause, &counters);
        assert_eq!(*pauses.borrow(), [1, 2, 4, 8, 16, 32, 60, 60, 60, 1]);
        assert_eq!((tries.get(), delivered.get()), (10, 4));
        assert_eq!(
            (counters.get(Counter::Restarts), counters.get(Counter::Intervals)),
            (10, 4)
        );
        assert!(
            counters
                .sentences()
                .iter()
                .any(|it| it.starts_with("10 times collection failed"))
        );
    }

    #[test]
    fn signal_ends_a_pause() {
        let counters = Counters::default();
        let open = || -> anyhow::Result<Planned> { panic!("opened again") };
        let deliver = |_| ControlFlow::Continue(());
        let ended = collect(intervals(&[false]), open, deliver, |_| Pause::End, &counters);
        assert!(ended.is_none());
        assert_eq!(counters.get(Counter::Restarts), 1);
    }

    #[test]
    fn collection_ends_when_its_receiver_is_gone() {
        let counters = Counters::default();
        let open = || -> anyhow::Result<Planned> { panic!("opened again") };
        let pause = |_| panic!("paused");
        let three = intervals(&[true, true, true]);
        let ended = collect(three, open, |_| ControlFlow::Break(()), pause, &counters);
        assert_eq!(counters.get(Counter::Intervals), 1);
        // It is handed back as it is, so that it can be torn down later.
        assert_eq!(ended.unwrap().len(), 2);
    }
}
