//! What stacks and processes cost in instructions, against `results/guards.txt` ([`kernel_tests::guards`]).

use anyhow::Result;
use kernel_tests::cost;
use kernel_tests::guards::{self, Guard, SERIES};
use kernel_tests::kernel::Kernel;

use crate::support;

/// Fails where a figure is worse than it may be.
#[track_caller]
fn assert_kept(measure: impl FnOnce(&Kernel, &str) -> Result<Vec<Guard>>) {
    if support::machine(SERIES).is_none() {
        return;
    }
    let kernel = Kernel::get(SERIES).unwrap();
    let guards = measure(&kernel, &support::hardware_profile("ideal")).unwrap();
    assert!(!guards.is_empty());
    for guard in &guards {
        println!(
            "{}: {:.0}, recorded {}",
            guard.name, guard.measured, guard.recorded
        );
    }
    let exceeded: Vec<&Guard> = guards.iter().filter(|guard| guard.is_exceeded()).collect();
    assert!(
        exceeded.is_empty(),
        "more instructions than results/guards.txt has: {exceeded:?}"
    );
}

#[test]
#[ignore = "runs in --all"]
fn stack_of_flat_code_costs_what_it_did() {
    assert_kept(guards::copied_stack);
}

#[test]
#[ignore = "runs in --all"]
fn stack_of_a_loop_costs_what_it_did() {
    assert_kept(guards::kept_stack);
}

#[test]
fn programs_of_stacks_cost_what_they_did() {
    assert_kept(guards::programs);
}

#[test]
#[ignore = "runs in --all"]
fn process_costs_what_it_did() {
    assert_kept(guards::processes);
}

/// Cycles at their default period add little to the two events that count executions. Runs of different boots differ by
/// as much as they add, so the bound is for the mean of three, within two of its standard errors.
#[test]
#[ignore = "runs in --all"]
fn time_with_executions_adds_a_five_hundredth_at_most() {
    const ROUNDS: u32 = 6;
    const BOOTS: [&str; 3] = ["phase=a", "phase=another", "phase=the-third"];
    if support::machine(SERIES).is_none() {
        return;
    }
    let kernel = Kernel::get(SERIES).unwrap();
    let (mut of_time, mut of_callers) = (Vec::new(), 0.0);
    for boot in BOOTS {
        let overhead = cost::overhead(&kernel, &support::hardware_profile("ideal"), ROUNDS, boot).unwrap();
        println!(
            "{} and {} samples, {:.3} % of instructions added; {:.0} instructions for each sample with its call chain: {:.3} % added",
            overhead.watched.stacks,
            overhead.with_time.stacks,
            100.0 * overhead.of_time(),
            overhead.of_chain(),
            100.0 * overhead.of_callers()
        );
        // The default period is not so long that there is nothing to cost anything.
        assert!(overhead.watched.stacks + 500 < overhead.with_time.stacks);
        of_time.push(overhead.of_time());
        of_callers += overhead.of_callers() / BOOTS.len() as f64;
    }
    let n = of_time.len() as f64;
    let mean = of_time.iter().sum::<f64>() / n;
    let variance = of_time.iter().map(|added| (added - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let std_error = (variance / n).sqrt();
    assert!(mean - 2.0 * std_error <= 0.002, "{mean} +- {std_error}");
    // Whatever chance does, it stays of that order.
    assert!(mean <= 0.003, "{mean}");
    assert!(0.0005 < of_callers && of_callers <= 0.005, "{of_callers}");
}
