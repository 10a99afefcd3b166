//! Golden files, one for each format and pivot; `HBBP_UPDATE=1` rewrites them.

use std::path::Path;

use hbbp_analysis::mix::Dimension;
use hbbp_model::snapshot::Snapshot;
use hbbp_output::report::{Format, Look};
use hbbp_user::cmd::report::{Extent, ReportOptions};

use super::{by, printed, program};

/// Compares what is printed with the golden file of that name.
#[track_caller]
fn check(name: &str, snapshot: &Snapshot, options: &ReportOptions) {
    check_text(name, &printed(snapshot, options));
}

/// Compares a text with the golden file of that name.
#[track_caller]
pub(crate) fn check_text(name: &str, printed: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("HBBP_UPDATE").is_some() {
        std::fs::write(&path, printed).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        printed == golden,
        "{name} differs; HBBP_UPDATE=1 accepts this:\n{printed}"
    );
}

#[test]
fn text_by_mnemonic() {
    check(
        "clocked-mnemonic.txt",
        &program::clocked(),
        &ReportOptions::default(),
    );
    check(
        "retired-mnemonic.txt",
        &program::retired(),
        &ReportOptions::default(),
    );
    check(
        "troubled-mnemonic.txt",
        &program::troubled(),
        &ReportOptions::default(),
    );
}

#[test]
fn text_and_json_of_branch_stacks() {
    let sources = [Dimension::Source, Dimension::Mnemonic];
    check(
        "stacked-source.txt",
        &program::stacked(),
        &by(&sources, Format::Text),
    );
    check(
        "stacked.json",
        &program::stacked(),
        &by(&[Dimension::Function], Format::Json),
    );
}

#[test]
fn text_and_json_of_bursts() {
    let options = ReportOptions::default();
    check("followed-mnemonic.txt", &program::followed(), &options);
    let json = by(&[Dimension::Function], Format::Json);
    check("followed.json", &program::followed(), &json);
    let screen = ReportOptions {
        extent: Extent::Screen,
        ..options
    };
    check("followed-screen.txt", &program::followed(), &screen);
}

#[test]
fn text_and_json_of_classes() {
    let options = ReportOptions::default();
    check("classed-mnemonic.txt", &program::classed(), &options);
    let json = by(&[Dimension::Mnemonic], Format::Json);
    check("classed.json", &program::classed(), &json);
}

#[test]
fn text_by_location() {
    let options = by(&[Dimension::Module, Dimension::Function], Format::Text);
    check("clocked-function.txt", &program::clocked(), &options);
    let narrow = ReportOptions {
        look: Look {
            width: 60,
            ..Look::default()
        },
        ..options
    };
    check("troubled-function-60.txt", &program::troubled(), &narrow);
    let processes = by(&[Dimension::Process, Dimension::Ring], Format::Text);
    check("clocked-process.txt", &program::clocked(), &processes);
}

#[test]
fn text_by_thread_and_cgroup() {
    let threads = by(&[Dimension::Process, Dimension::Thread], Format::Text);
    check("threaded-thread.txt", &program::threaded(), &threads);
    let cgroups = by(&[Dimension::Cgroup], Format::Text);
    check("threaded-cgroup.txt", &program::threaded(), &cgroups);
    let machine = by(&[Dimension::Cgroup, Dimension::Thread], Format::Csv);
    check("threaded.csv", &program::threaded(), &machine);
}

#[test]
fn text_by_class() {
    let classes = [
        Dimension::Extension,
        Dimension::Packing,
        Dimension::Width,
        Dimension::Memory,
        Dimension::Lock,
    ];
    check(
        "clocked-class.txt",
        &program::clocked(),
        &by(&classes, Format::Text),
    );
}

#[test]
fn text_with_top() {
    let options = ReportOptions {
        top: Some(2),
        ..ReportOptions::default()
    };
    check("clocked-top-2.txt", &program::clocked(), &options);
}

#[test]
fn json() {
    check(
        "clocked.json",
        &program::clocked(),
        &by(&[Dimension::Mnemonic], Format::Json),
    );
    check(
        "retired.json",
        &program::retired(),
        &by(&[Dimension::Ring, Dimension::Extension], Format::Json),
    );
    let options = ReportOptions {
        top: Some(1),
        ..by(&[Dimension::Module], Format::Json)
    };
    check("troubled-top-1.json", &program::troubled(), &options);
}

#[test]
fn csv() {
    check(
        "clocked.csv",
        &program::clocked(),
        &by(&[Dimension::Mnemonic], Format::Csv),
    );
    let options = by(&[Dimension::Function, Dimension::Mnemonic], Format::Csv);
    check(
        "troubled-top-3.csv",
        &program::troubled(),
        &ReportOptions {
            top: Some(3),
            ..options
        },
    );
}
