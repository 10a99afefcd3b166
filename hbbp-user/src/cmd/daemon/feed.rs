//! What the metrics are fed with: the counts of each interval, and once a minute, or less often if that is costly, the mix of the
//! last minute. At intervals of 5 s, an estimate for each took most of the daemon's CPU time.

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
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The part of the CPU budget for estimates. With compilers and storms of processes, estimates of all that was measured took
/// more than the whole budget.
const SHARE: f64 = 0.1;

/// CPU time for estimates where there is no budget, for each time that is measured.
const WITHOUT_BUDGET: f64 = 1e-3;

/// Memory in bytes of what waits, beyond which it is estimated earlier: a third of the text that a profile may hold.
const MOST_WAITING: usize = 32 << 20;

/// Feeds metrics.
#[derive(Debug)]
pub(super) struct Feed {
    metrics: Arc<Metrics>,
    /// What was written in the last minute before the next estimate is due.
    waiting: Vec<Snapshot>,
    /// Measured time since the last estimate.
    measured: Duration,
    /// Measured time from the last estimate to the next; none before the first.
    wait: Duration,
}

impl Feed {
    pub(super) const fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            metrics,
            waiting: Vec::new(),
            measured: Duration::ZERO,
            wait: Duration::ZERO,
        }
    }

    /// Adds samples, losses and costs of an interval that was measured.
    pub(super) fn count(&self, snapshot: &Snapshot) {
        self.metrics.count(snapshot);
    }

    /// Adds what a segment holds to the mix, now or with later ones, or leaves it out.
    pub(super) fn estimate(&mut self, runs: Vec<Snapshot>) {
        let rate = runs.last().map_or(WITHOUT_BUDGET, rate);
        let due = self.due(runs);
        if due.is_empty() {
            return;
        }
        let start = thread_time();
        due.iter().for_each(|run| self.metrics.estimate(run));
        self.wait = wait_after(thread_time().saturating_sub(start), rate);
    }

    /// Lets what a segment holds wait, or leaves it out if the next estimate is more than a minute away. Returns all that waits
    /// if it is to be estimated now.
    fn due(&mut self, runs: Vec<Snapshot>) -> Vec<Snapshot> {
        let measured = Duration::from_nanos(runs.iter().map(|run| run.run.duration).sum());
        self.measured += measured;
        if self.measured + SHORTEST_WAIT < self.wait {
            self.metrics.leave_out(measured);
            return Vec::new();
        }
        self.waiting = united(mem::take(&mut self.waiting).into_iter().chain(runs));
        self.waiting.iter_mut().for_each(Snapshot::coarsen);
        let held: usize = self.waiting.iter().map(used).sum();
        if self.measured < self.wait && held <= MOST_WAITING {
            return Vec::new();
        }
        self.measured = Duration::ZERO;
        mem::take(&mut self.waiting)
    }
}

/// CPU time for estimates, for each time that is measured.
fn rate(run: &Snapshot) -> f64 {
    run.run.overhead.budget.map_or(WITHOUT_BUDGET, |budget| {
        SHARE * f64::from(budget.share) / 1e6 * f64::from(run.run.host.n_cpus.max(1))
    })
}

/// Measured time until the next estimate, after one that took this CPU time, for estimates at a rate.
fn wait_after(cost: Duration, rate: f64) -> Duration {
    let longest = LONGEST_WAIT.as_secs_f64();
    let wait = (cost.as_secs_f64() / rate).clamp(SHORTEST_WAIT.as_secs_f64(), longest);
    Duration::try_from_secs_f64(wait).unwrap_or(LONGEST_WAIT)
}

#[cfg(test)]
mod tests {
    use super::super::metrics::Form;
    use super::*;
    use hbbp_model::snapshot::run::{CpuBudget, RunTime};
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
        feed.wait = wait_after(Duration::ZERO, WITHOUT_BUDGET);
        let due = (1..13).map(|n| samples(&feed.due(interval(n))));
        let mut expected = [0; 12];
        (expected[5], expected[11]) = (6 * samples(&interval(0)), 6 * samples(&interval(0)));
        assert_eq!(due.collect::<Vec<u64>>(), expected);
    }

    #[test]
    fn costly_estimates_are_rare() {
        let waits = |rate| {
            [0, 40, 200, 1000, 100_000].map(|ms| wait_after(Duration::from_millis(ms), rate).as_secs())
        };
        assert_eq!(waits(WITHOUT_BUDGET), [60, 60, 200, 1000, 3600]);
        // A tenth of 0.3 % of 64 CPUs.
        let mut run = interval(0).remove(0);
        run.run.host.n_cpus = 64;
        assert!((rate(&run) - WITHOUT_BUDGET).abs() < 1e-12);
        run.run.overhead.budget = Some(CpuBudget {
            share: 3_000,
            programs: RunTime::Estimated,
        });
        assert!((rate(&run) - 0.0192).abs() < 1e-12);
        assert_eq!(waits(rate(&run)), [60, 60, 60, 60, 3600]);
        run.run.host.n_cpus = 0;
        run.run.overhead.budget = Some(CpuBudget {
            share: 0,
            programs: RunTime::Estimated,
        });
        assert_eq!(waits(rate(&run))[1..], [3600; 4]);
    }

    /// The mix is then that of the last minute before each estimate; all of the time is in it, waits or is left out.
    #[test]
    fn what_a_costly_estimate_leaves_out_is_counted() {
        let mut feed = feed();
        feed.wait = wait_after(Duration::from_millis(205), WITHOUT_BUDGET);
        let (mut estimated, one) = (Vec::new(), samples(&interval(0)));
        for n in 1..=63 {
            let due = samples(&feed.due(interval(n))) / one;
            if due != 0 {
                estimated.push((n, due));
            }
            let text = feed.metrics.text(Form::OpenMetrics).unwrap();
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("hbbp_mix_left_out_seconds_total "));
            let left_out: f64 = line.unwrap().parse().unwrap();
            let mix: u64 = estimated.iter().map(|(_, n)| n).sum();
            let waiting = samples(&feed.waiting) / one;
            assert!(
                (left_out - 10.0 * (n - mix - waiting) as f64).abs() < 1e-9,
                "{n}: {left_out}"
            );
        }
        // 205 s: intervals that end after 145 s are held until the one that ends at 210 s.
        assert_eq!(estimated, [(21, 7), (42, 7), (63, 7)]);
    }

    #[test]
    fn what_needs_much_memory_does_not_wait() {
        let mut feed = feed();
        feed.wait = SHORTEST_WAIT;
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
