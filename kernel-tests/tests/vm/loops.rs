//! Loops with known trip counts, in user code and in a kernel module: iterations, invocations and trip counts, and the
//! cycles of an instruction as the cost model has them.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use iced_x86::{Decoder, DecoderOptions};
use kernel_tests::accuracy::{Measured, Setup, measure_command};
use kernel_tests::artifacts;
use kernel_tests::durations::Durations;
use kernel_tests::hardware_profile::HardwareProfile;
use kernel_tests::kernel::Kernel;
use kernel_tests::machine::Marks;
use serde_json::Value;

use crate::support;

/// How often all loops run, and the rounds of each time: `nested_u` and the parameter of the module.
const TIMES: f64 = 24_000.0;
const ROUNDS: f64 = 10.0;

/// Cycles between two samples of time, instructions between two samples, and taken branches between two stacks: some ten
/// thousand of each in every function, and some thousand stacks with the entry of each loop, so that chance is a third of the
/// errors that are allowed.
const TIME: &str = "--time=5003";
const PERIODS: (u64, u64) = (5003, 101);

/// Errors that are allowed for the counts and for the cycles of an instruction (issue 19: 3 % and 5 %).
const COUNTS: f64 = 0.03;
const CPI: f64 = 0.05;

/// The loops of each function, outer ones first: times that it was entered, and trips.
fn expected() -> BTreeMap<&'static str, Vec<(f64, f64)>> {
    let all = TIMES * ROUNDS;
    BTreeMap::from([
        ("nested1", vec![(TIMES, ROUNDS), (all, 20.0)]),
        ("nested2", vec![(TIMES, ROUNDS), (all, 17.0), (all, 12.0)]),
        ("nested3", vec![(TIMES, ROUNDS), (all, 10.0), (all * 10.0, 11.0)]),
        ("figure1", vec![(TIMES, ROUNDS), (all, 16.0)]),
        // A tenth of the rounds calls itself nine times.
        ("recursive", vec![(all, 8.0)]),
    ])
}

fn measured(series: &str, hardware_profile: &str, place: &str) -> Option<(Measured, String)> {
    let machine = support::machine(series)?;
    let profile = artifacts::package()
        .join("hardware-profiles")
        .join(hardware_profile);
    // Then the cycles of an instruction depend on its class alone.
    let text = fs::read_to_string(profile).unwrap() + "\ntaken_cycles = 0\n";
    let mut setup = Setup::new(text.clone());
    setup.options = vec![TIME.to_owned()];
    (setup.period, setup.branch_period) = PERIODS;
    let mut machine = machine
        .clock(setup.clock)
        .marks(Marks::Events)
        .hardware_profile(&setup.hardware_profile);
    support::add_workload(&mut machine, "nested_u.c");
    let kernel = Kernel::get(series).unwrap();
    machine
        .module(&artifacts::module("workloads/nested", "nested", &kernel).unwrap())
        .unwrap();
    let command = match place {
        "kernel" => format!("echo {ROUNDS} > /sys/module/nested/parameters/rounds; nested_u {TIMES} kernel"),
        _ => format!("nested_u {TIMES} {ROUNDS}"),
    };
    let measured = measure_command(machine, &["/bin/busybox", "sh", "-c", &command], &setup).unwrap();
    Some((measured, text))
}

