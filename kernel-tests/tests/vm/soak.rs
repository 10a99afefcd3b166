//! A daemon with branch stacks on four CPUs, among all that goes on at once: processes, mappings, modules and BPF programs come
//! and go, and a CPU goes offline and online.

use kernel_tests::artifacts;
use kernel_tests::kernel::Kernel;
use kernel_tests::machine::Clock;
use serde_json::Value;

use crate::support;

/// Seconds of guest time, unless HBBP_SOAK says otherwise.
const SECONDS: u64 = 48;

/// Times that memory and CPU time are looked at.
const MARKS: u64 = 12;

/// Every interval is there, all samples are accounted for, memory does not grow, and the kernel does not complain.
#[test]
fn daemon_among_everything_at_once_keeps_every_interval() {
    let Some(machine) = support::machine("6.12") else {
        return;
    };
    let seconds: u64 = std::env::var("HBBP_SOAK").map_or(SECONDS, |n| n.parse().unwrap());
    let script = format!(
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
  busybox sleep {step}
  busybox awk '/RssAnon/ {{ printf \"%s \", $2 }}' /proc/$daemon/status
  busybox awk '{{ print $14 + $15 }}' /proc/$daemon/stat
done
kill %2 %3 %4 %5 %6
kill $daemon
wait $daemon
busybox ls /tmp/segments
echo report
hbbp-sys report --format json --top 1 /tmp/segments",
        step = seconds.div_ceil(MARKS),
    );
    let kernel = Kernel::get("6.12").unwrap();
    let mut machine = machine
        .cpus(4)
        .clock(Clock::Host)
        .limit(std::time::Duration::from_secs(3 * seconds + 600));
    machine.files().hbbp_sys().unwrap();
    let module = artifacts::module("workloads/hello", "hello", &kernel).unwrap();
    machine.files().copy("opt/hello.ko", &module).unwrap();
    support::add_workload(&mut machine, "storms.c");
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", &script]).unwrap();
    let said = outcome.text("stderr").unwrap();
    println!("{said}");
    let stdout = outcome.stdout().unwrap();
    let (before, report) = stdout.split_once("report\n").unwrap();
    let report: Value = serde_json::from_str(report).unwrap();
    let (marks, names): (Vec<&str>, Vec<&str>) = before.lines().partition(|line| line.contains(' '));
    let anonymous: Vec<u64> = marks
        .iter()
        .map(|mark| mark.split(' ').next().unwrap().parse().unwrap())
        .collect();
    println!("kB of anonymous memory, and ticks of CPU time: {marks:?}\n{names:?}");
    assert!(!said.contains("failed"), "{said}");
    for sign in ["BUG:", "WARNING:", "Oops", "Call Trace"] {
        assert!(!outcome.log.contains(sign), "{}", outcome.log);
    }
    let accounting = &report["accounting"];
    let number = |name: &str| accounting[name].as_u64().unwrap();
    assert_eq!(number("unexplained"), 0, "{accounting:#}");
    assert!(0 < number("reached"), "{accounting:#}");
    let n_stacks = report["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["unit"] == "taken_branches");
    println!("{:#}\n{:#}", report["losses"], report["run"]["notes"]);
    assert_eq!(n_stacks.count(), 1, "{report:#}");
    // Of the last quarter and the second, the least: what an interval takes for a moment comes and goes.
    let least = |marks: &[u64]| marks.iter().copied().min().unwrap();
    let (second, last) = (least(&anonymous[3..6]), least(&anonymous[9..]));
    assert!(last * 4 <= second * 5, "{second} kB, then {last} kB");
}
