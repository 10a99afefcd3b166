//! Periods that change a little at drains, and samples that are accounted for all the same. How errors fall with the number of
//! samples is measured by `cargo xtask vm slope`.

use kernel_tests::accuracy::{Setup, measure_command};

use crate::support;

/// Two drains while the machine sleeps, which costs nothing here: the clock counts instructions.
const NAPS: &str = "heapsort 50000; sleep 3; heapsort 50000; sleep 3; heapsort 50000";

#[test]
fn periods_change_at_drains_and_expected_samples_add_up() {
    let Some(machine) = support::machine("6.12") else {
        return;
    };
    let setup = Setup::new(support::hardware_profile("ideal"));
    let mut machine = setup.prepare(machine);
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
