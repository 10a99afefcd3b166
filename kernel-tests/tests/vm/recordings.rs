//! Recordings of perf(1) with stacks of any trigger, or without stacks: their import is near the exact counts of the same span.
//!
//! Only taken branches trigger stacks without bias. Stacks of other triggers are reweighted, and the errors of shares here are
//! those that remain. `cargo xtask vm recordings` measures them over all workloads.

use std::path::PathBuf;

use kernel_tests::accuracy::Errors;
use kernel_tests::artifacts;
use kernel_tests::machine::Marks;
use kernel_tests::recording::{Recorded, record_command};

use crate::support;

/// Sorting and searching, two phases that no stack joins; then system calls.
const LOAD: &str = "heapsort 60000; exec storms syscalls 10000";

/// A processor with the cost model of the hardware profile `skid`, whose branch records hold cycles, and one without.
const SKID: &str = "skid.0 = 20 60";
const WITHOUT_CYCLES: &str = "skid.0 = 20 60\nbranch_cycles = false";

fn recorded(hardware_profile: &str, events: &str) -> Option<Recorded> {
    let machine = support::machine("6.12")?;
    let mut machine = machine.marks(Marks::Events).hardware_profile(hardware_profile);
    let programs = ["heapsort.c", "storms.c"].map(|source| {
        support::add_workload(&mut machine, source);
        artifacts::workload(source).unwrap()
    });
    let busybox = PathBuf::from("/bin/busybox");
    let binaries: Vec<PathBuf> = std::iter::once(busybox).chain(programs).collect();
    let recorded = record_command(machine, &["/bin/busybox", "sh", "-c", LOAD], events, &binaries).unwrap();
    assert_eq!(recorded.outcome().counters().unwrap()["anomalies"], 0);
    Some(recorded)
}

/// The errors with and without a stage of the estimate; `None` if there is no emulated machine.
fn compared_errors(events: &str, hardware_profile: &str, stage: &str) -> Option<[Errors; 2]> {
    let recorded = recorded(hardware_profile, events)?;
    let rule = recorded.outcome().directory().join("recorded.rule");
    std::fs::write(&rule, format!("name recorded\nwithout {stage}\nlbr\n")).unwrap();
    Some(["balanced", rule.to_str().unwrap()].map(|rule| recorded.errors(rule).unwrap()))
}

/// The error of the shares of everything, with weights and as recorded.
fn compared(events: &str, hardware_profile: &str) -> Option<[f64; 2]> {
    let errors = compared_errors(events, hardware_profile, "weights")?;
    let [weighed, as_recorded] = errors.map(|errors| errors.whole.share_error.hybrid.unwrap());
    println!("{events}: error of shares {weighed:.4}, as recorded {as_recorded:.4}");
    Some([weighed, as_recorded])
}

#[test]
#[ignore = "runs in --all"]
fn time_triggered_stacks_with_cycles() {
    if let Some([weighed, as_recorded]) = compared("-b -e cycles -c 10007", SKID) {
        assert!(weighed < 0.03 && 3.0 * weighed < as_recorded);
    }
}

#[test]
#[ignore = "runs in --all"]
fn time_triggered_stacks_without_cycles() {
    if let Some([weighed, as_recorded]) = compared("-b -e cycles -c 10007", WITHOUT_CYCLES) {
        assert!(weighed < 0.06 && 2.0 * weighed < as_recorded);
    }
}

#[test]
#[ignore = "runs in --all"]
fn stacks_that_instructions_triggered() {
    if let Some([weighed, as_recorded]) = compared("-b -e instructions -c 10007", SKID) {
        assert!(2.0 * weighed < as_recorded);
    }
}

#[test]
#[ignore = "runs in --all"]
fn stacks_of_two_triggers() {
    if let Some([weighed, as_recorded]) = compared("-b -e cycles,instructions -c 20011", SKID) {
        assert!(2.0 * weighed < as_recorded);
    }
}

/// Branches that are not taken trigger stacks, too, and loops differ in how many of these they have.
#[test]
#[ignore = "runs in --all"]
fn stacks_that_branches_of_user_code_triggered() {
    let Some(errors) = compared_errors("-b -e branches:u -c 2003", SKID, "weights") else {
        return;
    };
    let of_user = errors.map(|errors| errors.named("user").unwrap().share_error.hybrid.unwrap());
    let [weighed, as_recorded] = of_user;
    println!("branches:u: error of shares {weighed:.4}, as recorded {as_recorded:.4}");
    assert!(weighed < 0.05 && 2.0 * weighed < as_recorded);
}

/// Without stacks, samples of an event that is not precise are traced back along the code to the instructions that triggered them.
#[test]
#[ignore = "runs in --all"]
fn samples_of_instructions_without_stacks() {
    let Some(errors) = compared_errors("-e instructions -c 10007", SKID, "landing") else {
        return;
    };
    let [traced, landed] = errors.map(|errors| errors.whole.share_error.hybrid.unwrap());
    println!("instructions alone: error of shares {traced:.4}, where they landed {landed:.4}");
    assert!(traced < 0.05 && 2.0 * traced < landed);
}
