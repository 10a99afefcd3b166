//! The report of a snapshot and its analysis, as text, JSON or CSV.
//!
//! A [`Report`] is built once, and each format prints the same content: run facts, warnings, the mix, and an
//! accounting of all samples that closes.
//! Figures always have their unit; time-weighted samples are never called executions.

mod accounting;
mod annotated;
mod body;
mod classes;
mod completeness;
mod csv;
mod difference;
mod errors;
mod format;
mod header;
mod html;
mod json;
mod look;
mod loops;
mod measured;
mod named;
mod no_executions;
mod number;
mod over_time;
mod page;
mod pairs;
mod pivot_table;
mod quality;
mod refused;
mod residual;
mod screen;
mod table;
mod text;
pub mod top;
mod warning;
pub mod watch;

use std::io::{self, Write};

pub use annotated::{AnnotatedReport, Shown};
use body::Body;
pub use difference::{DiffReport, described};
pub use errors::evaluated::Errors;
pub use format::{DiffFormat, ErrorsFormat, Format, TextOrJson};
use hbbp_analysis::loops::Loops;
use hbbp_analysis::mix::{Analysis, Mix, MixOverTime, OverTime, Verdict, View};
use hbbp_model::advice::Wording;
use hbbp_model::snapshot::Snapshot;
pub use look::{Colours, Letters, Look};
use loops::RunLoops;
pub use measured::{Comparison, Report};
use measured::{Extent, Measured};
use over_time::Rows;
use page::Page;
pub use pairs::write_pairs;
pub use quality::{Miss, quality};
pub use screen::Overview;

/// A table of a report.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a> {
    /// What it shows.
    pub mix: &'a Mix,
    /// Most lines; `None` for all.
    pub top: Option<usize>,
}

impl<'a> Report<'a> {
    /// The report on the runs of a profile, each with its analysis, with these tables of all of them, which may be those of a
    /// view, and verdicts; `wording` puts advice into words.
    pub fn new(
        runs: impl Iterator<Item = (&'a Snapshot, &'a Analysis)>,
        view: Option<&'a View>,
        tables: &[Table<'_>],
        verdicts: &'a [Verdict],
        wording: Wording,
    ) -> Self {
        let runs: Vec<Measured<'a>> = runs
            .map(|(snapshot, analysis)| Measured::new(snapshot, analysis))
            .collect();
        let durations = runs.iter().map(|run| run.snapshot.run.duration);
        let duration = durations.fold(0, u64::saturating_add);
        let body = |table: &Table<'_>| Body::new(table.mix, table.top, duration);
        Self {
            runs,
            view,
            bodies: tables.iter().map(body).collect(),
            verdicts,
            over_time: None,
            comparison: None,
            loops: Vec::new(),
            wording,
            extent: Extent::Details,
        }
    }

    /// The same, as text of one screen.
    #[must_use]
    pub fn on_one_screen(mut self, overview: Overview) -> Self {
        self.extent = Extent::Screen(Box::new(overview));
        self
    }

    /// The same, as text of the tables alone.
    #[must_use]
    pub fn of_tables_alone(mut self) -> Self {
        self.extent = Extent::Tables;
        self
    }

    /// The warnings that may bend 1 % of the figures or more, the heaviest first, one for each fact.
    pub fn heaviest_warnings(&self) -> Vec<String> {
        let claims = warning::heaviest(&self.runs);
        claims.iter().map(|claim| claim.in_words(self.wording)).collect()
    }

    /// The same for a mix over time, of which each format shows at most `top` rows.
    #[must_use]
    pub const fn with_over_time(
        mut self,
        over_time: &'a OverTime,
        mix: &'a MixOverTime,
        top: Option<usize>,
    ) -> Self {
        self.over_time = Some((over_time, Rows { mix, top }));
        self
    }

    /// The same with what changed, which the page shows.
    #[must_use]
    pub const fn with_comparison(mut self, comparison: &'a Comparison) -> Self {
        self.comparison = Some(comparison);
        self
    }

    /// The same for the loops of each run: each format shows at most `top`, and the page shows none.
    #[must_use]
    pub fn with_loops(mut self, loops: &'a [Loops], top: Option<usize>) -> Self {
        let of_run = |(run, loops): (&Measured<'a>, &'a Loops)| RunLoops {
            snapshot: run.snapshot,
            loops,
            top,
        };
        self.loops = self.runs.iter().zip(loops).map(of_run).collect();
        self
    }

    /// Writes the report; text looks as `look` says.
    pub fn write(&self, format: Format, look: Look, out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Text => match &self.extent {
                Extent::Details => text::write(self, &mut Page { look, out }),
                Extent::Tables => text::write_tables_alone(self, &mut Page { look, out }),
                Extent::Screen(overview) => screen::write(self, overview, &mut Page { look, out }),
            },
            Format::Json => json::write(self, out),
            Format::Csv => match (&self.over_time, self.loops.as_slice()) {
                (Some((_, rows)), _) => rows.csv(out),
                (None, []) => csv::write(&self.bodies, out),
                (None, loops) => loops.iter().try_for_each(|run| run.csv(out)),
            },
            Format::Html => html::write(self, look.demangle, out),
        }
    }
}
