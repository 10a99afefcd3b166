//! Prints the report of a snapshot, for `hbbp-sys report` and for direct runs.

mod checks;

use std::borrow::Cow;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};

use super::diff::{comparison, estimated_runs};
use super::import::ImportOptions;
use super::locations::read_locations;
use super::pager::{Paging, paged};
use super::session::DRAIN_EVERY;
use super::text_file::read_text;
use crate::advice::words;
pub use checks::WrongUse;
use hbbp_analysis::loops::{Loops, loops};
use hbbp_analysis::mix::{
    Analysis, Confidence, Dimension, Estimated, Mix, MixOverTime, Outcome, OverTime, Query, Requirement,
    Taxonomy, Verdict, View, sum,
};
use hbbp_estimate::stages::Stage;
use hbbp_estimate::{Rule, Unit};
use hbbp_model::snapshot::{Snapshot, SourceLocations};
use hbbp_output::report::{Format, Look, Miss, Overview, Report, Table, quality};
use hbbp_resolve::source::lines::SourceLines;

/// Content and format of a report.
#[derive(Clone, Debug)]
pub struct ReportOptions {
    /// What the table shows, unless there is a view.
    pub query: Query,
    /// Tables to print instead.
    pub view: Option<View>,
    /// What must hold of the mix.
    pub requirements: Vec<Requirement>,
    /// How sure a failed requirement must be.
    pub confidence: Confidence,
    /// Name or file of the rule that chooses between EBS and LBR.
    pub rule: String,
    /// Most lines of each table; `None` for all.
    pub top: Option<usize>,
    /// The form of the report.
    pub format: Format,
    /// How much of the report text shows.
    pub extent: Extent,
    /// How text looks.
    pub look: Look,
    /// Whether the rows are also shown by period.
    pub over_time: bool,
    /// A profile that the page shows the changes against.
    pub compare: Option<ImportOptions>,
    /// Files with debug information, for the dimensions that need it; others are found by their build ids.
    pub debug_files: Vec<PathBuf>,
}

/// How much of a report text shows; the other formats hold all of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Extent {
    /// Header, warnings, tables, accounting; a pager may show them.
    Details(Paging),
    /// Only the tables. The most important warnings are in [`Quality::warnings`].
    Tables,
    /// One screen with what people ask first.
    Screen,
}

impl Default for ReportOptions {
    fn default() -> Self {
        Self {
            query: Query::by([Dimension::Mnemonic]),
            view: None,
            requirements: Vec::new(),
            confidence: Confidence::default(),
            rule: "balanced".to_owned(),
            top: None,
            format: Format::default(),
            extent: Extent::Details(Paging::Never),
            look: Look::default(),
            over_time: false,
            compare: None,
            debug_files: Vec::new(),
        }
    }
}

impl ReportOptions {
    /// The queries of all tables, each with its limit of lines.
    fn tables(&self) -> Vec<(&Query, Option<usize>)> {
        match &self.view {
            None => vec![(&self.query, self.top)],
            Some(view) => view
                .tables
                .iter()
                .map(|table| (&table.query, table.top))
                .collect(),
        }
    }

    /// Whether some table or requirement depends on the process image.
    pub fn asks_process(&self) -> bool {
        self.asks(Query::asks_process)
    }

    /// Whether some table has threads in it.
    pub fn asks_thread(&self) -> bool {
        self.asks(|query| query.asks(Dimension::Thread))
    }

    fn asks(&self, of: impl Fn(&Query) -> bool) -> bool {
        let required = self.requirements.iter().map(Requirement::query);
        self.tables().into_iter().any(|(query, _)| of(query)) || required.into_iter().any(|query| of(&query))
    }
}

/// Quality of the reported measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quality {
    /// The stated limits that it missed.
    pub misses: Vec<Miss>,
    /// What became of the requirements.
    pub verdicts: Vec<Verdict>,
    /// The most important warnings, where the text has only tables.
    pub warnings: Vec<String>,
}

impl Quality {
    /// The requirements that the data contradict; with `strict` limits also those that are not shown to hold.
    pub fn unmet(&self, strict: Strict) -> impl Iterator<Item = &Verdict> {
        self.verdicts.iter().filter(move |verdict| match verdict.outcome {
            Outcome::Passed => false,
            Outcome::Undecided => strict == Strict::Yes,
            Outcome::Failed => true,
        })
    }
}

/// Whether a measurement that misses a limit of quality fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Strict {
    /// Yes.
    Yes,
    /// No: it only warns.
    No,
}

