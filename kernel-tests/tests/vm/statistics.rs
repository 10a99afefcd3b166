//! What chance may do to the figures of hbbp-sys, and what it may not.

use std::fs;
use std::time::Duration;

use kernel_tests::accuracy::{Setup, measure_command};
use kernel_tests::artifacts;
use kernel_tests::kernel::Kernel;
use kernel_tests::machine::Marks;
use kernel_tests::repeat::{Periods, Point, mean, periods_about, repeat, slope};

use crate::support;

fn ideal() -> String {
    fs::read_to_string(artifacts::package().join("personalities/ideal")).unwrap()
}

/// A hundredfold range of periods; `cargo xtask vm slope` has more of them, and more runs.
const LADDER: [Periods; 3] = [(2_003, 809), (20_011, 8_009), (200_003, 80_021)];

#[test]
fn errors_fall_with_the_root_of_the_samples() {
    const RUNS: usize = 2;
    if support::machine("6.12").is_none() {
        return;
    }
    let periods: Vec<Periods> = LADDER
        .iter()
        .flat_map(|about| periods_about(*about, RUNS))
        .collect();
    let runs = repeat(
        &Kernel::get("6.12").unwrap(),
        &Setup::new(ideal()),
        &periods,
        None,
    )
    .unwrap();
    let points: Vec<Point> = LADDER
        .iter()
        .zip(runs.chunks(RUNS))
        .map(|(about, runs)| mean(*about, runs))
        .collect();
    let of = |y: fn(&Point) -> f64| {
        let line: Vec<(f64, f64)> = points.iter().map(|point| (point.stacks, y(point))).collect();
        slope(&line).unwrap()
    };
    let slopes = [
        of(|p| p.error.hybrid.unwrap()),
        of(|p| p.error.lbr.unwrap()),
        of(|p| p.error.ebs.unwrap()),
    ];
    println!("{points:#?}\nslopes of hybrid, LBR, EBS: {slopes:?}");
    assert!(
        slopes.iter().all(|slope| (-0.6..=-0.4).contains(slope)),
        "{slopes:?}"
    );
    assert!(
        points.iter().all(|point| 0.9999 < point.completeness),
        "{points:#?}"
    );
}

/// Two drains while the machine sleeps, which costs nothing here: the clock counts instructions.
const NAPS: &str = "heapsort 50000; sleep 3; heapsort 50000; sleep 3; heapsort 50000";

#[test]
fn periods_change_at_drains_and_every_due_sample_is_accounted_for() {
    let Some(machine) = support::machine("6.12") else {
        return;
    };
    let setup = Setup::new(ideal());
    let mut machine = machine
        .clock(setup.clock)
        .marks(Marks::Events)
        .personality(&setup.personality)
        .limit(Duration::from_secs(600));
    support::add_workload(&mut machine, "heapsort.c");
    let measured = measure_command(machine, &["/bin/busybox", "sh", "-c", NAPS], &setup).unwrap();
    let events = measured.report["events"].as_array().unwrap();
    for event in events {
        assert_eq!(event["period_varied"], true, "{event:#}");
        assert_eq!(event["due"], event["runs"], "{event:#}");
    }
    let (reached, skipped) = (
        measured.reported("/accounting/reached"),
        measured.reported("/accounting/skipped"),
    );
    assert_eq!(
        measured.counters["delivered"],
        reached + skipped,
        "{:?}",
        measured.counters
    );
    assert_eq!(measured.counters["overflows"], measured.counters["delivered"]);
    let residuals = measured.report["residuals"].as_array().unwrap();
    assert_eq!(residuals.len(), 2, "{residuals:#?}");
    for residual in residuals {
        // A change loses half a period in at least a thousand; the rest is what is not decoded.
        assert!(
            residual["relative"].as_f64().unwrap().abs() < 0.01,
            "{residuals:#?}"
        );
    }
    println!("{residuals:#?} {:?}", measured.rings.whole.average_weighted_error);
}
