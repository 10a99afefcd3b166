//! What stacks and processes cost in instructions: at most a tenth above `results/guards.txt`.
//!
//! Guest time is a function of the instructions, so that the figures do not depend on what else the host does. Two builds that
//! differ in nothing that matters lie up to 5 % apart (`results/cost.txt`).

use std::collections::BTreeMap;
use std::fs;

use kernel_tests::artifacts;
use kernel_tests::budget::{self, storm};
use kernel_tests::cost::{self, Tool};
use kernel_tests::kernel::Kernel;
use kernel_tests::workload::Workload;

use crate::support;

/// One kernel is enough to see a cost grow.
const SERIES: &str = "6.12";

/// Fails where a figure is more than a tenth above the recorded one.
#[track_caller]
fn assert_recorded(name: &str, figure: f64) {
    let recorded = fs::read_to_string(artifacts::package().join("results/guards.txt")).unwrap();
    let recorded: BTreeMap<&str, f64> = recorded
        .lines()
        .filter_map(|line| line.split_once(": "))
        .filter_map(|(name, number)| Some((name, number.parse().ok()?)))
        .collect();
    println!("{name}: {figure:.0}, recorded {}", recorded[name]);
    assert!(
        figure <= 1.1 * recorded[name],
        "{name} costs {figure:.0} instructions, {} in results/guards.txt",
        recorded[name]
    );
}

fn profile() -> String {
    let path = artifacts::package().join("hardware-profiles/ideal");
    fs::read_to_string(path).unwrap()
}

fn assert_stack(workload: &'static str, name: &str) {
    if support::machine(SERIES).is_none() {
        return;
    }
    let kernel = Kernel::get(SERIES).unwrap();
    let workload = Workload::named(workload).unwrap();
    let tools = [Tool::Returning, Tool::HbbpSys];
    let costs = cost::measure(workload, &kernel, &profile(), &[503, 1_009, 2_003], &tools).unwrap();
    let [machine, own] = tools.map(|tool| costs.per_stack(tool));
    assert_recorded(name, own - machine);
}

#[test]
fn stack_of_flat_code_costs_what_it_did() {
    assert_stack("heapsort", "stack of heapsort");
}

#[test]
fn stack_of_a_loop_costs_what_it_did() {
    assert_stack("callchain", "stack of callchain");
}

#[test]
fn process_costs_what_it_did() {
    const N: u32 = 1_200;
    if support::machine(SERIES).is_none() {
        return;
    }
    let kernel = Kernel::get(SERIES).unwrap();
    let options = "--interval 5s --cpu-budget 100%";
    let taken = budget::measure(&kernel, &profile(), &[storm(N)], options, 12).unwrap();
    assert_recorded("process", taken[0].instructions() as f64 / f64::from(N));
}
