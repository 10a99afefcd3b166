//! Tests on the kernel of this machine, as root: collection, the whole program, and how it fails.
//!
//! They share the kernel, so one runs at a time. Without root they skip themselves, and under CI that is a failure.
//! What they cost and how long they take is printed and not asserted: it depends on what else the machine does.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests fail and talk like tests"
)]

mod bbv;
mod beside;
mod bounds;
mod bpf;
mod bursts;
mod callers;
mod collect;
mod daemon;
mod ends;
mod failures;
mod first_line;
mod intervals;
mod lines;
mod load;
mod names;
mod overwritten;
mod patched;
mod processes;
mod roles;
mod run;
mod selftest;
mod server;
mod tasks;
mod text;
mod time;
mod top;
mod twin;
mod waits;
mod watch;

use hbbp_testing::skip;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

static KERNEL: Mutex<()> = Mutex::new(());

/// The kernel for the test alone, or `None` if the test must skip.
fn kernel() -> Option<MutexGuard<'static, ()>> {
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        return Some(KERNEL.lock().unwrap_or_else(PoisonError::into_inner));
    }
    skip_outside_ci("live tests need root");
    None
}

/// Skips the test, but fails in continuous integration, where nothing may be missing.
fn skip_outside_ci(reason: &str) {
    assert!(
        std::env::var_os("CI").is_none(),
        "continuous integration may not skip this test: {reason}"
    );
    skip::skip(reason);
}

/// Waits until a process listens for a signal, which then no longer ends it: its main thread blocks it.
fn wait_until_it_listens(pid: u32, signal: i32) {
    while signal_set(pid, "SigBlk:") >> (signal - 1) & 1 == 0 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Waits until a process has opened its perf events, and no more of them for a while: then it measures.
fn wait_until_it_measures(pid: u32) {
    let n_events = || {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let links = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        links
            .filter(|link| link.ends_with("anon_inode:[perf_event]"))
            .count()
    };
    let mut before = 0;
    loop {
        let now = n_events();
        if 0 < now && now == before {
            return;
        }
        before = now;
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
}

/// A set of signals of the main thread of a process, by its line in /proc/PID/status.
fn signal_set(pid: u32, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let set = status.lines().find_map(|found| found.strip_prefix(line)).unwrap();
    u64::from_str_radix(set.trim(), 16).unwrap()
}

/// The program with these arguments.
fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hbbp-sys"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs the program to its end.
fn run(args: &[&str]) -> Output {
    program(args).output().unwrap()
}

/// Runs the program, which must succeed, and gives its JSON report.
fn report(args: &[&str]) -> Value {
    let output = run(&[&["--format", "json"], args].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The JSON report of a saved profile.
fn report_of(path: &str) -> Value {
    let output = run(&["report", path, "--format", "json"]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The same by these dimensions.
fn report_by(path: &str, rows: &str) -> Value {
    let output = run(&["report", path, "--format", "json", "--top", "all", "--rows", rows]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// Samples of a ring that are in the mix, and all that were counted in it.
fn resolved(report: &Value, ring: &str) -> (u64, u64) {
    let accounting = &report["accounting"];
    (
        number(&accounting["in_mix"][ring]),
        number(&accounting["counted"][ring]),
    )
}

/// Samples of a ring that are in no row of the mix for this one reason.
fn unresolved(report: &Value, id: &str, ring: &str) -> u64 {
    let reasons = report["accounting"]["unresolved"].as_array().unwrap();
    let reason = reasons.iter().find(|reason| reason["id"] == id);
    reason.map_or(0, |reason| number(&reason[ring]))
}

/// `kernel.bpf_stats_enabled`, put back when dropped. It is a static key: writing it patches kernel text.
struct BpfStats(String);

impl BpfStats {
    const PATH: &str = "/proc/sys/kernel/bpf_stats_enabled";

    fn set(value: &str) -> Self {
        let before = std::fs::read_to_string(Self::PATH).unwrap();
        std::fs::write(Self::PATH, value).unwrap();
        Self(before)
    }
}

impl Drop for BpfStats {
    fn drop(&mut self) {
        let _ = std::fs::write(Self::PATH, &self.0);
    }
}
