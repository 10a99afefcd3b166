//! What the metrics are fed with: the counts of each interval, and once a minute, or less often if that is costly, the mix of what was
//! written since. At intervals of 5 s, an estimate for each took most of the daemon's CPU time.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::metrics::Metrics;
use hbbp_model::snapshot::Snapshot;
use hbbp_model::snapshot::budget::used;
use hbbp_model::snapshot::unite::united;
use hbbp_resolve::clock::thread_time;

/// Least measured time from one estimate of the mix to the next: that of Prometheus from one scrape to the next.
const SHORTEST_WAIT: Duration = Duration::from_secs(60);

/// The longest, however much an estimate takes.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// Measured time for the CPU time that the estimate before took: a thousandth of one CPU. With compilers, storms of processes
/// and intervals of 80 s, an estimate for each was half of what the daemon took.
const WAIT_FOR_COST: u32 = 1000;

/// Memory in bytes of what waits, beyond which it is estimated earlier: a third of the text that a profile may hold.
const MOST_WAITING: usize = 32 << 20;

/// Feeds metrics.
#[derive(Debug)]
pub(super) struct Feed {
    metrics: Arc<Metrics>,
    /// What was written since the last estimate.
    waiting: Vec<Snapshot>,
    /// Measured time from the last estimate to the next; none before the first.
    wait: Duration,
}

impl Feed {
    pub(super) const fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            waiting: Vec::new(),
            wait: Duration::ZERO,
        }
    }

    /// Adds samples, losses and costs of an interval that was measured.
    pub(super) fn count(&self, snapshot: &Snapshot) {
        self.metrics.count(snapshot);
    }

    /// Adds what a segment holds to the mix, now or with later ones.
    pub(super) fn estimate(&mut self, runs: Vec<Snapshot>) {
        let due = self.due(runs);
        if due.is_empty() {
            return;
        }
        let start = thread_time();
        due.iter().for_each(|run| self.metrics.estimate(run));
        self.wait = wait_after(thread_time().saturating_sub(start));
    }

    /// Lets what a segment holds wait; returns all that waits if it is to be estimated now.
    fn due(&mut self, runs: Vec<Snapshot>) -> Vec<Snapshot> {
        self.waiting = united(mem::take(&mut self.waiting).into_iter().chain(runs));
        self.waiting.iter_mut().for_each(Snapshot::coarsen);
        let measured: u64 = self.waiting.iter().map(|run| run.run.duration).sum();
        let held: usize = self.waiting.iter().map(used).sum();
        if Duration::from_nanos(measured) < self.wait && held <= MOST_WAITING {
            return Vec::new();
        }
        mem::take(&mut self.waiting)
    }
}

/// Measured time until the next estimate, after one that took this CPU time.
fn wait_after(cost: Duration) -> Duration {
    cost.saturating_mul(WAIT_FOR_COST)
        .clamp(SHORTEST_WAIT, LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_testing::program;

    fn feed() -> Feed {
        let metrics = Metrics::new(Duration::from_secs(10), Arc::default()).unwrap();
        Feed::new(Arc::new(metrics))
    }

    const SECOND: u64 = 1_000_000_000;

    /// The interval of this number, of ten seconds.
    fn interval(n: u64) -> Vec<Snapshot> {
        let mut snapshot = program::clocked();
        let start = 10 * SECOND * n;
        (snapshot.run.started, snapshot.run.duration) = (start, 10 * SECOND);
        for interval in &mut snapshot.intervals {
            (interval.start, interval.end) = (start, start + 10 * SECOND);
        }
        vec![snapshot]
    }

    fn samples(runs: &[Snapshot]) -> u64 {
        let events = runs.iter().flat_map(|run| &run.run.events);
        events.map(|event| event.runs).sum()
    }

    #[test]
    fn first_interval_is_due_at_once_and_then_a_minute_together() {
        let mut feed = feed();
        assert_eq!(samples(&feed.due(interval(0))), samples(&interval(0)));
        feed.wait = wait_after(Duration::ZERO);
        let due = (1..13).map(|n| samples(&feed.due(interval(n))));
        let mut expected = [0; 12];
        (expected[5], expected[11]) = (6 * samples(&interval(0)), 6 * samples(&interval(0)));
        assert_eq!(due.collect::<Vec<u64>>(), expected);
    }

    #[test]
    fn costly_estimates_are_rare() {
        let waits = [0, 40, 200, 1000, 100_000].map(|ms| wait_after(Duration::from_millis(ms)).as_secs());
        assert_eq!(waits, [60, 60, 200, 600, 600]);
    }

    #[test]
    fn what_needs_much_memory_does_not_wait() {
        let mut feed = feed();
        feed.wait = LONGEST_WAIT;
        assert!(feed.due(interval(1)).is_empty());
        let mut large = interval(2);
        large[0].text[0].bytes = vec![0x90; MOST_WAITING];
        let due = feed.due(large);
        assert_eq!(samples(&due), 2 * samples(&interval(0)));
        assert!(feed.waiting.is_empty());
    }

    /// As of two measurements after an error: each is estimated by itself.
    #[test]
    fn what_is_not_one_measurement_waits_together() {
        let mut feed = feed();
        feed.wait = SHORTEST_WAIT;
        feed.due(interval(1));
        let other = |n| {
            let mut other = interval(n);
            other[0].run.events[0].name = "cycles".to_owned();
            other
        };
        let due = (2..7).map(|n| feed.due(other(n)).len()).collect::<Vec<_>>();
        assert_eq!(due, [0, 0, 0, 0, 2]);
    }
}
