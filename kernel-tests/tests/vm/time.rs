//! Where no PMU is, the report shows time: its shares are those of exact cycles, by instruction.
//!
//! The clock is the timer of cycles (`clock.rs`); with the emulator's own clocks, these tests would prove nothing.

use std::collections::BTreeMap;
use std::process::Command;

use iced_x86::{Decoder, DecoderOptions};
use kernel_tests::artifacts;
use kernel_tests::durations::Durations;
use kernel_tests::hardware_profile::HardwareProfile;
use kernel_tests::machine::{Machine, Marks};
use kernel_tests::outcome::Outcome;
use kernel_tests::reference::KERNEL;
use serde_json::Value;

use crate::support;

/// Cycles between two samples.
const PERIOD: u64 = 10_007;

/// Points by which a share of time may be off.
const BOUND: f64 = 3.0;

/// The cycles of a taken branch are not in the reference, which counts blocks.
const HARDWARE_PROFILE: &str = "taken_cycles = 0\n";

const RINGS: [&str; 2] = ["kernel", "user"];

/// Time by ring and mnemonic.
type Times = BTreeMap<(&'static str, String), f64>;

fn exact(outcome: &Outcome) -> Times {
    let mut durations = Durations::new(&HardwareProfile::parse(HARDWARE_PROFILE).unwrap());
    let mut times = Times::new();
    for block in outcome.reference().unwrap().blocks {
        let ring = if block.owner == KERNEL { "kernel" } else { "user" };
        for instruction in Decoder::with_ip(64, &block.bytes, block.start, DecoderOptions::NONE) {
            let cycles = u64::from(durations.of(&instruction)) * block.executions;
            let mnemonic = format!("{:?}", instruction.mnemonic()).to_uppercase();
            *times.entry((ring, mnemonic)).or_default() += cycles as f64;
        }
    }
    times
}

fn reported(outcome: &Outcome) -> Times {
    let profile = outcome.directory().join("profile");
    std::fs::write(&profile, &outcome.files["profile"]).unwrap();
    let mut report = Command::new(artifacts::hbbp_sys().unwrap());
    report
        .arg("report")
        .arg(&profile)
        .args(["--by", "mnemonic", "--top", "1000", "--format", "json"]);
    let output = report.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["mix"]["unit"], "time_weighted_samples");
    let mut times = Times::new();
    for row in report["mix"]["rows"].as_array().unwrap() {
        let mnemonic = row["key"][0].as_str().unwrap();
        for ring in RINGS {
            let amount = row[ring]["amount"].as_f64().unwrap();
            times.insert((ring, mnemonic.to_owned()), amount);
        }
    }
    times
}

/// Shares of a ring's time, in percent.
fn shares(times: &Times, ring: &str) -> BTreeMap<String, f64> {
    let of_ring = times.iter().filter(|((of, _), _)| *of == ring);
    let all: f64 = of_ring.clone().map(|(_, time)| time).sum();
    of_ring
        .map(|((_, mnemonic), time)| (mnemonic.clone(), time / all * 100.0))
        .collect()
}

/// Measures a load with the clock, and compares the shares of a ring's time.
fn assert_shares_are_those_of_cycles(mut machine: Machine, load: &str, ring: &str) {
    machine.files().hbbp_sys().unwrap();
    let machine = machine
        .marks(Marks::Events)
        .hardware_profile(HARDWARE_PROFILE)
        .driver("clock=1 name=hidden");
    let command =
        format!("hbbp-sys record -o /out/profile --all --event cpu-clock --period {PERIOD} -- {load}");
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", &command]).unwrap();
    outcome.stdout().unwrap();
    assert_eq!(outcome.counters().unwrap()["anomalies"], 0);
    let (exact, reported) = (exact(&outcome), reported(&outcome));
    let samples: f64 = reported
        .iter()
        .filter(|((of, _), _)| *of == ring)
        .map(|(_, n)| n)
        .sum();
    let (exact, reported) = (shares(&exact, ring), shares(&reported, ring));
    let mut largest: Vec<(&String, f64)> = exact
        .keys()
        .chain(reported.keys().filter(|mnemonic| !exact.contains_key(*mnemonic)))
        .map(|mnemonic| {
            let share = |of: &BTreeMap<String, f64>| of.get(mnemonic).copied().unwrap_or(0.0);
            (mnemonic, share(&reported) - share(&exact))
        })
        .collect();
    largest.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    println!("{load}: {samples} samples of {ring} code");
    for (mnemonic, off) in largest.iter().take(4) {
        let share = exact.get(*mnemonic).copied().unwrap_or(0.0);
        println!("  {mnemonic}: {share:.2} % of the cycles, off by {off:+.2} points");
    }
    let (mnemonic, off) = largest[0];
    assert!(off.abs() < BOUND, "{load}: {mnemonic} is off by {off:+.2} points");
}

#[test]
fn time_of_slow_instructions_is_theirs() {
    for load in [
        "waits divisions 2000000",
        "waits multiplications 6000000",
        "waits misses 300000",
        "waits locked 1000000",
    ] {
        let Some(mut machine) = support::machine("6.12") else {
            return;
        };
        support::add_workload(&mut machine, "waits.c");
        assert_shares_are_those_of_cycles(machine, load, "user");
    }
}
