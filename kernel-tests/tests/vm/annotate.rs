//! Annotated code of a kernel function that was patched during the run: each text version with its own counts.

use std::path::Path;
use std::process::Command;

use kernel_tests::accuracy::{Measured, Setup, measure_command};
use kernel_tests::artifacts;
use serde_json::Value;

use crate::support;

/// Switches the tracepoint in the scheduler on and off while bytes go through a pipe from one process to another.
const SCRIPT: &str = "\
t=/sys/kernel/tracing/events/sched/sched_switch/enable
(while [ ! -e /tmp/enough ]; do
  echo 1 > $t; busybox usleep 30000; echo 0 > $t; busybox usleep 30000; echo round >> /tmp/rounds
done) &
storms pipes 12000; busybox touch /tmp/enough; wait; echo $(busybox wc -l < /tmp/rounds) rounds";

/// The function that holds the tracepoint, by the names that compilers give it.
const NAMES: [&str; 2] = ["__schedule", "__schedule.constprop.0"];

fn measured(series: &str) -> Option<Measured> {
    let machine = support::machine(series)?;
    let setup = Setup::new(support::hardware_profile("ideal"));
    let mut machine = setup.prepare(machine);
    support::add_workload(&mut machine, "storms.c");
    Some(measure_command(machine, &["/bin/busybox", "sh", "-c", SCRIPT], &setup).unwrap())
}

/// The only function in what `hbbp-sys annotate` prints.
fn annotated(profile: &Path, name: &str) -> Option<Value> {
    let mut annotate = Command::new(artifacts::hbbp_sys().unwrap());
    annotate
        .arg("annotate")
        .arg(profile)
        .args([name, "--format", "json"]);
    let output = annotate.output().unwrap();
    if !output.status.success() {
        println!("{}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    let mut document: Value = serde_json::from_slice(&output.stdout).unwrap();
    Some(document["functions"][0].take())
}

/// The instructions of a version that were executed: address and bytes.
fn executed(version: &Value) -> Vec<(String, String, f64)> {
    let instructions = version["instructions"].as_array().unwrap().iter();
    let text = |line: &Value, field: &str| line[field].as_str().unwrap().to_owned();
    instructions
        .map(|line| {
            (
                text(line, "address"),
                text(line, "bytes"),
                line["count"].as_f64().unwrap(),
            )
        })
        .filter(|(_, _, count)| 0.0 < *count)
        .collect()
}

#[test]
fn annotate_shows_each_version_of_a_switched_tracepoint() {
    let series = "6.12";
    let Some(measured) = measured(series) else { return };
    let said = measured.outcome.stdout().unwrap();
    println!("{series}: {}", said.trim());
    let found = NAMES
        .into_iter()
        .find_map(|name| Some((name, annotated(measured.profile(), name)?)));
    let (name, function) = found.expect("the scheduler ran");
    let versions = function["versions"].as_array().unwrap();
    let amounts: Vec<f64> = versions
        .iter()
        .map(|version| version["amount"].as_f64().unwrap())
        .collect();
    let valid: Vec<usize> = versions
        .iter()
        .map(|version| version["valid"].as_array().unwrap().len())
        .collect();
    println!("{series}: {name}: instructions by version {amounts:?}, valid {valid:?} times");
    let ran: Vec<&Value> = versions
        .iter()
        .filter(|version| 0.0 < version["amount"].as_f64().unwrap())
        .collect();
    let [off, on] = ran.as_slice() else {
        panic!("{} versions ran", ran.len());
    };
    // What is patched is the NOP or jump of a static key, or the target of a static call: that is the kernel's to choose. Both
    // were executed, each in its own version.
    let on = executed(on);
    let switched: Vec<_> = executed(off)
        .into_iter()
        .filter_map(|(address, bytes, count)| {
            let (_, other, other_count) = on.iter().find(|(at, ..)| *at == address)?;
            (*other != bytes).then(|| (address, bytes, count, other.clone(), *other_count))
        })
        .collect();
    println!("{series}: patched and executed in both versions: {switched:?}");
    assert!(!switched.is_empty(), "no instruction was patched");
    // What the versions count together is what was executed.
    let exact = measured.functions.named(name).unwrap().instructions.reference;
    let share = amounts.iter().sum::<f64>() / exact;
    println!("{series}: {share} of {exact} instructions");
    assert!((share - 1.0).abs() <= 0.05, "{share}");
}
