//! A daemon among programs that start and end all the time: no interval is missing, and its memory does not grow.

use std::fs;
use std::time::{Duration, Instant};

use super::{Daemon, intervals, names, path_of};
use crate::load::Load;
use crate::{kernel, number, report_of};

/// Seconds, unless HBBP_SOAK says otherwise.
const SECONDS: u64 = 12;

/// Times that memory and CPU time are looked at.
const MARKS: u64 = 12;

/// Resident memory of a process in MiB, and its CPU time in ticks.
fn cost(pid: u32) -> (f64, u64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kilobytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = fields.split(' ').skip(11).take(2);
    (
        kilobytes / 1024.0,
        ticks.map(|it| it.parse::<u64>().unwrap()).sum(),
    )
}

/// What the kernel says of its own faults.
fn faults() -> usize {
    let log = std::process::Command::new("dmesg").output().unwrap();
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    let marks = ["BUG:", "WARNING:", "Oops", "Call Trace"];
    log.lines()
        .filter(|line| marks.iter().any(|it| line.contains(it)))
        .count()
}

#[test]
fn soak_keeps_every_interval_and_its_memory() {
    let Some(_kernel) = kernel() else { return };
    let seconds: u64 = std::env::var("HBBP_SOAK").map_or(SECONDS, |n| n.parse().unwrap());
    let _load = [Load::syscalls(), Load::shell("while :; do /bin/true; done")];
    let faults_before = faults();
    let made = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(made.path(), &["--cpu-budget", "0.3%"]);
    daemon.until_intervals(2);
    let (start, mut used) = (Instant::now(), Vec::new());
    for mark in 1..=MARKS {
        let until = Duration::from_millis(seconds * 1000 * mark / MARKS);
        std::thread::sleep(until.saturating_sub(start.elapsed()));
        let (memory, ticks) = cost(daemon.child.id());
        println!(
            "{:5} s: {memory:.1} MiB, {ticks} ticks of CPU time",
            until.as_secs()
        );
        used.push(memory);
    }
    let said = daemon.stop();
    assert!(!said.contains("lost") && !said.contains("failed"), "{said}");
    let numbers = intervals(&names(made.path()));
    assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "{numbers:?}");
    println!("{} intervals", numbers.len());
    for name in names(made.path()) {
        let report = report_of(&path_of(made.path(), &name));
        assert_eq!(number(&report["accounting"]["unexplained"]), 0, "{name}");
    }
    // The minimum over the last quarter and over the second: what an interval takes for a moment comes and goes.
    let least = |marks: &[f64]| marks.iter().copied().fold(f64::INFINITY, f64::min);
    let (second, last) = (least(&used[3..6]), least(&used[9..]));
    assert!(last <= 1.25 * second, "{second} MiB, then {last} MiB");
    assert_eq!(faults(), faults_before, "see dmesg");
}
