//! Views of a profile against exact counts: what mitigations cost between two boots, and a module on its page.

use std::collections::HashMap;
use std::process::Command;

use iced_x86::{Decoder, DecoderOptions};
use kernel_tests::accuracy::{Measured, Setup, measure_command};
use kernel_tests::artifacts;
use kernel_tests::kernel::Kernel;
use kernel_tests::machine::Marks;
use kernel_tests::reference::{self, KERNEL, Reference};
use serde_json::Value;

use crate::support;

/// System calls, context switches, indirect calls and returns, as many on each boot.
const LOAD: &str = "storms syscalls 20000; storms turns 10000; storms files 1000";

/// A difference is worth comparing where it is this part of the kernel's instructions.
const WORTH: f64 = 0.005;

/// Periods of branch stacks in taken branches. One may keep step with the load, whose turns are all alike: one boot was off
/// by 5.4 % at 251, and boots at the other two by 1.3 % at most.
const BRANCH_PERIODS: [u64; 3] = [251, 307, 401];

/// The report of a profile with a view.
fn view(measured: &Measured, name: &str) -> Value {
    let mut report = Command::new(artifacts::hbbp_sys().unwrap());
    report
        .args(["report", "--format", "json", "--top", "all", "--view", name])
        .arg(measured.profile());
    serde_json::from_slice(&report.output().unwrap().stdout).unwrap()
}

/// An instruction of the kernel: its address and its bytes.
type At = (u64, Vec<u8>);

/// What one boot executed in the kernel: exactly, and for mitigations by the view.
struct Boot {
    kernel: f64,
    mitigations: f64,
    /// Exact executions of each instruction.
    exact: HashMap<At, u64>,
}

impl Boot {
    /// Executions of the instructions that the other boot did not execute.
    fn apart_from(&self, other: &Self) -> u64 {
        let apart = self.exact.iter().filter(|(at, _)| !other.exact.contains_key(*at));
        apart.map(|(_, executions)| executions).sum()
    }
}

/// How often each instruction of the kernel was executed.
fn executions(reference: &Reference) -> HashMap<At, u64> {
    let mut exact = HashMap::new();
    for block in reference.blocks.iter().filter(|block| block.owner == KERNEL) {
        let mut bytes = block.bytes.as_slice();
        for instruction in Decoder::with_ip(64, &block.bytes, block.start, DecoderOptions::NONE) {
            let (this, after) = bytes.split_at(instruction.len());
            *exact.entry((instruction.ip(), this.to_vec())).or_insert(0) += block.executions;
            bytes = after;
        }
    }
    exact
}

fn boot(series: &str, hardware_profile: &str, parameters: &str, branch_period: u64) -> Option<Boot> {
    let machine = support::machine(series)?;
    let mut setup = Setup::new(support::hardware_profile(hardware_profile));
    // Mitigations are under a hundredth of all executions, so more samples are needed to know them within 5 %.
    (setup.period, setup.branch_period) = (2503, branch_period);
    let mut machine = machine
        .clock(setup.clock)
        .marks(Marks::Events)
        // Addresses are the same on each boot.
        .kernel_parameters(&format!("nokaslr {parameters}"))
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
    let exact = executions(&reference::read(&measured.outcome.directory().join("reference")).unwrap());
    Some(Boot {
        kernel,
        mitigations,
        exact,
    })
}

/// The difference of boots in exact counts is the difference of their views, over all periods. What both kernels hold alike is
/// left out: the scheduler takes other paths on each boot, by more than the bound.
#[track_caller]
fn compare(off: &[Boot], on: &[Boot]) {
    let (mut exact, mut seen, mut kernel) = (0.0, 0.0, 0.0);
    for (off, on) in off.iter().zip(on) {
        let exact_here = on.apart_from(off) as f64 - off.apart_from(on) as f64;
        let seen_here = on.mitigations - off.mitigations;
        println!(
            "exact difference of what one of them alone has {exact_here:.0} ({:.4} of the kernel), by the views {seen_here:.0}; \
             of everything {:.0}",
            exact_here / on.kernel,
            on.kernel - off.kernel
        );
        (exact, seen, kernel) = (exact + exact_here, seen + seen_here, kernel + on.kernel);
    }
    println!("all periods: exact {exact:.0}, by the views {seen:.0}");
    if WORTH * kernel < exact {
        assert!((seen - exact).abs() <= 0.05 * exact, "{seen} instead of {exact}");
    }
}

fn mitigations(series: &str) {
    let boots = |parameters| -> Option<Vec<Boot>> {
        let boots = BRANCH_PERIODS.map(|period| boot(series, "ideal", parameters, period));
        boots.into_iter().collect()
    };
    let Some(off) = boots("mitigations=off") else {
        return;
    };
    for parameters in ["", "spectre_v2=retpoline"] {
        compare(&off, &boots(parameters).unwrap());
    }
}

#[test]
#[ignore = "runs in --all"]
fn mitigations_cost_what_boots_differ_by_on_6_1() {
    mitigations("6.1");
}

#[test]
#[ignore = "runs in --all"]
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
        let setup = Setup::new(support::hardware_profile("ideal"));
        let mut machine = setup.prepare(machine);
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
