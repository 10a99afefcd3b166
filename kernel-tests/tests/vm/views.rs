//! Views of a profile against exact counts: what mitigations cost between two boots, and a module on its page.

use std::fs;
use std::process::Command;

use kernel_tests::accuracy::{Measured, Setup, measure_command};
use kernel_tests::artifacts;
use kernel_tests::kernel::Kernel;
use kernel_tests::machine::Marks;
use serde_json::Value;

use crate::support;

/// System calls, context switches, indirect calls and returns, as many on each boot.
const LOAD: &str = "storms syscalls 20000; storms turns 10000; storms files 1000";

/// A difference is worth comparing where it is this part of the kernel's instructions.
const WORTH: f64 = 0.005;

/// The report of a profile with a view.
fn view(measured: &Measured, name: &str) -> Value {
    let mut report = Command::new(artifacts::hbbp_sys().unwrap());
    report
        .args(["report", "--format", "json", "--top", "all", "--view", name])
        .arg(measured.profile());
    serde_json::from_slice(&report.output().unwrap().stdout).unwrap()
}

/// What one boot executed in the kernel: exactly, and for mitigations by the view.
struct Boot {
    kernel: f64,
    mitigations: f64,
}

fn boot(series: &str, hardware_profile: &str, parameters: &str) -> Option<Boot> {
    let machine = support::machine(series)?;
    let profile = artifacts::package()
        .join("hardware-profiles")
        .join(hardware_profile);
    let mut setup = Setup::new(fs::read_to_string(profile).unwrap());
    // What mitigations cost is under a hundredth of what runs, so that it takes more samples to tell it within 5 %.
    (setup.period, setup.branch_period) = (2503, 251);
    let mut machine = machine
        .clock(setup.clock)
        .marks(Marks::Events)
        .kernel_parameters(parameters)
        .hardware_profile(&setup.hardware_profile);
    support::add_workload(&mut machine, "storms.c");
    let measured = measure_command(machine, &["/bin/busybox", "sh", "-c", LOAD], &setup).unwrap();
    let report = view(&measured, "mitigations");
    for row in report["mix"]["rows"].as_array().unwrap() {
        println!(
            "{series} [{parameters}] {} {:.0}",
            row["key"],
            row["kernel"]["amount"].as_f64().unwrap()
        );
    }
    let kernel = measured.rings.named("kernel").unwrap().instructions.reference;
    let mitigations = report["mix"]["total"]["kernel"]["amount"].as_f64().unwrap();
    println!(
        "{series} {hardware_profile} [{parameters}]: {kernel} instructions, {mitigations:.0} for mitigations"
    );
    Some(Boot { kernel, mitigations })
}

/// The difference of two boots in exact counts is the difference of their views.
#[track_caller]
fn compare(off: &Boot, on: &Boot) {
    let (exact, seen) = (on.kernel - off.kernel, on.mitigations - off.mitigations);
    println!(
        "exact difference {exact:.0} ({:.4} of the kernel), by the views {seen:.0}",
        exact / on.kernel
    );
    if WORTH * on.kernel < exact {
        assert!((seen - exact).abs() <= 0.05 * exact, "{seen} instead of {exact}");
    }
}

fn mitigations(series: &str) {
    let Some(off) = boot(series, "ideal", "mitigations=off") else {
        return;
    };
    for parameters in ["", "spectre_v2=retpoline"] {
        compare(&off, &boot(series, "ideal", parameters).unwrap());
    }
}

#[test]
fn mitigations_cost_what_boots_differ_by_on_6_1() {
    mitigations("6.1");
}

#[test]
fn mitigations_cost_what_boots_differ_by_on_6_12() {
    mitigations("6.12");
}

/// The page of a module has its instructions, its functions, and what it calls.
#[test]
fn page_of_a_module_is_exact_within_one_percent() {
    for series in support::SERIES {
        let Some(machine) = support::machine(series) else {
            continue;
        };
        let profile = artifacts::package().join("hardware-profiles/ideal");
        let setup = Setup::new(fs::read_to_string(profile).unwrap());
        let mut machine = machine
            .clock(setup.clock)
            .marks(Marks::Events)
            .hardware_profile(&setup.hardware_profile);
        support::add_workload(&mut machine, "hello_u.c");
        let kernel = Kernel::get(series).unwrap();
        let module = artifacts::module("workloads/hello", "hello", &kernel).unwrap();
        machine.module(&module).unwrap();
        let load = "hello_u 20000 60 kernel";
        let measured = measure_command(machine, &["/bin/busybox", "sh", "-c", load], &setup).unwrap();
        let in_module = measured
            .functions
            .groups
            .iter()
            .filter(|group| group.key[1] == "hello");
        let exact: f64 = in_module.map(|group| group.instructions.reference).sum();
        let report = view(&measured, "module:hello");
        let amount = |table: &Value| table["total"]["kernel"]["amount"].as_f64().unwrap();
        let seen = amount(&report["mix"]);
        println!("{series}: module hello: {exact} instructions, {seen:.0} on its page");
        assert!((seen - exact).abs() <= 0.01 * exact, "{seen} instead of {exact}");
        // Functions, blocks and mnemonics are the same instructions.
        for table in &report["tables"].as_array().unwrap()[..2] {
            assert!((amount(table) - seen).abs() <= 1e-6 * seen);
        }
        let functions = report["mix"]["rows"].as_array().unwrap();
        assert!(
            functions.iter().any(|row| row["key"][1] == "hello_k"),
            "{functions:?}"
        );
    }
}
