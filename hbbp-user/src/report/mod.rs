//! The report: what a snapshot and its analysis say, as text, as JSON or as CSV.
//!
//! A [`Report`] is put together once, and each format shows the same of it: the facts of the run, every doubt about
//! the measurement, the mix, and an accounting of all samples that closes.
//! Whatever the unit of the figures is, it stands beside them; time-weighted samples are never called executions.

mod accounting;
mod body;
mod completeness;
mod csv;
mod errors;
mod header;
mod json;
mod number;
mod page;
mod quality;
mod residual;
mod table;
mod text;
mod warning;

use std::io::{self, Write};
use std::str::FromStr;

use crate::locate::{Discard, PerRing};
use crate::mix::{Analysis, MethodShare};
use crate::snapshot::Snapshot;
use accounting::Accounting;
use body::Body;
pub use errors::Errors;
pub use quality::{Miss, quality};
use residual::{Residual, residuals};
use warning::{Warning, warnings};

/// The form of a report.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Format {
    /// For people: aligned text.
    #[default]
    Text,
    /// For programs: the whole report, format `hbbp-sys.mix/1`.
    Json,
    /// For spreadsheets: the table alone.
    Csv,
}

/// A name that is no format.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is no format of a report; choose from text, json, csv")]
pub struct UnknownFormat(pub String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        match name {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            "csv" => Ok(Self::Csv),
            other => Err(UnknownFormat(other.to_owned())),
        }
    }
}

/// Everything that is shown of a measurement, in any format.
#[derive(Debug)]
pub struct Report<'a> {
    snapshot: &'a Snapshot,
    methods: &'a [MethodShare],
    warnings: Vec<Warning>,
    accounting: Accounting,
    streams: Streams,
    residuals: Vec<Residual>,
    body: Body,
}

/// The way of the streams of branch stacks.
#[derive(Debug, Default)]
struct Streams {
    counted: u64,
    discarded: Vec<(Discard, PerRing)>,
    accepted: u64,
    /// Those of the accepted that an interrupt or exception ended.
    interrupted: u64,
}

impl<'a> Report<'a> {
    /// The report on a snapshot and its analysis, with at most `top` lines of the mix.
    pub fn new(snapshot: &'a Snapshot, analysis: &'a Analysis, top: Option<usize>) -> Self {
        let accounting = Accounting::new(snapshot, analysis);
        Self {
            snapshot,
            methods: &analysis.methods,
            warnings: warnings(analysis, snapshot, &accounting),
            streams: Streams::new(analysis),
            residuals: residuals(snapshot, analysis),
            body: Body::new(&analysis.mix, top),
            accounting,
        }
    }

    /// Writes the report; the lines of text have at most `width` columns.
    pub fn write(&self, format: Format, width: usize, out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Text => text::write(self, width, out),
            Format::Json => json::write(self, out),
            Format::Csv => csv::write(&self.body, out),
        }
    }
}

impl Streams {
    fn new(analysis: &Analysis) -> Self {
        let discarded = Discard::ALL
            .iter()
            .map(|reason| (*reason, analysis.discarded.get(*reason)));
        let discarded: Vec<_> = discarded.filter(|(_, n)| 0 < n.total()).collect();
        let accepted = analysis.accepted.get(()).total();
        let counted = discarded
            .iter()
            .fold(accepted, |sum, (_, n)| sum.saturating_add(n.total()));
        Self {
            counted,
            discarded,
            accepted,
            interrupted: analysis.interrupted.get(()).total(),
        }
    }
}
