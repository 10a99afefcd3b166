//! Branch stacks of each ring by an event of its own (`record --rings-apart`).

use kernel_tests::accuracy::{Measured, Setup, measure_command};
use serde_json::Value;

use crate::support;

/// A load that computes, and starts a process twice: kernel code is some hundredths of it. It does not sleep, as an idle machine runs
/// little but the interrupts that deliver samples, which no sample falls into at such periods.
const LOAD: &str = "heapsort 50000; heapsort 200000";

fn measured(options: &[&str]) -> Option<Measured> {
    let machine = support::machine("6.12")?;
    let mut setup = Setup::new(support::hardware_profile("ideal"));
    setup.options = options.iter().map(|option| (*option).to_owned()).collect();
    let mut machine = setup.prepare(machine);
    support::add_workload(&mut machine, "heapsort.c");
    Some(measure_command(machine, &["/bin/busybox", "sh", "-c", LOAD], &setup).unwrap())
}

#[test]
#[ignore = "runs in --all"]
fn ring_that_runs_less_has_more_stacks() {
    let (Some(together), Some(apart)) = (measured(&[]), measured(&["--rings-apart"])) else {
        return;
    };
    let stacks = |event: &Value| event["runs"].as_u64().unwrap();
    let [_, both] = together.report["events"].as_array().unwrap().as_slice() else {
        panic!("{:#}", together.report)
    };
    let [_, user, kernel] = apart.report["events"].as_array().unwrap().as_slice() else {
        panic!("{:#}", apart.report)
    };
    println!(
        "{} stacks together, {} of user code and {} of the kernel separately",
        stacks(both),
        stacks(user),
        stacks(kernel)
    );
    assert_eq!(
        (&user["ring"], &kernel["ring"], &both["ring"]),
        (&"user".into(), &"kernel".into(), &Value::Null)
    );
    // All that were due arrived, at whatever period.
    for event in [user, kernel] {
        assert_eq!(event["due"], event["runs"], "{event:#}");
    }
    assert_eq!(apart.reported("/accounting/unexplained"), 0);
    println!("{:#}", apart.report["residuals"]);
    for residual in apart.report["residuals"].as_array().unwrap() {
        assert!(
            residual["relative"].as_f64().unwrap().abs() < 0.01,
            "{residual:#}"
        );
    }
    // As many in all, but for those of the kernel while its share was not known yet.
    let all = stacks(user) + stacks(kernel);
    assert!(
        stacks(both) * 4 / 5 < all && all < stacks(both) * 13 / 10,
        "{all}"
    );
    let of_kernel = |measured: &Measured| {
        let kernel = measured.rings.named("kernel").unwrap();
        (
            kernel.instructions.reference,
            kernel.average_weighted_error.hybrid.unwrap(),
        )
    };
    let ((_, before), (instructions, after)) = (of_kernel(&together), of_kernel(&apart));
    println!("kernel: errors {before:.4} and {after:.4}");
    // More than twice its share of the stacks.
    let share = instructions / apart.rings.whole.instructions.reference;
    let of_stacks = stacks(kernel) as f64 / all as f64;
    assert!(2.0 * share < of_stacks, "{share} {of_stacks}");
    assert!(after < 0.03, "{after}");
    let whole = apart.rings.whole.average_weighted_error.hybrid.unwrap();
    assert!(whole < 0.01, "{whole}");
}
