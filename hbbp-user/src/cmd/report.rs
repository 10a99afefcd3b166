//! Prints the report of a snapshot, for `hbbp-sys report` and for direct runs.

mod checks;
mod options;
mod profile;

use std::borrow::Cow;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};

use super::diff::comparison;
use super::pager::{Paging, paged};
use super::text_file::read_text;
use super::units::check_one_unit;
use crate::advice::words;
pub use checks::WrongUse;
use hbbp_analysis::mix::{Analysis, Estimated, Mix, Outcome, Taxonomy, Verdict, sum};
use hbbp_estimate::stages::Stage;
use hbbp_estimate::{EventAssignment, Rule};
use hbbp_model::snapshot::Snapshot;
use hbbp_output::report::{Format, Miss, Report, Table, quality};
pub use options::{Extent, ReportOptions};
use profile::Profile;

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
pub(crate) fn read_taxonomies(files: &[PathBuf]) -> anyhow::Result<Vec<Arc<Taxonomy>>> {
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
    check_one_unit_of(&profile.estimated)?;
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
    let verdicts = profile.verdicts(options)?;
    let loops = profile.loops(options)?;
    let overview = profile.overview(options)?;
    let kernel_times = tables.iter().map(|(query, _)| profile.kernel_time(query));
    let kernel_times: Vec<Option<Mix>> = kernel_times.collect::<anyhow::Result<_>>()?;
    let first = of_runs.into_iter().next().context("a view has tables")?;
    let analyses = profile.estimated.into_iter().zip(first);
    let analyses: Vec<Analysis> = analyses.map(|(run, mix)| run.analysis(mix)).collect();
    let missing: Vec<String> = profile.notes.iter().flatten().cloned().collect();
    let noted = runs.iter().zip(profile.notes);
    let noted: Vec<Cow<'_, Snapshot>> = noted.map(|(run, notes)| noted_run(run, notes)).collect();
    let runs = || noted.iter().map(Cow::as_ref).zip(&analyses);
    let of_kernel = kernel_times.iter().zip(&tables);
    let of_kernel = of_kernel.filter_map(|(mix, table)| Some((mix.as_ref()?, table)));
    let shown = sums.iter().zip(&tables).chain(of_kernel);
    let shown: Vec<Table<'_>> = shown.map(|(mix, (_, top))| Table { mix, top: *top }).collect();
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

/// Refuses a sum of runs that have none.
pub(super) fn check_one_unit_of(runs: &[Estimated<'_>]) -> anyhow::Result<()> {
    check_one_unit(
        runs.iter()
            .map(|run| (&run.snapshot.run, &run.counts().assignment)),
    )
}

/// The events that the figures of a run are made of, and their unit.
pub(super) fn assignment_of(run: &Snapshot, rule: &Rule) -> EventAssignment {
    let rule = Rule {
        stages: rule.stages.without(Stage::Landing).without(Stage::Balance),
        ..rule.clone()
    };
    Estimated::new(run, &rule).counts().assignment.clone()
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
