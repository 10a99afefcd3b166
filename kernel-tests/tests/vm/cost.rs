//! What stacks and processes cost in instructions, against `results/guards.txt`.
//!
//! Guest time is a function of the instructions, so that the figures do not depend on what else the host does. User code is held
//! to a tenth above what was recorded. With the kernel's instructions it is a quarter: what the kernel does with freed pages
//! falls into one run or another, and two builds whose user code lay 1 % apart had 1760 and 1957 instructions of it for a stack; a process 19,688 and 17,823 in all.

use std::collections::BTreeMap;
use std::fs;

use kernel_tests::artifacts;
use kernel_tests::budget::{self, storm};
use kernel_tests::cost::{self, Span, Tool};
use kernel_tests::kernel::Kernel;
use kernel_tests::workload::Workload;

use crate::support;

/// One kernel is enough to see a cost grow.
const SERIES: &str = "6.12";

/// The most that user code, and user code with the kernel, may cost of what was recorded.
const USER: f64 = 1.1;
const WITH_KERNEL: f64 = 1.25;

/// Seeds of chance, of which the least figure counts. Kept stacks that share a place in their table cost more, and which do hangs on
/// the seed of its hash: user code for a stack of callchain took 179 to 308 instructions with seeds of the same builds. What the
/// code itself takes is in all of them.
const SEEDS: [u32; 3] = [1, 2, 3];

/// Fails where a figure is more than `most` times the recorded one.
#[track_caller]
fn assert_recorded(name: &str, figure: f64, most: f64) {
    let recorded = fs::read_to_string(artifacts::package().join("results/guards.txt")).unwrap();
    let recorded: BTreeMap<&str, f64> = recorded
        .lines()
        .filter_map(|line| line.split_once(": "))
        .filter_map(|(name, number)| Some((name, number.parse().ok()?)))
        .collect();
    println!("{name}: {figure:.0}, recorded {}", recorded[name]);
    assert!(
        figure <= most * recorded[name],
        "{name} costs {figure:.0} instructions, {} in results/guards.txt",
        recorded[name]
    );
}

fn assert_stack(workload: &'static str, name: &str) {
    if support::machine(SERIES).is_none() {
        return;
    }
    let kernel = Kernel::get(SERIES).unwrap();
    let workload = Workload::named(workload).unwrap();
    let tools = [Tool::Returning, Tool::HbbpSys];
    let figures = SEEDS.map(|seed| {
        let periods = [503, 1_009, 2_003];
        let profile = support::hardware_profile("ideal");
        let costs = cost::measure(workload, &kernel, &profile, &periods, &tools, seed).unwrap();
        let [machine, own] = tools.map(|tool| costs.per_stack(tool));
        let (_, spans) = &costs.tools[1];
        let user: Vec<Span> = spans.iter().map(|span| Span { kernel: 0, ..*span }).collect();
        [cost::slope(&user), own - machine]
    });
    println!("{name}, user code and all together, by seed: {figures:.0?}");
    let least = |which: usize| figures.iter().map(|it| it[which]).fold(f64::INFINITY, f64::min);
    assert_recorded(&format!("{name}, user code"), least(0), USER);
    assert_recorded(name, least(1), WITH_KERNEL);
}

#[test]
fn stack_of_flat_code_costs_what_it_did() {
    assert_stack("heapsort", "stack of heapsort");
}

#[test]
fn stack_of_a_loop_costs_what_it_did() {
    assert_stack("callchain", "stack of callchain");
}

/// Cycles at their default period add little to the two events that count executions (issue 19: 0.2 %).
#[test]
fn time_beside_executions_adds_a_five_hundredth_at_most() {
    const ROUNDS: u32 = 6;
    if support::machine(SERIES).is_none() {
        return;
    }
    let kernel = Kernel::get(SERIES).unwrap();
    let overhead = cost::overhead(&kernel, &support::hardware_profile("ideal"), ROUNDS).unwrap();
    let added = overhead.of_time();
    println!(
        "{} and {} samples, {:.3} % of instructions added",
        overhead.watched.stacks,
        overhead.with_time.stacks,
        100.0 * added
    );
    // The default period is not so long that there is nothing to cost anything.
    assert!(overhead.watched.stacks + 500 < overhead.with_time.stacks);
    assert!(added <= 0.002, "{added}");
    let added = overhead.of_callers();
    println!(
        "{:.0} instructions for each sample with its call chain: {:.3} % added",
        overhead.of_chain(),
        100.0 * added
    );
    assert!(0.0005 < added && added <= 0.005, "{added}");
}

#[test]
fn process_costs_what_it_did() {
    const N: u32 = 1_200;
    if support::machine(SERIES).is_none() {
        return;
    }
    let kernel = Kernel::get(SERIES).unwrap();
    let options = "--interval 5s --cpu-budget 100%";
    let taken = budget::measure(
        &kernel,
        &support::hardware_profile("ideal"),
        &[storm(N)],
        options,
        12,
    )
    .unwrap();
    let each = taken[0].instructions() as f64 / f64::from(N);
    assert_recorded("process", each, WITH_KERNEL);
}
