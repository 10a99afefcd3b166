//! From a snapshot to a report: the same function for `hbbp-sys report` and for a direct run.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::Context;

use crate::estimate::Rule;
use crate::mix::{Analysis, Dimension, SourcePlace, analyse, analyse_in_source};
use crate::report::{Format, Miss, Report, quality};
use crate::resolve::source_lines::SourceLines;
use crate::snapshot::{Module, ModuleKind, Snapshot};

/// What a report shows, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportOptions {
    /// What the mix is broken down by.
    pub by: Vec<Dimension>,
    /// Name or file of the rule that chooses between EBS and LBR.
    pub rule: String,
    /// Most lines of the mix; `None` for all.
    pub top: Option<usize>,
    /// The form of the report.
    pub format: Format,
    /// Most columns of a line of text.
    pub width: usize,
    /// Files with debug information, for the dimensions that need it; others are found by their build ids.
    pub debug_files: Vec<PathBuf>,
}

impl Default for ReportOptions {
    fn default() -> Self {
        /// Where no terminal says how wide it is: the table then has all of its columns.
        const WIDTH: usize = 100;

        Self {
            by: vec![Dimension::Mnemonic],
            rule: "balanced".to_owned(),
            top: None,
            format: Format::default(),
            width: WIDTH,
            debug_files: Vec::new(),
        }
    }
}

/// How good the measurement is that was reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quality {
    /// The stated limits that it missed.
    pub misses: Vec<Miss>,
}

/// Reports on a snapshot. A reader that closes the pipe has seen enough, which is no error.
pub fn print(snapshot: &Snapshot, options: &ReportOptions, out: &mut dyn Write) -> anyhow::Result<Quality> {
    let rule = super::rule::read(&options.rule)?;
    let (analysis, noted) = if options.by.iter().any(|d| d.is_in_source()) {
        analyse_with_lines(snapshot, options, &rule)
    } else {
        (analyse(snapshot, &options.by, &rule), None)
    };
    let snapshot = noted.as_ref().unwrap_or(snapshot);
    let report = Report::new(snapshot, &analysis, options.top);
    let mut out = BufWriter::new(out);
    let written = report
        .write(options.format, options.width, &mut out)
        .and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        written => written.context("failed to write the report")?,
    }
    Ok(Quality {
        misses: quality(&analysis, snapshot),
    })
}

/// Analyses with the debug information that is found on this machine; where some is missing, the snapshot comes back
/// with a note about it.
fn analyse_with_lines(
    snapshot: &Snapshot,
    options: &ReportOptions,
    rule: &Rule,
) -> (Analysis, Option<Snapshot>) {
    let mut lines = SourceLines::new(snapshot, options.debug_files.clone());
    let mut find = |module, at| {
        let place = lines.find(module, at)?;
        Some(SourcePlace {
            line: place.line,
            function: place.function,
        })
    };
    let analysis = analyse_in_source(snapshot, &options.by, rule, &mut find);
    let noted = missing_lines(&lines.without()).map(|note| {
        let mut noted = snapshot.clone();
        noted.run.notes.push(note);
        noted
    });
    (analysis, noted)
}

/// What to say of modules without debug information; those that the kernel wrote itself never have any.
fn missing_lines(without: &[&Module]) -> Option<String> {
    /// Names to show; there may be hundreds.
    const MOST: usize = 4;

    let without: Vec<&str> = without
        .iter()
        .filter(|m| {
            !matches!(
                m.kind,
                ModuleKind::Bpf | ModuleKind::Trampoline | ModuleKind::Anonymous
            )
        })
        .map(|m| m.name.as_str())
        .collect();
    let names = without.get(..MOST).unwrap_or(&without).join(", ");
    let more = without.len().saturating_sub(MOST);
    let more = if more == 0 {
        String::new()
    } else {
        format!(" and {more} more")
    };
    (!without.is_empty()).then(|| {
        format!(
            "without debug information, functions stand in the place of lines: {names}{more}; debug packages (-dbg, \
             -dbgsym) or --binary FILE bring it, by build id"
        )
    })
}