fn printed(measured: &Measured, command: &str, words: &[&str]) -> Value {
    let mut program = Command::new(artifacts::hbbp_sys().unwrap());
    let output = program
        .arg(command)
        .arg(measured.profile())
        .args(words)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Cycles of the instructions of a function, by address.
fn durations(measured: &Measured, function: &str, hardware_profile: &str) -> BTreeMap<u64, f64> {
    let annotated = printed(measured, "annotate", &[function, "--format", "json"]);
    let mut durations = Durations::new(&HardwareProfile::parse(hardware_profile).unwrap());
    let versions = annotated["functions"][0]["versions"].as_array().unwrap();
    let instructions = versions
        .iter()
        .flat_map(|version| version["instructions"].as_array().unwrap());
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let cycles = instructions.map(|line| {
        let bytes = line["bytes"].as_str().unwrap().replace(' ', "");
        let bytes: Vec<u8> = (0..bytes.len() / 2)
            .map(|n| hex(&bytes[2 * n..2 * n + 2]) as u8)
            .collect();
        let decoded = Decoder::new(64, &bytes, DecoderOptions::NONE).decode();
        (
            hex(line["address"].as_str().unwrap()),
            f64::from(durations.of(&decoded)),
        )
    });
    cycles.collect()
}

/// A loop as it was built: its code, and how often it went round.
struct Built {
    code: std::ops::RangeInclusive<u64>,
    iterations: f64,
}

/// Cycles for each instruction of a loop: each of its instructions ran as often as the innermost loop that holds it.
fn exact_cpi(of: &Built, built: &[Built], durations: &BTreeMap<u64, f64>) -> f64 {
    let (mut cycles, mut executions) = (0.0, 0.0);
    for (at, duration) in durations.range(of.code.clone()) {
        let holding = built.iter().filter(|it| it.code.contains(at));
        let ran = holding.map(|it| it.iterations).fold(0.0, f64::max);
        (cycles, executions) = (cycles + duration * ran, executions + ran);
    }
    cycles / executions
}

fn check(series: &str, hardware_profile: &str, place: &str) {
    let Some((measured, text)) = measured(series, hardware_profile, place) else {
        return;
    };
    let report = printed(
        &measured,
        "report",
        &["--view", "loops", "--top", "all", "--format", "json"],
    );
    let found = report["loops"][0]["loops"].as_array().unwrap();
    let mut wrong = Vec::new();
    for (function, expected) in expected() {
        let own: Vec<&Value> = found.iter().filter(|it| it["function"] == function).collect();
        assert_eq!(own.len(), expected.len(), "{function}: {own:#?}");
        let number = |it: &Value, name: &str| it[name]["value"].as_f64().unwrap_or(f64::NAN);
        // Outer ones first, then along the code: so they are written above.
        let mut own = own;
        own.sort_by_key(|it| (it["depth"].as_u64(), it["header"].as_u64()));
        let built: Vec<Built> = own
            .iter()
            .zip(&expected)
            .map(|(it, (invocations, trips))| Built {
                code: it["header"].as_u64().unwrap()..=it["tail"].as_u64().unwrap(),
                iterations: invocations * trips,
            })
            .collect();
        let durations = durations(&measured, function, &text);
        for ((it, (invocations, trips)), own) in own.iter().zip(&expected).zip(&built) {
            let cpi = exact_cpi(own, &built, &durations);
            // A loop that goes a thousand rounds is entered in too few stacks to tell.
            let is_rare = *invocations <= TIMES;
            let figures = [
                ("iterations", invocations * trips, COUNTS, false),
                ("invocations", *invocations, COUNTS, is_rare),
                ("trips", *trips, COUNTS, is_rare),
                ("cpi", cpi, CPI, false),
            ];
            for (name, exact, most, is_rare) in figures {
                let (value, error) = (
                    number(it, name),
                    it[name]["std_error"].as_f64().unwrap_or(f64::NAN),
                );
                let off = value / exact - 1.0;
                println!(
                    "{series} {hardware_profile} {place}: {function} depth {}: {name} {value:.3} ±{error:.3}, exact {exact:.3}, off {:+.2} %",
                    it["depth"],
                    100.0 * off
                );
                // Of branches that stick, stacks of sixteen entries show loops of more rounds too often or too seldom, by up
                // to a half in `nested2`: then what is sure is the time of whole nests.
                let is_told = hardware_profile == "ideal" || name == "cpi" && it["depth"] == 0;
                if is_told && !is_rare && (off.is_nan() || most < off.abs()) {
                    wrong.push(format!("{function} {name}: {value}, exact {exact}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn loops_of_user_code_have_their_trips_and_cycles() {
    for series in support::SERIES {
        check(series, "ideal", "user");
    }
}

#[test]
fn loops_of_a_module_have_their_trips_and_cycles() {
    for series in support::SERIES {
        check(series, "ideal", "kernel");
    }
}

#[test]
fn nests_have_their_cycles_where_events_skid_and_branches_stick() {
    for place in ["user", "kernel"] {
        check("6.12", "ivb", place);
    }
}
