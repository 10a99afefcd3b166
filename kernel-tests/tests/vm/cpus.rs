//! CPUs that go and come during a run.

use kernel_tests::machine::Clock;
use serde_json::Value;

use crate::support;

/// A CPU goes offline and comes back: its events are opened anew, the time without them is stated, and all sums close.
#[test]
#[ignore = "runs in --all"]
fn cpu_that_comes_back_is_measured_again() {
    const SCRIPT: &str = "set -e
hbbp-sys record --event cpu-clock --period 1000003 --all -o /tmp/profile -- busybox sh -c '
  read begin rest < /proc/uptime
  for i in 1 2; do busybox sh -c \"while :; do :; done\" & done
  busybox sleep 2
  read went rest < /proc/uptime
  echo $begin $went
  echo 0 > /sys/devices/system/cpu/cpu2/online
  busybox sleep 5
  echo 1 > /sys/devices/system/cpu/cpu2/online
  busybox sleep 12
  kill %1 %2'
hbbp-sys report --format json /tmp/profile";
    let Some(machine) = support::machine("6.12") else {
        return;
    };
    // By its instructions, a CPU that spins takes minutes for seconds.
    let mut machine = machine.without_driver().cpus(4).clock(Clock::Host);
    machine.files().hbbp_sys().unwrap();
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", SCRIPT]).unwrap();
    let said = outcome.stdout().unwrap();
    let (times, report) = said.split_once('\n').unwrap();
    let times: Vec<f64> = times.split(' ').map(|time| time.parse().unwrap()).collect();
    let report: Value = serde_json::from_str(report).unwrap();
    let notes = report["run"]["notes"].to_string() + &report["warnings"].to_string();
    let said = notes.split("CPU 2 went offline or came online: of ").nth(1);
    let said = said.unwrap_or_else(|| panic!("{report:#}"));
    let numbers: Vec<u64> = said
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .take(3)
        .collect();
    let [all, measured, missed] = numbers.as_slice() else {
        panic!("{said}")
    };
    println!("CPU 2: of {all} ms measured for {measured} ms, up to {missed} ms unmeasured");
    // It came back at least some seconds before the end, so that it was measured for longer than until it went.
    let before = (times[1] - times[0]) * 1000.0;
    assert!(
        before + 1_000.0 < *measured as f64,
        "{before} ms before it went, {said}"
    );
    // It was offline for some seconds by the clock of the guest, and measured before and after.
    assert!(0 < *measured && *measured + 1_000 < *all, "{said}");
    assert!(0 < *missed && *measured + *missed <= *all, "{said}");
    let accounting = &report["accounting"];
    assert_eq!(accounting["unexplained"], 0, "{report:#}");
    let number = |name: &str| accounting[name].as_u64().unwrap();
    assert_eq!(
        number("due") + number("beyond"),
        number("reached") + number("idle") + number("skipped"),
        "{report:#}"
    );
    let counter_time = report["events"][0]["due"].as_u64().unwrap();
    assert!(measured * 3 < counter_time, "{report:#}");
}

/// The least share of their executions that the note on new CPUs says was measured; all without a note.
fn measured_share(report: &Value) -> f64 {
    let warnings = report["warnings"].as_array().unwrap();
    let mut texts = warnings.iter().filter_map(|warning| warning["text"].as_str());
    let Some(note) = texts.find(|text| text.contains("ran unmeasured")) else {
        return 1.0;
    };
    let times: Vec<f64> = note.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [_, _, measured, unmeasured] = times[..] else {
        panic!("{note}")
    };
    measured / (measured + unmeasured)
}

/// A CPU that was offline at the start has a ring of branch stacks when it comes, and what runs there is counted.
#[test]
#[ignore = "runs in --all"]
fn cpu_that_comes_late_has_a_slot_for_its_stacks() {
    const SCRIPT: &str = "set -e
hbbp-sys record --all --period 100003 --branch-period 10007 -o /tmp/profile -- busybox sh -c '
  busybox taskset 1 heapsort 200000
  echo 1 > /sys/devices/system/cpu/cpu2/online
  busybox sleep 2
  busybox taskset 4 heapsort 200000'
hbbp-sys report --format json --rows process /tmp/profile";
    let Some(machine) = support::machine("6.12") else {
        return;
    };
    let hardware_profile = support::hardware_profile("ideal");
    let mut machine = machine
        .cpus(3)
        .kernel_parameters("maxcpus=2")
        .hardware_profile(&hardware_profile);
    support::add_workload(&mut machine, "heapsort.c");
    machine.files().hbbp_sys().unwrap();
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", SCRIPT]).unwrap();
    let said = outcome.stdout().unwrap();
    let report: Value = serde_json::from_str(said.get(said.find('{').unwrap()..).unwrap()).unwrap();
    let rows = report["mix"]["rows"].as_array().unwrap();
    let sorts = rows
        .iter()
        .filter(|row| row["key"][0].as_str().unwrap().starts_with("heapsort"));
    let user = |row: &Value| {
        let [amount, error] = ["amount", "std_error"].map(|name| row["user"][name].as_f64().unwrap());
        (amount, error)
    };
    let sorts: Vec<(f64, f64)> = sorts.map(user).collect();
    println!("heapsort before and after: {sorts:?}");
    let [(before, error_before), (after, error_after)] = sorts[..] else {
        panic!("{report:#}")
    };
    let error = error_before.hypot(error_after);
    assert!(
        error < 0.1 * before && (before - after).abs() < 5.0 * error,
        "{report:#}"
    );
    let stacks = &report["events"][1];
    assert_eq!(stacks["branch_stack"], true, "{report:#}");
    let [runs, due] = ["runs", "due"].map(|name| stacks[name].as_f64().unwrap());
    // What was executed before the events were opened is stated, and due: on a busy host it can be a third of all
    // executions of the CPU.
    assert!(0.9 * due * measured_share(&report) < runs, "{report:#}");
    let losses = report["losses"].as_array().unwrap();
    assert!(!losses.iter().any(|loss| loss["unit"] == "sample"), "{report:#}");
    assert_eq!(report["accounting"]["unexplained"], 0, "{report:#}");
}
