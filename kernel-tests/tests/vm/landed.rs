//! Samples are expected where they land, and flow takes chance out of the counts: each is compared with an estimate
//! without it.

use kernel_tests::accuracy::{Measured, Setup, measure};
use kernel_tests::kernel::Kernel;
use kernel_tests::workload::Workload;

use crate::support;

fn measured(workload: &str, hardware_profile: &str) -> Option<Measured> {
    support::machine("6.12")?;
    let setup = Setup::new(support::hardware_profile(hardware_profile));
    let workload = Workload::named(workload).unwrap();
    Some(measure(workload, &Kernel::get("6.12").unwrap(), &setup).unwrap())
}

/// A program that was not used for tuning. Stacks and samples come 20 to 60 cycles late: the times of instructions,
/// which the tool does not know, are fitted to the samples.
#[test]
fn samples_are_expected_where_they_land() {
    let Some(measured) = measured("mawk", "skid") else {
        return;
    };
    let without = measured.errors_without(&["times"]).unwrap();
    let [with, without] =
        [&measured.rings, &without].map(|errors| errors.whole.average_weighted_error.hybrid.unwrap());
    println!("error of the mix: {without:.4} without times, {with:.4} with them");
    assert!(with < 0.6 * without && with < 0.01, "{with} {without}");
}

/// Without any fault of the hardware, what is left of the blocks is chance.
#[test]
#[ignore = "runs in --all"]
fn flow_takes_chance_out_of_blocks() {
    let Some(measured) = measured("files", "ideal") else {
        return;
    };
    // All of the balance, not the stage `chance` alone: one run of four has a few stacks too many in the oldest slot, by chance, and is
    // balanced for that.
    let without = measured.errors_without(&["balance"]).unwrap();
    let [with, without] = [&measured.rings, &without].map(|errors| errors.whole.block_error.hybrid.unwrap());
    println!("error over blocks: {without:.4} without flow, {with:.4} with it");
    assert!(with < 0.8 * without, "{with} {without}");
    // Nothing is called a bias for it.
    let warnings = measured.report["warnings"].as_array().unwrap();
    assert!(
        warnings.iter().all(|warning| warning["id"] != "streams.balanced"),
        "{warnings:#?}"
    );
}
