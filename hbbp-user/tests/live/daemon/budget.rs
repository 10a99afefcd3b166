//! A daemon adapts its periods to its budget; every sum closes while they change.

use std::path::Path;

use hbbp_model::profile::read_runs;
use hbbp_model::snapshot::{Loss, Period, Snapshot};

use super::{Daemon, names, path_of};
use crate::load::Load;
use crate::{kernel, number, report_of};

/// The period of the clock, which is all that is sampled here.
const CLOCK: &str = "1000003";

fn segments(folder: &Path) -> Vec<(String, Snapshot)> {
    let read = |name| {
        let path = path_of(folder, &name);
        let run = read_runs(Path::new(&path)).unwrap().remove(0);
        (path, run)
    };
    names(folder).into_iter().map(read).collect()
}

fn period(run: &Snapshot) -> u64 {
    match run.run.events[0].period {
        Period::Fixed(period) => period,
        other => unreachable!("an interval has one period, not {other:?}"),
    }
}

/// No daemon lives on ten parts per million of the CPUs: its periods become longer and longer.
#[test]
fn periods_follow_the_budget_and_sums_close() {
    let Some(_kernel) = kernel() else { return };
    let _load = [Load::syscalls(), Load::spin()];
    let made = tempfile::tempdir().unwrap();
    let options = [
        "--cpu-budget",
        "0.001%",
        "--event",
        "cpu-clock",
        "--period",
        CLOCK,
    ];
    let daemon = Daemon::with(made.path(), &options);
    daemon.until_intervals(5);
    daemon.stop();

    let segments = segments(made.path());
    let first: u64 = CLOCK.parse().unwrap();
    assert_eq!(period(&segments[0].1), first);
    assert!(2 * first < period(&segments[3].1), "{}", period(&segments[3].1));
    for (path, run) in &segments {
        let (event, period) = (&run.run.events[0], period(run));
        let budget = run.run.overhead.budget.unwrap();
        let has_cost = 0 < run.run.overhead.sampling || event.runs == 0;
        assert!(budget.share == 10 && has_cost, "{budget:?}");
        for counter in &event.counters {
            // A change of the period is exact, as the counter is stopped.
            let due = counter.due_at(period);
            assert!(due.abs_diff(counter.count / period) <= 1, "{counter:?}");
        }
        let rows = run.intervals.iter().flat_map(|it| &it.ips);
        assert!(rows.clone().all(|row| row.weight == row.hits * period), "{path}");
        let report = report_of(path);
        assert_eq!(number(&report["accounting"]["unexplained"]), 0, "{path}");
        assert_eq!(number(&report["accounting"]["reached"]), event.runs, "{path}");
    }
    let whole = report_of(made.path().to_str().unwrap());
    assert_eq!(number(&whole["accounting"]["unexplained"]), 0);
    let sum = |of: fn(&Snapshot) -> u64| segments.iter().map(|(_, run)| of(run)).sum::<u64>();
    let event = &whole["events"][0];
    assert_eq!(number(&event["runs"]), sum(|run| run.run.events[0].runs));
    assert_eq!(number(&event["due"]), sum(|run| run.run.events[0].due().unwrap()));
    assert_eq!(number(&event["period"]), first);
    assert!(2 * first < number(&event["longest_period"]));
    let share = whole["run"]["budget"]["share"].as_f64().unwrap();
    assert!((share - 1e-5).abs() < 1e-9, "{share}");
}

/// No periods are long enough for ten parts per million, and that is said.
#[test]
fn missed_budget_is_said() {
    let Some(_kernel) = kernel() else { return };
    let _load = [Load::syscalls(), Load::spin()];
    let made = tempfile::tempdir().unwrap();
    let daemon = Daemon::with(made.path(), &["--cpu-budget", "0.001%"]);
    daemon.until_said("CPU budget of 0.001 % was exceeded in 3 intervals in a row");
    let said = daemon.stop();
    assert!(said.contains("above the CPU budget"), "{said}");
    let is_noted = |run: &Snapshot| {
        run.run
            .notes
            .iter()
            .any(|note| note.contains("CPU budget was exceeded"))
    };
    assert!(segments(made.path()).iter().any(|(_, run)| is_noted(run)));
    assert!(0 < super::assert_segments_close(made.path()));
}

/// Seconds without records of processes that a segment states.
fn rested(path: &str) -> u64 {
    let run = read_runs(Path::new(path)).unwrap().remove(0);
    run.losses.get(Loss::RecordsRested)
}

/// Records of a storm of processes would exceed the budget: they are paused, which is stated, and resumed after it.
#[test]
fn records_rest_in_a_storm_of_processes() {
    let Some(_kernel) = kernel() else { return };
    let made = tempfile::tempdir().unwrap();
    // Records may take 0.09 % of the time: a storm of some hundred processes a second would take ten times as much.
    let daemon = Daemon::with(made.path(), &["--cpu-budget", "0.3%"]);
    let segments = |daemon: &Daemon| {
        names(&daemon.folder)
            .into_iter()
            .map(|name| path_of(made.path(), &name))
    };
    let storm = Load::shell("while :; do /bin/true; done");
    daemon.until("rest", |it| segments(it).any(|path| 0 < rested(&path)));
    drop(storm);
    let n_before = segments(&daemon).count();
    let is_followed = |it: &Daemon| segments(it).skip(n_before).any(|path| rested(&path) == 0);
    daemon.until("records after the storm", is_followed);
    // A program that begins now is known by its records.
    let spin = Load::shell("exec dd if=/dev/zero of=/dev/null bs=64k");
    let n_followed = segments(&daemon).count();
    let knows = |path: String| {
        let run = read_runs(Path::new(&path)).unwrap().remove(0);
        run.processes.iter().any(|process| &*process.comm == "dd")
    };
    daemon.until("the program", |it| segments(it).skip(n_followed).any(knows));
    drop(spin);
    let folder = daemon.folder.clone();
    daemon.stop();
    assert!(0 < super::assert_segments_close(&folder));
    let whole = report_of(folder.to_str().unwrap());
    let text = whole["losses"].to_string() + &whole["warnings"].to_string();
    assert!(text.contains("records_rested"), "{whole:#}");
}