/// Reads the taxonomies of these files, after those that are built in.
pub fn read_taxonomies(files: &[PathBuf]) -> anyhow::Result<Vec<Arc<Taxonomy>>> {
    let mut taxonomies = Taxonomy::built_in();
    for file in files {
        let taxonomy = read_taxonomy(file).with_context(|| format!("taxonomy {}", file.display()))?;
        if taxonomies.iter().any(|other| other.name == taxonomy.name) {
            bail!(
                "{}: there is another taxonomy `{}`",
                file.display(),
                taxonomy.name
            );
        }
        taxonomies.push(Arc::new(taxonomy));
    }
    Ok(taxonomies)
}

fn read_taxonomy(file: &Path) -> anyhow::Result<Taxonomy> {
    Ok(Taxonomy::parse(&read_text(file)?)?)
}

/// Prints the report of a snapshot. A closed pipe is not an error.
pub fn print(snapshot: &Snapshot, options: &ReportOptions, out: &mut dyn Write) -> anyhow::Result<Quality> {
    print_runs(std::slice::from_ref(snapshot), options, out)
}

/// Prints the report of all runs of a profile: each is estimated by itself, and the tables show their sums. A closed pipe is
/// not an error.
pub fn print_runs(
    runs: &[Snapshot],
    options: &ReportOptions,
    out: &mut dyn Write,
) -> anyhow::Result<Quality> {
    check_one_run(runs, options.format)?;
    let rule = super::rule::read(&options.rule)?;
    let profile = Profile::new(runs, &rule, options);
    let tables = options.tables();
    let over_time = profile.over_time(options)?;
    let other = options.compare.as_ref();
    let comparison = other.map(|other| comparison(other, &profile.estimated, &rule));
    let comparison = comparison.transpose()?;
    // The tables of each run, and their sums.
    let of_runs: Vec<Vec<Mix>> = tables.iter().map(|(query, _)| profile.mixes(query)).collect();
    let sums = tables.iter().zip(&of_runs);
    let sums: Vec<Mix> = sums
        .map(|((query, _), mixes)| sum(query, mixes.iter().cloned()))
        .collect();
    checks::check_tables(options, &sums, &profile)?;
    let verdicts = profile.verdicts(options);
    let loops = profile.loops(options)?;
    let overview = profile.overview(options);
    let first = of_runs.into_iter().next().context("a view has tables")?;
    let analyses = profile.estimated.into_iter().zip(first);
    let analyses: Vec<Analysis> = analyses.map(|(run, mix)| run.analysis(mix)).collect();
    let missing: Vec<String> = profile.notes.iter().flatten().cloned().collect();
    let noted = runs.iter().zip(profile.notes);
    let noted: Vec<Cow<'_, Snapshot>> = noted.map(|(run, notes)| noted_run(run, notes)).collect();
    let runs = || noted.iter().map(Cow::as_ref).zip(&analyses);
    let shown: Vec<Table<'_>> = sums
        .iter()
        .zip(&tables)
        .map(|(mix, (_, top))| Table { mix, top: *top })
        .collect();
    let mut report = Report::new(runs(), options.view.as_ref(), &shown, &verdicts, words);
    if let Some((over_time, mix)) = &over_time {
        report = report.with_over_time(over_time, mix, tables.first().and_then(|(_, top)| *top));
    }
    if let Some(comparison) = &comparison {
        report = report.with_comparison(comparison);
    }
    report = report.with_loops(&loops, options.top);
    if let Some(overview) = overview {
        report = report.on_one_screen(overview);
    }
    let stands_alone = options.format == Format::Text && options.extent == Extent::Tables;
    let warnings = if stands_alone {
        report = report.of_tables_alone();
        // What is missing of what was asked for goes first.
        let heaviest = report.heaviest_warnings().into_iter().take(WARNINGS);
        missing.into_iter().chain(heaviest).collect()
    } else {
        Vec::new()
    };
    write(&report, options, out)?;
    Ok(Quality {
        warnings,
        misses: runs()
            .flat_map(|(run, analysis)| quality(analysis, run))
            .collect(),
        verdicts,
    })
}

/// Refuses several runs where a page shows one.
fn check_one_run(runs: &[Snapshot], format: Format) -> anyhow::Result<()> {
    anyhow::ensure!(
        format != Format::Html || runs.len() < 2,
        "an HTML page shows one run, and this profile has {}: report one of those that were merged",
        runs.len()
    );
    Ok(())
}

/// Warnings next to tables: the most important ones.
const WARNINGS: usize = 2;

/// Writes a report. A closed pipe is not an error.
fn write(report: &Report<'_>, options: &ReportOptions, out: &mut dyn Write) -> anyhow::Result<()> {
    let paging = match options.extent {
        Extent::Details(paging) if options.format == Format::Text => paging,
        _ => Paging::Never,
    };
    let written = paged(paging, out, &mut |out| {
        let mut out = BufWriter::new(out);
        report.write(options.format, options.look, &mut out)?;
        out.flush()
    });
    written.context("failed to write the report")
}

