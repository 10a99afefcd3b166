//! The mix of the metrics is estimated of what was written, and not at the end.

use std::time::Duration;

use super::super::super::metrics::Form;
use super::*;
use hbbp_testing::program;

/// Ten seconds of samples, from this time on in tens of seconds.
fn ten_seconds(n: u64) -> Snapshot {
    const TEN: u64 = 10_000_000_000;
    let mut snapshot = program::clocked();
    (snapshot.run.started, snapshot.run.duration) = (n * TEN, TEN);
    (snapshot.intervals[0].start, snapshot.intervals[0].end) = (n * TEN, (n + 1) * TEN);
    snapshot
}

/// The sum of all lines of a text that begin so.
fn sum_of(text: &str, prefix: &str) -> f64 {
    let lines = text.lines().filter(|line| line.starts_with(prefix));
    let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.sum()
}

/// The first interval is estimated at once, and then those of a minute together; nothing is lost or counted twice. The wait is as long
/// as the estimate before was costly, and what it leaves out is counted.
#[test]
fn mix_of_the_metrics_is_estimated_once_a_minute() {
    let made = tempfile::tempdir().unwrap();
    let counters = Arc::new(Counters::default());
    let metrics = Arc::new(Metrics::new(Duration::from_secs(10), Arc::clone(&counters)).unwrap());
    let folder = Folder::open(made.path()).unwrap();
    let shown = Some(Arc::clone(&metrics));
    let mut keeper = Keeper::open(folder, Limits::default(), 64 << 20, counters, shown).unwrap();
    let alone = {
        let metrics = Metrics::new(Duration::from_secs(10), Arc::default()).unwrap();
        metrics.estimate(&ten_seconds(0));
        sum_of(&metrics.text(Form::OpenMetrics).unwrap(), "hbbp_mix_total{")
    };
    assert!(0.0 < alone);
    let mut ends = vec![0.0_f64];
    for n in 0..70 {
        keeper.keep(ten_seconds(n));
        let text = metrics.text(Form::OpenMetrics).unwrap();
        let measured = 10.0 * (n + 1) as f64;
        assert_eq!(sum_of(&text, "hbbp_measured_seconds_total"), measured);
        let end = sum_of(&text, "hbbp_mix_end_time_seconds");
        let left_out = sum_of(&text, "hbbp_mix_left_out_seconds_total");
        let is_new = end.to_bits() != ends[ends.len() - 1].to_bits();
        if is_new {
            ends.push(end);
            assert_eq!(end.to_bits(), measured.to_bits());
        }
        for prefix in ["hbbp_mix_total{", "hbbp_cgroup_mix_total{"] {
            let held = sum_of(&text, prefix) / alone * 10.0;
            let missing = measured - left_out - held;
            let waits = if is_new { 0.0 } else { 60.0 };
            assert!(
                (-1e-6..waits + 1e-6).contains(&missing),
                "{n}: {prefix} {missing} s"
            );
        }
    }
    assert_eq!(ends[1], 10.0);
    let waits = ends.windows(2).skip(1).map(|pair| pair[1] - pair[0]);
    assert!(
        2 < ends.len() && waits.clone().all(|wait| (60.0..=3600.0).contains(&wait)),
        "{ends:?}"
    );
}

/// As the daemon ends, the last interval is written at once: no client reads metrics any more, and a merge can wait.
#[test]
fn last_interval_is_written_and_nothing_else_is_done() {
    let made = tempfile::tempdir().unwrap();
    let counters = Arc::new(Counters::default());
    let metrics = Arc::new(Metrics::new(Duration::from_secs(60), Arc::clone(&counters)).unwrap());
    let folder = Folder::open(made.path()).unwrap();
    let shown = Some(Arc::clone(&metrics));
    let mut keeper = Keeper::open(folder, Limits::default(), 64 << 20, Arc::clone(&counters), shown).unwrap();
    // An hour that is over, which would be merged.
    (300..360).for_each(|n| {
        keeper.save(minute(n, "here"));
    });
    keeper.keep_last(minute(420, "here"));
    let text = metrics.text(Form::OpenMetrics).unwrap();
    assert_eq!(sum_of(&text, "hbbp_measured_seconds_total"), 61.0 * 60.0);
    assert_eq!(sum_of(&text, "hbbp_mix_end_time_seconds"), 0.0);
    assert_eq!(counters.get(Counter::SegmentsWritten), 61);
    assert_eq!(Listing::read(made.path()).unwrap().segments.len(), 61);
    keeper.keep(minute(421, "here"));
    assert!(Listing::read(made.path()).unwrap().segments.len() < 61);
    let text = metrics.text(Form::OpenMetrics).unwrap();
    assert!(0.0 < sum_of(&text, "hbbp_mix_end_time_seconds"));
}
