//! Kernel text that changes while it is measured: switched keys, tracers, probes and modules, against exact counts.

use std::path::Path;
use std::process::Command;

use kernel_tests::accuracy::{Measured, Setup, measure_command};
use kernel_tests::artifacts;
use kernel_tests::kernel::Kernel;

use crate::skip::skip;
use crate::support;

/// Bytes through a socket and system calls, with a module that does its work in the kernel in between.
const LOAD: &str = "storms pipes 4000; storms syscalls 10000; storms pipes 4000";
/// 3 million instructions and a sleep of 2 ms each: a second by the guest's clock.
const HELLO: &str = "hello_u 20000 200 kernel";

/// What switches kernel text, each on and off, round after round while the load runs.
const TOGGLE: &str = "\
t=/sys/kernel/tracing; k=/proc/sys/kernel
pause() { busybox usleep 20000; }
while [ ! -e /tmp/enough ]; do
  for event in sched/sched_switch sched/sched_wakeup raw_syscalls; do
    echo 1 > $t/events/$event/enable; pause; echo 0 > $t/events/$event/enable; pause
  done
  for key in bpf_stats_enabled timer_migration; do
    was=$(busybox cat $k/$key); echo $((1 - was)) > $k/$key; pause; echo $was > $k/$key; pause
  done
  echo unix_stream_sendmsg > $t/set_ftrace_filter
  echo function > $t/current_tracer; pause; echo nop > $t/current_tracer; pause
  echo 'p:entry unix_stream_recvmsg' > $t/kprobe_events
  for at in 4 5 6 7 8 9 10 11 12; do
    echo \"p:inside ksys_read+$at\" >> $t/kprobe_events 2> /dev/null && break
  done
  for probe in entry inside; do
    echo 1 > $t/events/kprobes/$probe/enable; pause; echo 0 > $t/events/kprobes/$probe/enable; pause
  done
  echo > $t/kprobe_events
  echo round >> /tmp/rounds
done";

/// The load while text is switched: the module is loaded and unloaded in the run.
fn disturbed() -> String {
    format!(
        "busybox sh /opt/toggle & {LOAD}; \
         busybox insmod /opt/hello.ko && {HELLO} && busybox rmmod hello; {LOAD}; \
         busybox touch /tmp/enough; wait; echo $(busybox wc -l < /tmp/rounds) rounds"
    )
}

/// The same load alone; the module is there before.
fn undisturbed() -> String {
    format!("{LOAD}; {HELLO}; {LOAD}")
}

/// Measures a script on a machine with everything that the scripts here need.
fn measured(series: &str, script: &str, with_module: bool, options: &[&str]) -> Option<Measured> {
    let machine = support::machine(series)?;
    let mut setup = Setup::new(support::hardware_profile("ideal"));
    setup.options = options.iter().map(|&option| option.to_owned()).collect();
    let mut machine = setup.prepare(machine);
    for workload in ["storms.c", "hello_u.c"] {
        support::add_workload(&mut machine, workload);
    }
    let kernel = Kernel::get(series).unwrap();
    let module = artifacts::module("workloads/hello", "hello", &kernel).unwrap();
    machine.files().file("opt/toggle", TOGGLE.as_bytes());
    if with_module {
        machine.module(&module).unwrap();
    } else {
        machine.files().copy("opt/hello.ko", Path::new(&module)).unwrap();
    }
    Some(measure_command(machine, &["/bin/busybox", "sh", "-c", script], &setup).unwrap())
}

/// Average weighted error of the mix of ring 0.
fn kernel_error(measured: &Measured) -> f64 {
    let kernel = measured.rings.named("kernel").unwrap();
    kernel.average_weighted_error.hybrid.unwrap()
}

/// Streams of ring 0 that were counted, and of these the ones that do not decode, by reason.
fn kernel_streams(measured: &Measured) -> (u64, Vec<(String, u64)>) {
    let reasons = measured.report["streams"]["discarded"].as_array().unwrap();
    let reasons = reasons.iter().map(|reason| {
        let id = reason["id"].as_str().unwrap().to_owned();
        (id, reason["kernel"].as_u64().unwrap())
    });
    let reasons: Vec<_> = reasons.filter(|(_, n)| 0 < *n).collect();
    let program = artifacts::hbbp_sys().unwrap();
    let mut export = Command::new(program);
    export
        .args(["export", "--format", "streams", "--raw"])
        .arg(measured.profile());
    let lines = String::from_utf8(export.output().unwrap().stdout).unwrap();
    let of_kernel = lines.lines().filter_map(|line| line.strip_prefix("S ffff"));
    let counted = of_kernel.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    (counted.sum(), reasons)
}

fn text_that_changes(series: &str) {
    let Some(quiet) = measured(series, &undisturbed(), true, &[]) else {
        return;
    };
    let followed = measured(series, &disturbed(), false, &[]).unwrap();
    let said = followed.outcome.stdout().unwrap();
    let rounds = said
        .lines()
        .find_map(|line| line.strip_suffix(" rounds")?.parse().ok());
    println!("{series}: everything was switched on and off {rounds:?} times");
    assert!(
        rounds.is_some_and(|n: u32| 2 <= n),
        "{said} {:?}",
        followed.outcome.text("stderr")
    );
    let (counted, discarded) = kernel_streams(&followed);
    println!(
        "{series}: of {counted} streams: {discarded:?}; losses {:#}",
        followed.report["losses"]
    );
    let once = measured(series, &disturbed(), false, &["--text-once"]).unwrap();
    let took = [&quiet, &followed, &once].map(|measured| measured.outcome.took);
    println!(
        "{series}: the machine took {took:?}; once: {:?}",
        kernel_streams(&once).1
    );
    let errors = [&quiet, &followed, &once].map(kernel_error);
    println!("{series}: errors of the kernel mix: undisturbed, followed, once: {errors:?}");
    let [quiet_error, followed_error, once_error] = errors;

    let hello = followed.functions.named("hello_k").unwrap();
    let exact = hello.instructions.reference;
    let share = hello.instructions.hybrid / exact;
    println!("{series}: hello_k: {:?}, {share} of {exact}", hello.key);
    assert!(hello.key.iter().any(|name| name == "hello"), "{:?}", hello.key);
    assert!((share - 1.0).abs() <= 0.02, "{share}");

    let bad: u64 = discarded.iter().map(|(_, n)| n).sum();
    assert!(
        bad as f64 <= 0.001 * counted as f64,
        "{bad} of {counted}: {discarded:?}"
    );
    // Errors below that are chance, on either side of the ratio.
    const CHANCE: f64 = 0.003;
    assert!(followed_error <= 1.5 * quiet_error.max(CHANCE), "{errors:?}");
    assert!(2.0 * followed_error <= once_error, "{errors:?}");
}

/// The newest series that apt may have.
#[test]
#[ignore = "runs in --all"]
fn text_that_changes_on_7() {
    // Debian 12 has none, which does not fail continuous integration either.
    match Kernel::get("7") {
        Ok(_) => text_that_changes("7"),
        Err(error) => skip(&format!("{error:#}")),
    }
}

#[test]
#[ignore = "runs in --all"]
fn text_that_changes_on_6_1() {
    text_that_changes("6.1");
}

#[test]
fn text_that_changes_on_6_12() {
    text_that_changes("6.12");
}