/// The runs of a profile, estimated.
struct Profile<'a> {
    estimated: Vec<Estimated<'a>>,
    /// The source locations of the instructions of each run, where a table or requirement asks for them.
    locations: Vec<SourceLocations>,
    /// Notes on locations that are missing in each run.
    notes: Vec<Vec<String>>,
}

impl<'a> Profile<'a> {
    fn new(runs: &'a [Snapshot], rule: &Rule, options: &ReportOptions) -> Self {
        let estimated = estimated_runs(runs, rule);
        let asks_source = options.asks(Query::asks_source);
        let of_run = |(run, estimated): (&Snapshot, &Estimated<'_>)| {
            if asks_source {
                read_locations(run, estimated, &options.debug_files)
            } else {
                Default::default()
            }
        };
        let (locations, notes) = runs.iter().zip(&estimated).map(of_run).unzip();
        Self {
            estimated,
            locations,
            notes,
        }
    }

    /// The answers of all runs.
    fn mixes(&self, query: &Query) -> Vec<Mix> {
        let runs = self.estimated.iter().zip(&self.locations);
        runs.map(|(run, locations)| run.mix(query, locations)).collect()
    }

    /// The rows of the first table by period, where they are asked for.
    fn over_time(&self, options: &ReportOptions) -> anyhow::Result<Option<(OverTime, MixOverTime)>> {
        if !options.over_time {
            return Ok(None);
        }
        let tables = options.tables();
        let (Some((query, _)), [run], [locations]) = (tables.first(), &*self.estimated, &*self.locations)
        else {
            bail!(
                "--over-time shows one run, and this profile has several: report one of those that were merged"
            );
        };
        let over_time = OverTime::new(run);
        anyhow::ensure!(
            1 < over_time.periods.len(),
            "--over-time needs counts of several intervals, and this profile has those of {}: record for longer than {} s, \
             the time between two drains",
            over_time.periods.len(),
            DRAIN_EVERY.as_secs()
        );
        let mix = over_time.mix(run, query, locations);
        Ok(Some((over_time, mix)))
    }

    /// The loops of each run, where the view shows them, with the source lines of those that are shown.
    fn loops(&self, options: &ReportOptions) -> anyhow::Result<Vec<Loops>> {
        let view = options.view.as_ref();
        let Some(view) = view.filter(|view| view.shows_loops()) else {
            return Ok(Vec::new());
        };
        anyhow::ensure!(
            options.format != Format::Html,
            "a page does not show loops; use --format text, json or csv with --view loops"
        );
        let filtered = view.tables.iter().any(|table| !table.query.filters.is_empty());
        anyhow::ensure!(
            !filtered && !options.over_time,
            "--view loops has all loops of the whole run: leave out --filter and --over-time"
        );
        let of_run = |run: &Estimated<'a>| {
            let mut found = loops(run);
            let n = options.top.unwrap_or(usize::MAX);
            let shown = found.loops.iter().take(n);
            let instructions = shown.flat_map(|it| it.region.instructions(run.map()));
            let instructions = instructions.chain(found.call_addresses(n));
            let mut lines = SourceLines::new(run.snapshot(), options.debug_files.clone());
            let locations = lines.read_lines(instructions);
            found.locate(n, run.map(), &locations);
            found
        };
        Ok(self.estimated.iter().map(of_run).collect())
    }

    /// What the first screen shows, where it is asked for.
    fn overview(&self, options: &ReportOptions) -> Option<Overview> {
        let is_shown = options.format == Format::Text && options.extent == Extent::Screen;
        is_shown.then(|| Overview::new(|query| sum(query, self.mixes(query).into_iter())))
    }

    fn verdicts(&self, options: &ReportOptions) -> Vec<Verdict> {
        let samples = self.estimated.iter().map(Estimated::samples).sum();
        let verdict = |requirement: &Requirement| {
            let query = requirement.query();
            let mix = sum(&query, self.mixes(&query).into_iter());
            requirement.test(&mix, samples, options.confidence)
        };
        options.requirements.iter().map(verdict).collect()
    }
}

/// The unit of the figures of a run.
pub(super) fn unit_of(run: &Snapshot, rule: &Rule) -> Unit {
    let rule = Rule {
        stages: rule.stages.without(Stage::Landing).without(Stage::Balance),
        ..rule.clone()
    };
    Estimated::new(run, &rule).counts().assignment.unit
}

/// A run with more notes.
fn noted_run(run: &Snapshot, notes: Vec<String>) -> Cow<'_, Snapshot> {
    if notes.is_empty() {
        return Cow::Borrowed(run);
    }
    let mut noted = run.clone();
    noted.run.notes.extend(notes);
    Cow::Owned(noted)
}
