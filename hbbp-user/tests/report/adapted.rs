//! Periods that a budget adapted from segment to segment leave estimates without bias: each sample counts with its own.

use serde_json::Value;

use hbbp_analysis::mix::Dimension;
use hbbp_model::snapshot::unite::united;
use hbbp_model::snapshot::{Event, EventUnit, Interval, IpCount, Period, Snapshot};
use hbbp_output::report::Format;

use super::{by, printed, program};

/// A workload in segments: units that passed, the share of them in the kernel in percent, and the period that the segment had.
/// Storms are mostly kernel code, and have long periods.
const SEGMENTS: [(u64, u64, u64); 8] = [
    (40_000_000, 10, 1_009),
    (400_000_000, 90, 8_009),
    (900_000_000, 95, 64_007),
    (700_000_000, 85, 27_011),
    (90_000_000, 60, 18_013),
    (50_000_000, 20, 12_007),
    (30_000_000, 5, 1_009),
    (20_000_000, 0, 1_009),
];

/// The segment with this number, sampled by an event like that of `like`: `spin_wait` was executed, and `count_up`.
fn segment(like: &Snapshot, number: usize) -> Snapshot {
    const SECOND: u64 = 1_000_000_000;
    let (units, in_kernel, period) = SEGMENTS[number];
    let mut segment = like.clone();
    let interval = &segment.intervals[0];
    let of = |kernel: bool| {
        let rows = interval
            .ips
            .iter()
            .filter(move |ip| (ip.process.0 == 0) == kernel);
        rows.take(4).copied()
    };
    let rows: Vec<IpCount> = of(true).chain(of(false)).collect();
    let mut hits = [0_u64; 8];
    let mut kernel_before = 0;
    for sample in 1..=units / period {
        // As many samples of the kernel as its share of the time so far asks for, each on the next of its instructions.
        let kernel = sample * in_kernel / 100;
        let place = if kernel == kernel_before {
            4 + (sample - kernel) % 4
        } else {
            kernel % 4
        };
        kernel_before = kernel;
        hits[usize::try_from(place).unwrap()] += 1;
    }
    let counted = rows.into_iter().zip(hits).filter(|(_, hits)| 0 < *hits);
    let ips = counted.map(|(row, hits)| IpCount {
        hits,
        weight: hits * period,
        ..row
    });
    let start = (1 + number as u64) * SECOND;
    segment.run.started = 1_000 * SECOND + start;
    segment.run.events[0] = Event {
        period: Period::Fixed(period),
        runs: units / period,
        ..segment.run.events[0].clone()
    };
    segment.run.events[0].counters.truncate(1);
    segment.run.events[0].counters[0].cpu = Some(0);
    segment.run.events[0].counters[0].count = units;
    segment.run.events[0].counters[0].runs = Some(units / period);
    segment.intervals = vec![Interval {
        start,
        end: start + SECOND,
        ips: ips.collect(),
        ..Interval::default()
    }];
    segment
}

/// The report of all segments together.
fn report(like: &Snapshot) -> Value {
    let mut runs = united((0..SEGMENTS.len()).map(|number| segment(like, number)));
    assert_eq!(runs.len(), 1);
    let run = runs.remove(0);
    assert_eq!(run.run.events[0].period, Period::Between(1_009, 64_007));
    let report = serde_json::from_str(&printed(&run, &by(&[Dimension::Mnemonic], Format::Json))).unwrap();
    let text = printed(&run, &by(&[Dimension::Mnemonic], Format::Text));
    assert!(text.contains("every 1,009 to 64,007 "), "{text}");
    report
}

/// Units in the kernel, and of all.
fn exact() -> (f64, f64) {
    let units = SEGMENTS
        .iter()
        .map(|(units, in_kernel, _)| (*units as f64 * *in_kernel as f64 / 100.0, *units as f64));
    units.fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
}

fn ring(report: &Value, ring: &str) -> f64 {
    report["mix"]["total"][ring]["amount"].as_f64().unwrap()
}

fn assert_sums_close(report: &Value) {
    let accounting = &report["accounting"];
    assert_eq!(accounting["unexplained"], 0);
    assert_eq!(accounting["due"], accounting["reached"], "{accounting}");
}

#[test]
fn executions_are_within_a_percent_of_the_truth() {
    let report = report(&program::retired());
    assert_eq!(report["events"][0]["unit"], "instructions");
    let (kernel, all) = exact();
    for (found, exact) in [
        (ring(&report, "kernel"), kernel),
        (ring(&report, "user"), all - kernel),
    ] {
        assert!((found / exact - 1.0).abs() < 0.01, "{found} of {exact}");
    }
    assert_sums_close(&report);
}

#[test]
fn time_is_within_a_percent_of_what_passed() {
    let clocked = program::clocked();
    assert_eq!(clocked.run.events[0].unit, EventUnit::Nanoseconds);
    let report = report(&clocked);
    let (kernel, user) = (ring(&report, "kernel"), ring(&report, "user"));
    let samples: u64 = SEGMENTS.iter().map(|(units, _, period)| units / period).sum();
    assert_eq!(kernel + user, samples as f64);
    let exact = exact().0 / exact().1;
    let found = kernel / (kernel + user);
    assert!((found / exact - 1.0).abs() < 0.01, "{found}, not {exact}");
    // As many samples in user code as in the kernel, but those of the kernel represent more time.
    assert!(found - 0.1 > report["accounting"]["in_mix"]["kernel"].as_f64().unwrap() / samples as f64);
    assert_sums_close(&report);
}
