//! Reports of snapshots whose mix is known: golden files, sums that close, lines that fit, words that must not occur.

#![cfg(test)]

mod adapted;
mod annotate;
mod bursts;
mod diff;
mod golden;
mod html;
mod kernel_time;
mod loops;
mod options;
mod pivot;
mod require;
mod roles;
mod saved;
mod schema;
mod screen;
mod shown;
mod strict;
mod sums;
mod wrong;

use hbbp_testing::{missing, nested, program, strategy};
use std::io::{self, Write};

use hbbp_analysis::mix::{Dimension, Query};
use hbbp_model::snapshot::{Snapshot, file};
use hbbp_output::report::{Format, Miss};
use hbbp_user::cmd::report::{Quality, ReportOptions, print};

/// What is printed of a snapshot.
fn printed(snapshot: &Snapshot, options: &ReportOptions) -> String {
    let mut out = Vec::new();
    print(snapshot, options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The options for a table by these dimensions.
fn by(dimensions: &[Dimension], format: Format) -> ReportOptions {
    ReportOptions {
        query: Query::by(dimensions.iter().copied()),
        format,
        ..ReportOptions::default()
    }
}

/// A reader that has gone, or a device that has failed.
struct Failing(io::ErrorKind);

impl Write for Failing {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(self.0.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn saved_snapshot_gives_the_same_report() {
    for snapshot in [
        program::clocked(),
        program::retired(),
        program::stacked(),
        program::troubled(),
    ] {
        let saved = file::parse(&file::encode(&snapshot).unwrap()).unwrap();
        for format in [Format::Text, Format::Json, Format::Csv] {
            let options = by(&[Dimension::Module, Dimension::Mnemonic], format);
            assert_eq!(printed(&saved, &options), printed(&snapshot, &options));
        }
    }
}

#[test]
fn closed_pipe_is_success_but_full_disk_is_not() {
    let print_to = |mut out: Failing| print(&program::clocked(), &ReportOptions::default(), &mut out);
    assert_eq!(
        print_to(Failing(io::ErrorKind::BrokenPipe)).unwrap(),
        Quality::default()
    );
    assert!(print_to(Failing(io::ErrorKind::StorageFull)).is_err());
}

#[test]
fn missed_limits_are_named() {
    let quality = |snapshot| print(&snapshot, &ReportOptions::default(), &mut io::sink()).unwrap();
    assert_eq!(quality(program::clocked()), Quality::default());
    assert_eq!(quality(program::retired()), Quality::default());
    let misses = quality(program::troubled()).misses;
    let ids: Vec<&str> = misses.iter().map(Miss::id).collect();
    assert_eq!(
        ids,
        ["quality.completeness", "quality.counted", "quality.resolved_user"]
    );
    assert_eq!(
        quality(Snapshot {
            processes: program::clocked().processes,
            ..Snapshot::default()
        })
        .misses,
        [Miss::NoSamples { files_missing: 0 }]
    );
}

/// A clock knows nothing of executions, and the report must not pretend to.
#[test]
fn clock_samples_are_not_called_executions() {
    for snapshot in [program::clocked(), program::troubled()] {
        for format in [Format::Text, Format::Json, Format::Csv] {
            let report = printed(&snapshot, &by(&[Dimension::Mnemonic], format)).to_lowercase();
            // Text is wrapped.
            let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
            let report = report.replace("explains how to get executions", "");
            assert!(!report.contains("executions"), "{report}");
            assert!(
                report.contains("time-weighted samples") || report.contains("time_weighted_samples"),
                "{report}"
            );
        }
    }
    assert!(printed(&program::retired(), &ReportOptions::default()).contains("estimated executions"));
}

/// A text that is larger than what a model is fitted to leaves nothing to trace samples back by, and the report says so.
#[test]
fn samples_that_are_not_traced_back_are_reported() {
    const LARGE: usize = 200 << 10;
    let small = printed(&program::retired(), &ReportOptions::default());
    assert!(
        small.contains("were traced back") && !small.contains("at their own address"),
        "{small}"
    );
    let mut snapshot = program::retired();
    for text in &mut snapshot.text {
        text.bytes.resize(LARGE, 0x90);
    }
    let large = printed(&snapshot, &ReportOptions::default());
    assert!(
        large.contains("at their own address") && !large.contains("were traced back"),
        "{large}"
    );
}
