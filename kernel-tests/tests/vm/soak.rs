//! A daemon with branch stacks on four CPUs, among all that goes on at once: processes, mappings, modules and BPF programs come
//! and go, and a CPU goes offline and online.

use kernel_tests::artifacts;
use kernel_tests::kernel::Kernel;
use kernel_tests::machine::Machine;
use serde_json::Value;

use crate::support;

/// Seconds of guest time, unless HBBP_SOAK says otherwise.
const SECONDS: u64 = 48;

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// Times that memory and CPU time are looked at.
const MARKS: u64 = 12;

/// The guest's part: `seconds` of churn with a daemon, with anonymous memory and CPU time at each mark.
fn churn(seconds: u64) -> String {
    format!(
        "set -e
hbbp-sys daemon --dir /tmp/segments --interval 4s &
daemon=$!
busybox sleep 8
busybox sh -c 'while :; do storms forks 50; busybox sleep 0.3; done' &
busybox sh -c 'while :; do storms page-faults 20; storms files 50; busybox sleep 0.3; done' &
busybox sh -c 'while :; do storms modules 4 /opt/hello.ko; busybox sleep 1; done' &
busybox sh -c 'while :; do busybox sleep 6; hbbp-sys record --duration 1 -o /tmp/beside; done' > /dev/null 2>&1 &
busybox sh -c 'while :; do busybox sleep 7; echo 0 > /sys/devices/system/cpu/cpu2/online
  busybox sleep 3; echo 1 > /sys/devices/system/cpu/cpu2/online; done' &
for mark in $(busybox seq {MARKS}); do
  busybox sleep {}
  busybox awk '/RssAnon/ {{ printf \"%s \", $2 }}' /proc/$daemon/status
  busybox awk '{{ print $14 + $15 }}' /proc/$daemon/stat
done
kill %2 %3 %4 %5 %6
kill $daemon
wait $daemon
busybox ls /tmp/segments
echo report
hbbp-sys report --format json --top 1 /tmp/segments",
        seconds.div_ceil(MARKS)
    )
}

/// Numbers of the intervals of segments, by their names: the last part is one number, or the first and the last.
fn intervals<'a>(names: impl Iterator<Item = &'a str>) -> Vec<u64> {
    let numbers = names
        .filter_map(|name| name.strip_suffix(".hbbp"))
        .flat_map(|name| {
            let (_, numbers) = name.rsplit_once('.').unwrap();
            let (first, last) = numbers.split_once('-').unwrap_or((numbers, numbers));
            first.parse::<u64>().unwrap()..=last.parse().unwrap()
        });
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    numbers
}

/// No interval is missing, all samples are accounted for, memory does not grow, and the kernel does not complain.
#[test]
#[ignore = "runs in --all"]
fn daemon_among_everything_at_once_keeps_every_interval() {
    let Some(machine) = support::machine("6.12") else {
        return;
    };
    let seconds: u64 = std::env::var("HBBP_SOAK").map_or(SECONDS, |n| n.parse().unwrap());
    let kernel = Kernel::get("6.12").unwrap();
    let limit = std::time::Duration::from_secs(3 * seconds + 600);
    let mut machine = machine.cpus(4).limit(limit);
    machine.files().hbbp_sys().unwrap();
    let module = artifacts::module("workloads/hello", "hello", &kernel).unwrap();
    machine.files().copy("opt/hello.ko", &module).unwrap();
    support::add_workload(&mut machine, "storms.c");
    let outcome = machine
        .run(&["/bin/busybox", "sh", "-c", &churn(seconds)])
        .unwrap();
    let (said, stdout) = (outcome.text("stderr").unwrap(), outcome.stdout().unwrap());
    let (before, report) = stdout.split_once("report\n").unwrap();
    let report: Value = serde_json::from_str(report).unwrap();
    let (marks, names): (Vec<&str>, Vec<&str>) = before.lines().partition(|line| line.contains(' '));
    let anonymous = marks.iter().map(|mark| mark.split(' ').next().unwrap());
    let anonymous: Vec<u64> = anonymous.map(|it| it.parse().unwrap()).collect();
    println!("kB of anonymous memory, and ticks of CPU time: {marks:?}");
    println!("{said}\n{:#}\n{:#}", report["accounting"], report["warnings"]);
    assert!(!said.contains("failed"), "{said}");
    for sign in ["BUG:", "WARNING:", "Oops", "Call Trace"] {
        assert!(!outcome.log.contains(sign), "{}", outcome.log);
    }
    let numbers = intervals(names.into_iter());
    assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "{numbers:?}");
    let accounting = &report["accounting"];
    assert_eq!(accounting["unexplained"], 0, "{report:#}");
    assert!(0 < accounting["reached"].as_u64().unwrap(), "{report:#}");
    let events = report["events"].as_array().unwrap();
    assert!(
        events.iter().any(|event| event["unit"] == "taken_branches"),
        "{report:#}"
    );
    // The minimum over the last quarter and over the second: what an interval takes for a moment comes and goes.
    let least = |marks: &[u64]| marks.iter().copied().min().unwrap();
    let (second, last) = (least(&anonymous[3..6]), least(&anonymous[9..]));
    assert!(last * 4 <= second * 5, "{second} kB, then {last} kB");
}

