//! Streams are as many and as long in the mean as the sampling events counted, and the report says how far off they were.

use kernel_tests::accuracy::{Setup, measure_command};

use crate::support;

/// Short streams before slow code: where stacks come late, they are too many, and 5 % of all instructions are missing.
const LOAD: &str = "heapsort 200000";

#[test]
fn streams_are_as_long_as_was_counted() {
    let Some(machine) = support::machine("6.12") else {
        return;
    };
    let setup = Setup::new(support::hardware_profile("ivb-imprecise"));
    let mut machine = setup.prepare(machine);
    support::add_workload(&mut machine, "heapsort.c");
    let measured = measure_command(machine, &["/bin/busybox", "sh", "-c", LOAD], &setup).unwrap();
    println!("{:#}", measured.report["residuals"]);
    let [instructions, taken] = measured.report["residuals"].as_array().unwrap().as_slice() else {
        panic!("{:#}", measured.report["residuals"])
    };
    let [untied, tied] = ["untied", "relative"].map(|field| instructions[field].as_f64().unwrap());
    assert!(untied < -0.02 && tied.abs() < 0.005, "{instructions:#}");
    // No stack was lost, and there are as many streams as taken branches.
    for field in ["untied", "relative"] {
        assert!(taken[field].as_f64().unwrap().abs() < 0.002, "{taken:#}");
    }
    let warnings = measured.report["warnings"].as_array().unwrap();
    let told = warnings.iter().any(|warning| warning["id"] == "streams.length");
    assert!(told, "{warnings:#?}");

    let without = measured.errors_without(&["totals"]).unwrap();
    let [before, after] =
        [&without, &measured.rings].map(|errors| errors.whole.average_weighted_error.hybrid.unwrap());
    println!("error of the mix: {before:.4} without totals, {after:.4} with them");
    assert!(after < 0.7 * before, "{after} {before}");
}
