//! Loops with known trip counts, in user code and in a kernel module: iterations, invocations and trip counts, and the
//! cycles of an instruction as the cost model has them.

use std::collections::BTreeMap;

use kernel_tests::accuracy::{Measured, Setup, measure_command};
use kernel_tests::artifacts;
use kernel_tests::durations::Durations;
use kernel_tests::hardware_profile::HardwareProfile;
use kernel_tests::kernel::Kernel;
use serde_json::Value;

use crate::support;

/// How often all loops run, and the rounds of each time: `nested_u` and the parameter of the module.
const TIMES: f64 = 60_000.0;
const ROUNDS: f64 = 10.0;

/// Cycles between two samples of time, instructions between two samples, and taken branches between two stacks.
///
/// Every function then has some twenty thousand samples of each kind and ten thousand stacks, and each loop some thousand stacks with
/// its entry. So chance is at most a third of the errors that are allowed: a CPI that is known to 2 % is off by more than 5 % in one case of a hundred, and
/// there are 72. Where stacks are biased the instructions of a loop are known by samples alone: with half as many, those of the first of
/// two loops of the module were off by 2.4 % on 6.1, with a standard error of 1.3 %.
const TIME: &str = "--time=2503";
const PERIODS: (u64, u64) = (2503, 199);

/// Errors that are allowed for the counts and for the cycles of an instruction.
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
    // Then the cycles of an instruction depend on its class alone.
    let text = support::hardware_profile(hardware_profile) + "\ntaken_cycles = 0\n";
    let mut setup = Setup::new(text.clone());
    setup.options = vec![TIME.to_owned()];
    (setup.period, setup.branch_period) = PERIODS;
    let mut machine = setup.prepare(machine);
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

/// Cycles of the instructions of a function, by address.
fn durations(measured: &Measured, function: &str, hardware_profile: &str) -> BTreeMap<u64, f64> {
    let mut durations = Durations::new(&HardwareProfile::parse(hardware_profile).unwrap());
    let lines = support::annotated(measured, function);
    lines
        .iter()
        .map(|(instruction, _)| (instruction.ip(), f64::from(durations.of(instruction))))
        .collect()
}

/// A loop as it was built: its code, and how often it went round.
struct Built {
    code: std::ops::RangeInclusive<u64>,
    iterations: f64,
}

/// Cycles for each instruction of a loop: each of its instructions was executed as often as the innermost loop that
/// holds it.
fn exact_cpi(of: &Built, built: &[Built], durations: &BTreeMap<u64, f64>) -> f64 {
    let (mut cycles, mut executions) = (0.0, 0.0);
    for (at, duration) in durations.range(of.code.clone()) {
        let holding = built.iter().filter(|it| it.code.contains(at));
        let ran = holding.map(|it| it.iterations).fold(0.0, f64::max);
        (cycles, executions) = (cycles + duration * ran, executions + ran);
    }
    cycles / executions
}

/// A figure of a loop and its true value.
struct Figure {
    /// Kernel, hardware profile, location, function, loop, and name.
    of: String,
    name: &'static str,
    value: f64,
    error: f64,
    exact: f64,
}

/// All figures of all loops.
fn figures(series: &str, hardware_profile: &str, place: &str) -> Vec<Figure> {
    let Some((measured, text)) = measured(series, hardware_profile, place) else {
        return Vec::new();
    };
    let report = support::printed(&measured, "report", &["--view", "loops", "--top", "all"]);
    let found = report["loops"][0]["loops"].as_array().unwrap();
    let mut figures = Vec::new();
    for (function, expected) in expected() {
        let mut own: Vec<&Value> = found.iter().filter(|it| it["function"] == function).collect();
        assert_eq!(own.len(), expected.len(), "{function}: {own:#?}");
        // Outer ones first, then along the code: so they are written above.
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
        for (n, ((it, (invocations, trips)), own)) in own.iter().zip(&expected).zip(&built).enumerate() {
            let exact = [
                ("iterations", invocations * trips),
                ("invocations", *invocations),
                ("trips", *trips),
                ("cpi", exact_cpi(own, &built, &durations)),
            ];
            let number = |name: &str, part: &str| it[name][part].as_f64().unwrap_or(f64::NAN);
            figures.extend(exact.map(|(name, exact)| Figure {
                of: format!("{series} {hardware_profile} {place}: {function}, loop {n}: {name}"),
                name,
                value: number(name, "value"),
                error: number(name, "std_error"),
                exact,
            }));
        }
    }
    figures
}

impl Figure {
    fn off(&self) -> f64 {
        (self.value / self.exact - 1.0).abs()
    }

    /// What the issue allows.
    fn allowed(&self) -> f64 {
        if self.name == "cpi" { CPI } else { COUNTS }
    }

    fn is_within(&self, most: f64) -> bool {
        println!(
            "{} {:.3} ±{:.3}, exact {:.3}, off {:+.2} %",
            self.of,
            self.value,
            self.error,
            self.exact,
            100.0 * (self.value / self.exact - 1.0)
        );
        self.off() <= most
    }
}

/// Checks that each figure is off by no more than is allowed for it.
fn check(figures: &[Figure], allowed: impl Fn(&Figure) -> f64) {
    let wrong: Vec<&str> = figures
        .iter()
        .filter(|it| !it.is_within(allowed(it)))
        .map(|it| it.of.as_str())
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
#[ignore = "runs in --all"]
fn loops_of_user_code_have_their_trips_and_cycles() {
    for series in support::SERIES {
        check(&figures(series, "ideal", "user"), Figure::allowed);
    }
}

#[test]
fn loops_of_a_module_have_their_trips_and_cycles() {
    for series in support::SERIES {
        check(&figures(series, "ideal", "kernel"), Figure::allowed);
    }
}

/// Where events skid and branches stick to the oldest entry of stacks of sixteen, CPI is as true as on a machine without faults.
/// How often loops went round and were entered is not: the report has to say how far off it can be. Which run of the machine
/// it is decides by how much, so that each build has other figures: three of the stated errors are allowed.
#[test]
#[ignore = "runs in --all"]
fn loops_are_as_exact_as_sticking_branches_allow() {
    for series in support::SERIES {
        for place in ["user", "kernel"] {
            check(&figures(series, "ivb", place), |it| {
                let stated = 3.0 * it.error / it.exact;
                it.allowed().max(if it.name == "cpi" { 0.0 } else { stated })
            });
        }
    }
}