/// What a daemon left.
struct Left {
    /// What it said.
    said: String,
    /// How many intervals: each is there once.
    n_intervals: u64,
    /// The runs of the report of all segments.
    runs: Vec<Value>,
}

/// A daemon with these options in a guest, while a script runs.
fn left(mut machine: Machine, options: &str, meanwhile: &str) -> Left {
    let script = format!(
        "set -e
hbbp-sys daemon --dir /tmp/segments {options} &
daemon=$!
{meanwhile}
kill $daemon
wait $daemon
busybox ls /tmp/segments
echo report
hbbp-sys report --format json --top 1 /tmp/segments"
    );
    machine.files().hbbp_sys().unwrap();
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", &script]).unwrap();
    let said = outcome.text("stderr").unwrap();
    let stdout = outcome.stdout().unwrap();
    let (names, report) = stdout.split_once("report\n").unwrap();
    println!("{said}\n{names}");
    let numbers = intervals(names.lines());
    let n_intervals = numbers.len() as u64;
    assert!(numbers.iter().copied().eq(0..n_intervals), "{numbers:?}");
    let mut report: Value = serde_json::from_str(report).unwrap();
    let others = report["others"].take();
    let runs: Vec<Value> = [report]
        .into_iter()
        .chain(others.as_array().unwrap().iter().cloned())
        .collect();
    for run in &runs {
        assert_eq!(run["accounting"]["unexplained"], 0, "{run:#}");
    }
    Left {
        said,
        n_intervals,
        runs,
    }
}

/// The date steps forward and back: each interval occurs once, and the whole folder is read.
#[test]
#[ignore = "runs in --all"]
fn steps_of_the_date_lose_no_interval() {
    const STEPS: &str = "busybox sleep 5
busybox date -s '2026-01-01 09:30:00' > /dev/null
busybox sleep 4
busybox date -s '2025-12-31 22:15:00' > /dev/null
busybox sleep 4
busybox date -s '2026-01-01 09:30:02' > /dev/null
busybox sleep 4";
    let Some(machine) = support::machine("6.12") else {
        return;
    };
    let left = left(machine.without_driver(), "--interval 1s --cpu-budget 100%", STEPS);
    assert!(15 <= left.n_intervals, "{}", left.n_intervals);
    // The daemon begins a new run after each step of the clock, as it does after a suspend.
    assert_eq!(left.runs.len(), 4, "{:#?}", left.runs);
    // A clock of a thousand samples a second.
    let due = left
        .runs
        .iter()
        .map(|it| it["accounting"]["due"].as_u64().unwrap());
    let due: u64 = due.sum();
    assert!((15_000..20_000).contains(&due), "{:#?}", left.runs);
    assert!(!left.said.contains("lost"), "{}", left.said);
}

/// The machine sleeps (the kernel's own test of it, which stops devices, CPUs and clocks and starts them again after ten
/// seconds): the daemon goes on by itself in a run of its own, the time between is stated, and nothing is unexplained.
/// Five seconds, the default, may be reported as four, which are taken for an adjusted clock: the kernel knows them to one.
#[test]
#[ignore = "runs in --all"]
fn machine_that_slept_is_measured_on_in_a_new_run() {
    const SLEEP: &str = "busybox sleep 8
echo 10 > /sys/module/suspend/parameters/pm_test_delay
echo core > /sys/power/pm_test
echo mem > /sys/power/state
busybox sleep 8";
    let Some(machine) = support::machine("6.12") else {
        return;
    };
    let Left { runs, .. } = left(machine.cpus(2), "--interval 3s", SLEEP);
    assert_eq!(runs.len(), 2, "{runs:#?}");
    for run in &runs {
        assert!(3 * SECOND < run["run"]["duration"].as_u64().unwrap(), "{run:#}");
    }
    let warnings = runs[0]["warnings"].as_array().unwrap();
    let texts: Vec<&str> = warnings.iter().map(|it| it["text"].as_str().unwrap()).collect();
    assert!(
        texts.iter().any(|it| it.contains("were not measured")),
        "{texts:?}"
    );
}
