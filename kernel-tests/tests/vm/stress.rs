//! What must not lose or change a count: eight CPUs that count in the same maps while these are drained all the time,
//! and a system call that never yields its CPU.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use hbbp_model::profile;
use hbbp_model::snapshot::Snapshot;
use kernel_tests::accuracy::{Setup, measure_command};
use kernel_tests::artifacts;
use kernel_tests::kernel::Kernel;
use kernel_tests::machine::{Clock, Marks};
use kernel_tests::outcome::Outcome;
use serde_json::Value;

use crate::support;

const SERIES: &str = "6.12";

/// Entries of a full stack of `ideal`.
const DEPTH: u64 = 32;

/// Rounds of work of each CPU, unless HBBP_STRESS says otherwise. A round makes a hundred thousand samples and more.
const ROUNDS: u32 = 1;

/// Capacity of the count maps, so small that drains come early, some of them within milliseconds of each other.
///
/// Half of [`MOST_ENTRIES`] streams ask for a drain. The maps are full at times, which has to be counted.
const MOST_ENTRIES: &str = "16384";

/// Works on eight CPUs at once, while a tracepoint is switched on and off, so that kernel code is counted separately each time.
fn script(rounds: u32) -> String {
    format!(
        "set -e
cat > /tmp/work <<'END'
for i in $(busybox seq {rounds}); do
  heapsort 3000
  storms syscalls 300
  storms forks 2
  busybox seq 300 | busybox sort -r | busybox md5sum
done
END
cat > /tmp/all <<'END'
busybox mount -t tracefs none /sys/kernel/tracing
(while :; do
  echo 1 > /sys/kernel/tracing/events/sched/sched_switch/enable; busybox usleep 30000
  echo 0 > /sys/kernel/tracing/events/sched/sched_switch/enable; busybox usleep 30000
done) &
switching=$!
for cpu in 0 1 2 3 4 5 6 7; do
  busybox taskset $((1 << cpu)) busybox sh /tmp/work > /dev/null &
  pids=\"$pids $!\"
done
wait $pids
kill $switching
END
hbbp-sys record -o /out/profile --all --duration 1h --map-entries {MOST_ENTRIES} --period 2003 --branch-period 1009 \
  -- busybox sh /tmp/all > /dev/null
hbbp-sys report --format json --top 1 /out/profile"
    )
    .replace("cat >", "busybox cat >")
}

/// The rows of each interval that represent the same: event, process, address or stream.
fn twice(snapshot: &Snapshot) -> usize {
    let mut n_twice = 0;
    for interval in &snapshot.intervals {
        let mut ips = HashSet::new();
        let known =
            |row: &&hbbp_model::snapshot::IpCount| !ips.insert((row.event, row.process, row.ip, row.exact));
        n_twice += interval.ips.iter().filter(known).count();
        let mut streams = HashSet::new();
        let mut known = |row: &&hbbp_model::snapshot::StreamCount| {
            !streams.insert((row.event, row.process, row.start, row.end, row.source))
        };
        n_twice += interval.streams.iter().filter(|row| known(row)).count();
    }
    n_twice
}

fn losses(report: &Value) -> BTreeMap<&str, u64> {
    let losses = report["losses"].as_array().unwrap().iter();
    losses
        .map(|loss| (loss["id"].as_str().unwrap(), loss["count"].as_u64().unwrap()))
        .collect()
}

fn run(rounds: u32) -> Option<Outcome> {
    let machine = support::machine(SERIES)?;
    let mut machine = machine
        .cpus(8)
        .marks(Marks::Events)
        .hardware_profile(&support::hardware_profile("ideal"))
        .limit(Duration::from_secs(1800 + 60 * u64::from(rounds)));
    for workload in ["heapsort.c", "storms.c"] {
        support::add_workload(&mut machine, workload);
    }
    machine.files().hbbp_sys().unwrap();
    Some(
        machine
            .run(&["/bin/busybox", "sh", "-c", &script(rounds)])
            .unwrap(),
    )
}

