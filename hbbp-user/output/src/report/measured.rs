//! What a report holds, for all formats.

use super::accounting::Accounting;
use super::body::Body;
use super::loops::RunLoops;
use super::over_time::Rows;
use super::refused::{RefusedIn, refused_in};
use super::residual::{Residual, residuals};
use super::screen::Overview;
use super::warning::{Warning, warnings};
use hbbp_analysis::diff::Diff;
use hbbp_analysis::mix::{Analysis, MethodShare, Outcome, OverTime, Verdict, View};
use hbbp_code::locate::{Discard, PerRing};
use hbbp_model::advice::Wording;
use hbbp_model::snapshot::Snapshot;

/// The content of a report, for all formats.
#[derive(Debug)]
pub struct Report<'a> {
    /// One for each run of the profile.
    pub(super) runs: Vec<Measured<'a>>,
    pub(super) view: Option<&'a View>,
    pub(super) bodies: Vec<Body>,
    pub(super) verdicts: &'a [Verdict],
    pub(super) over_time: Option<(&'a OverTime, Rows<'a>)>,
    pub(super) comparison: Option<&'a Comparison>,
    /// One for each run, if they are requested.
    pub(super) loops: Vec<RunLoops<'a>>,
    pub(super) wording: Wording,
    pub(super) extent: Extent,
}

impl<'a> Report<'a> {
    /// The requirements that text shows. Standard error says which of them are not shown to hold, once.
    pub(super) fn passed(&self) -> impl Iterator<Item = &'a Verdict> {
        let verdicts = self.verdicts.iter();
        verdicts.filter(|verdict| verdict.outcome == Outcome::Passed)
    }
}

/// How much of a report its text shows; the other formats hold all of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Extent {
    /// Header, warnings, tables, accounting.
    Details,
    /// The tables alone.
    Tables,
    /// One screen.
    Screen(Box<Overview>),
}

/// What changed from another profile to that of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Both profiles in words: see [`super::described`].
    pub sides: [String; 2],
    /// The changes by several axes.
    pub diffs: Vec<Diff>,
    /// What the reader must know, such as that the machines differ.
    pub notes: Vec<String>,
}

/// What is to be said of one run.
#[derive(Debug)]
pub(super) struct Measured<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) analysis: &'a Analysis,
    pub(super) methods: &'a [MethodShare],
    pub(super) warnings: Vec<Warning>,
    pub(super) accounting: Accounting,
    pub(super) streams: Streams,
    pub(super) residuals: Vec<Residual>,
    /// Where branch stacks were refused.
    pub(super) refused_in: Vec<RefusedIn>,
}

impl<'a> Measured<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, analysis: &'a Analysis) -> Self {
        let accounting = Accounting::new(snapshot, analysis);
        let refused_in = refused_in(snapshot);
        Self {
            snapshot,
            analysis,
            methods: &analysis.methods,
            warnings: warnings(analysis, snapshot, &accounting, &refused_in),
            streams: Streams::new(analysis),
            residuals: residuals(snapshot, analysis),
            accounting,
            refused_in,
        }
    }
}

impl Measured<'_> {
    /// Why its figures are not executions: the first line of every output.
    pub(super) fn without_executions(&self) -> Option<&Warning> {
        self.warnings.iter().find(|warning| warning.is_first_line())
    }

    /// The other warnings.
    pub(super) fn other_warnings(&self) -> impl Iterator<Item = &Warning> {
        self.warnings.iter().filter(|warning| !warning.is_first_line())
    }
}

/// Accounting of the streams of branch stacks.
#[derive(Debug, Default)]
pub(super) struct Streams {
    pub(super) counted: u64,
    pub(super) discarded: Vec<(Discard, PerRing)>,
    pub(super) accepted: u64,
    /// Accepted streams that an interrupt or exception ended.
    pub(super) interrupted: u64,
    /// The discarded ones whose weight was redistributed to the accepted.
    pub(super) made_up: u64,
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
            made_up: analysis.counts.outcome.made_up,
        }
    }
}
