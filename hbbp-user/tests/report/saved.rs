//! `report` of a saved profile as the program writes it: to a file, over time, and against another profile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hbbp_model::snapshot::{Snapshot, file};
use serde_json::Value;

use super::html::{Table, halved};
use super::program;

/// `hbbp-sys` in a folder.
fn hbbp(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hbbp-sys"));
    command.current_dir(folder).args(args).output().unwrap()
}

fn saved(folder: &Path, name: &str, snapshot: &Snapshot) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, file::encode(snapshot).unwrap()).unwrap();
    path
}

#[test]
fn report_in_a_file_is_the_one_that_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    saved(folder.path(), "run.hbbp", &program::clocked());
    for format in ["text", "json", "csv", "html"] {
        let report = ["report", "run.hbbp", "--format", format];
        let printed = hbbp(folder.path(), &report);
        assert!(printed.status.success(), "{printed:?}");
        let written = hbbp(folder.path(), &[&report[..], &["-o", "report"]].concat());
        assert!(
            written.status.success() && written.stdout.is_empty(),
            "{written:?}"
        );
        assert_eq!(
            fs::read(folder.path().join("report")).unwrap(),
            printed.stdout,
            "{format}"
        );
    }
    // What was there stays where nothing can be reported.
    let failed = hbbp(folder.path(), &["report", "none.hbbp", "-o", "report"]);
    assert_eq!(failed.status.code(), Some(1));
    assert_ne!(fs::read(folder.path().join("report")).unwrap(), b"");
}

/// Where nothing else is printed, a line says where the profile is, how large it is, and what reads it.
#[test]
fn a_saved_profile_is_said_to_be_saved() {
    let folder = tempfile::tempdir().unwrap();
    saved(folder.path(), "run.hbbp", &program::clocked());
    let merged = |output: &str| hbbp(folder.path(), &["merge", "run.hbbp", "-o", output]);
    let in_file = merged("of both.hbbp");
    let said = String::from_utf8(in_file.stderr).unwrap();
    let size = fs::metadata(folder.path().join("of both.hbbp")).unwrap().len();
    let expected = format!(
        "hbbp-sys: saved 'of both.hbbp', {}: hbbp-sys report 'of both.hbbp'\n",
        indicatif::HumanBytes(size)
    );
    assert_eq!(said, expected);
    assert!(in_file.stdout.is_empty());
    for output in ["-", "/dev/null"] {
        let elsewhere = merged(output);
        assert!(
            elsewhere.status.success() && elsewhere.stderr.is_empty(),
            "{elsewhere:?}"
        );
    }
}

#[test]
fn changes_of_a_page_are_those_of_diff() {
    let folder = tempfile::tempdir().unwrap();
    saved(folder.path(), "a.hbbp", &program::clocked());
    let mut other = program::clocked();
    for ip in &mut other.intervals[0].ips[..2] {
        ip.hits *= 3;
        ip.weight *= 3;
    }
    saved(folder.path(), "b.hbbp", &other);
    let page = hbbp(
        folder.path(),
        &["report", "b.hbbp", "--compare", "a.hbbp", "--format", "html"],
    );
    assert!(page.status.success(), "{page:?}");
    let changes = Table::of(&String::from_utf8(page.stdout).unwrap()).document["changes"].clone();
    let diff = hbbp(
        folder.path(),
        &["diff", "a.hbbp", "b.hbbp", "--format", "json", "-n", "all"],
    );
    let diff: Value = serde_json::from_slice(&diff.stdout).unwrap();
    let table = &changes["tables"][0];
    assert_eq!(table["compared"], diff["compared"]);
    let (shown, expected) = (
        table["rows"].as_array().unwrap(),
        diff["changes"].as_array().unwrap(),
    );
    assert_eq!(shown.len(), expected.len());
    let close = |a: &Value, b: &Value| (a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-6;
    for (shown, expected) in shown.iter().zip(expected) {
        assert_eq!(
            (&shown["key"], &shown["significant"]),
            (&expected["key"], &expected["significant"])
        );
        assert!(
            close(&shown["change"][0], &expected["change"]["value"]),
            "{shown} {expected}"
        );
        assert!(
            close(&shown["change"][1], &expected["change"]["std_error"]),
            "{shown} {expected}"
        );
        assert!(close(&shown["p"], &expected["adjusted_p"]), "{shown} {expected}");
    }
    assert!(shown.iter().any(|row| row["significant"] == true));
}

#[test]
fn what_cannot_be_compared_or_cut_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    saved(folder.path(), "run.hbbp", &program::clocked());
    let refused = |args: &[&str], code, words: &str| {
        let output = hbbp(folder.path(), &[&["report", "run.hbbp"], args].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(code) && said.contains(words),
            "{output:?}"
        );
    };
    refused(&["--compare", "run.hbbp"], 2, "hbbp-sys diff");
    refused(&["--over-time"], 1, "record for longer than 2 s");
    saved(folder.path(), "retired.hbbp", &program::retired());
    refused(
        &["--compare", "retired.hbbp", "--format", "html"],
        1,
        "profiles of different units cannot be compared",
    );
}

#[test]
fn rows_over_time_have_sparklines_and_lines_for_spreadsheets() {
    let folder = tempfile::tempdir().unwrap();
    saved(folder.path(), "run.hbbp", &halved(program::clocked()));
    let printed = |format| {
        let report = [
            "report",
            "run.hbbp",
            "--over-time",
            "--top",
            "2",
            "--format",
            format,
        ];
        String::from_utf8(hbbp(folder.path(), &report).stdout).unwrap()
    };
    let text = printed("text");
    let (_, over_time) = text
        .split_once("Over time: 2 periods of about 1.0 s each")
        .unwrap();
    // 100 of 550 samples, then 100 of 400.
    assert!(over_time.contains("18.18    25.00         ▅█"), "{text}");
    let csv = printed("csv");
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "mnemonic,start,end,amount,share,unit");
    assert_eq!(lines.len(), 1 + 2 * 2, "{csv}");
    assert!(
        lines[1].contains(",0.000,1.000,") && lines[2].contains(",1.000,2.000,"),
        "{csv}"
    );
}
