//! `report --strict`: a measurement that misses a limit of quality ends with code 3, and its first warning is the limit.

use std::fs;
use std::process::{Command, Output};

use hbbp_model::snapshot::{Snapshot, file};

use super::program;

/// What misses a limit ends with this code.
const QUALITY_MISSED: i32 = 3;

/// `hbbp-sys report` of a saved snapshot.
fn report(snapshot: &Snapshot, options: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("profile");
    fs::write(&path, file::encode(snapshot).unwrap()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_hbbp-sys"));
    command.arg("report").args(options).arg(path).output().unwrap()
}

/// A snapshot whose estimates are this part, in thousandths, of what the event of the instructions counted; nothing else is wrong with it.
fn estimated_to_counted(thousandths: u64) -> Snapshot {
    let mut snapshot = program::stacked();
    let known = report(&snapshot, &["--format", "json"]).stdout;
    let known: serde_json::Value = serde_json::from_slice(&known).unwrap();
    let estimated = known["residuals"][0]["estimated"].as_f64().unwrap();
    let event = &mut snapshot.run.events[0];
    let counted = format!("{:.0}", estimated * 1000.0 / thousandths as f64);
    event.counters[0].count = counted.parse().unwrap();
    event.counters[0].runs = Some(event.counters[0].count / 1_000_003);
    snapshot
}

#[test]
fn residual_beyond_its_error_fails_strict_and_warns_first() {
    let missed = estimated_to_counted(900);
    let strict = report(&missed, &["--strict", "--details"]);
    assert_eq!(strict.status.code(), Some(QUALITY_MISSED), "{strict:?}");
    let text = String::from_utf8(strict.stdout).unwrap();
    let warnings = text.split_once("Warnings:").unwrap().1;
    let first = warnings.lines().find(|line| !line.trim().is_empty()).unwrap();
    assert!(first.contains("the estimates differ by -10.00 %"), "{text}");
    // Without being asked, the measurement is shown and the command succeeds.
    assert_eq!(report(&missed, &[]).status.code(), Some(0));
}

#[test]
fn residual_within_its_error_passes_strict() {
    for part in [985, 1000, 1015] {
        let output = report(&estimated_to_counted(part), &["--strict"]);
        assert_eq!(output.status.code(), Some(0), "{part}: {output:?}");
    }
}