/// Every sample that the driver delivered is counted once, refused or skipped, and each of these is reported.
#[test]
#[ignore = "runs in --all"]
fn eight_cpus_lose_nothing_while_maps_are_drained() {
    let rounds = std::env::var("HBBP_STRESS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let Some(outcome) = run(rounds) else { return };
    let said = outcome.stdout().unwrap();
    let report: Value = serde_json::from_str(said.get(said.find('{').unwrap()..).unwrap()).unwrap();
    let snapshot = profile::read_from(outcome.files["profile"].as_slice())
        .unwrap()
        .remove(0);
    let (counters, losses) = (outcome.counters().unwrap(), losses(&report));
    let number = |path: &str| report.pointer(path).and_then(Value::as_u64).unwrap();
    let loss = |id: &str| losses.get(id).copied().unwrap_or(0);
    let (ips, stacks) = (number("/events/0/runs"), number("/events/1/runs"));
    println!(
        "{} samples, {stacks} of them stacks, in {} intervals: {losses:?}",
        ips + stacks,
        snapshot.intervals.len()
    );
    // Drained and cut all the time.
    assert!(20 < snapshot.intervals.len(), "{report:#}");
    assert!(20_000 < ips && 20_000 < stacks, "{report:#}");
    // Between the processor and the programs: what the emulated PMU lost is missing.
    let overflows = ["delivered", "lost_full", "lost_dropped", "lost_stopped"].map(|name| counters[name]);
    assert_eq!(
        overflows.iter().sum::<u64>(),
        number("/accounting/reached") + number("/accounting/skipped"),
        "{counters:?} {report:#}"
    );
    assert_eq!(number("/accounting/unexplained"), 0, "{report:#}");
    // Between the programs and the profile.
    let hits: u64 = snapshot
        .intervals
        .iter()
        .flat_map(|it| &it.ips)
        .map(|row| row.hits)
        .sum();
    let uncounted = loss("sample.counts_full") + loss("sample.counts_raced") + loss("sample.no_map");
    assert_eq!(hits + uncounted, ips, "{losses:?}");
    let streams: u64 = snapshot
        .intervals
        .iter()
        .flat_map(|it| &it.streams)
        .map(|row| row.hits)
        .sum();
    let refused: u64 = losses
        .iter()
        .filter(|(id, _)| id.starts_with("stream."))
        .map(|(_, n)| n)
        .sum();
    assert_eq!(
        streams + refused,
        (stacks - loss("sample.stacks_full")) * (DEPTH - 1),
        "{losses:?}"
    );
    assert_eq!(twice(&snapshot), 0);
    for sign in ["BUG:", "WARNING:", "Oops", "Call Trace"] {
        assert!(!outcome.log.contains(sign), "{}", outcome.log);
    }
}

/// At the default periods, a ring holds the stacks of half a thousand million instructions that no process can interrupt, even
/// where no stack comes again.
#[test]
#[ignore = "runs in --all"]
fn long_system_call_loses_no_stack() {
    const STEPS: u64 = 70_000_000;
    let Some(machine) = support::machine(SERIES) else {
        return;
    };
    let setup = Setup {
        period: 1_000_037,
        branch_period: 100_003,
        ..Setup::new(support::hardware_profile("ideal"))
    };
    let mut machine = machine
        .clock(Clock::Instructions)
        .marks(Marks::Events)
        .hardware_profile(&setup.hardware_profile);
    let module = artifacts::module("workloads/wander", "wander", &Kernel::get(SERIES).unwrap()).unwrap();
    machine.module(&module).unwrap();
    let script = format!(
        "echo {STEPS} > /sys/module/wander/parameters/steps && busybox dd if=/dev/wander of=/dev/null bs=8 count=1"
    );
    let measured = measure_command(machine, &["/bin/busybox", "sh", "-c", &script], &setup).unwrap();
    let wander = measured.functions.named("wander_k").unwrap();
    let (exact, estimated) = (wander.instructions.reference, wander.instructions.hybrid);
    let stacks = measured.reported("/events/1/runs");
    println!("{exact} instructions in one system call, {estimated} estimated; {stacks} stacks");
    assert!(500e6 < exact, "{exact}");
    // More than a ring held that lasts for a hundred million taken branches.
    assert!(1100 < stacks, "{stacks}");
    let losses = losses(&measured.report);
    assert_eq!(losses.get("sample.stacks_full"), None, "{losses:?}");
    assert_eq!(measured.reported("/accounting/unexplained"), 0);
    assert!((estimated / exact - 1.0).abs() < 0.05, "{estimated} of {exact}");
}
