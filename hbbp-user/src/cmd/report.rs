//! From a snapshot to a report: the same function for `hbbp-sys report` and for a direct run.

use std::io::{self, BufWriter, Write};

use anyhow::Context;

use crate::mix::{Dimension, analyse};
use crate::report::{Format, Miss, Report, quality};
use crate::snapshot::Snapshot;

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
}

impl Default for ReportOptions {
    fn default() -> Self {
        /// Where no terminal says how wide it is: the table then has all of its columns.
        const WIDTH: usize = 100;

        Self {
            by: vec![Dimension::Mnemonic],
            rule: "hybrid".to_owned(),
            top: None,
            format: Format::default(),
            width: WIDTH,
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
    let analysis = analyse(snapshot, &options.by, &rule);
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
