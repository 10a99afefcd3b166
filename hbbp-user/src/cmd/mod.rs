//! The commands of the program: each wires the stages that it needs.

mod allowed;
pub mod annotate;
pub(crate) mod bbv;
mod budget;
pub(crate) mod check;
pub(crate) mod child;
mod closed_pipe;
pub(crate) mod daemon;
pub mod diff;
mod environment;
pub(crate) mod eval;
pub(crate) mod export;
mod host_facts;
pub mod import;
mod input;
pub(crate) mod interrupt;
mod interval;
pub(crate) mod kernel_text;
mod keyboard;
mod locations;
pub(crate) mod manual;
mod measure;
pub(crate) mod merge;
pub mod pager;
mod privileges;
pub(crate) mod processwatch;
mod profile_output;
pub(crate) mod progress;
pub mod record;
pub mod report;
mod rights;
mod rule;
mod runs;
mod schedule;
pub(crate) mod selftest;
mod session;
mod source_text;
mod static_image;
mod text_file;
pub mod top;
mod units;
mod worker;

use std::fs::Metadata;
use std::io::{self, IsTerminal as _, Write};
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use closed_pipe::up_to_a_closed_pipe;
use export::ExportOptions;
use hbbp_analysis::diff::Gate;
use hbbp_model::profile::Output;
use hbbp_model::snapshot::Snapshot;
use hbbp_model::snapshot::file::Compression;
use hbbp_output::report::{Format, TextOrJson};
use import::ImportOptions;
use indicatif::HumanBytes;
use profile_output::open_output;
use record::{Command, RecordOptions, Recorded};
use report::{Quality, ReportOptions};

/// A command with its options.
#[derive(Debug)]
pub enum Job {
    /// Record and report at once; also save the profile if a path is given.
    Direct(RecordOptions, ReportOptions, Option<PathBuf>),
    /// Record basic block vectors, and save them or print their totals.
    Bbv(bbv::BbvOptions),
    /// Record and save the profile.
    Record(RecordOptions, PathBuf),
    /// Report on a saved profile or a recording of another tool, to a file if a path is given.
    Report(ImportOptions, ReportOptions, Option<PathBuf>),
    /// Convert a recording of another tool to a profile.
    Import(ImportOptions, PathBuf),
    /// Export a profile or a recording in the format of others.
    Export(ExportOptions),
    /// Show code with its counts.
    Annotate(annotate::AnnotateOptions),
    /// Show what changed from one profile to another.
    Diff(diff::DiffOptions),
    /// Put the runs of several profiles into one.
    Merge(merge::MergeOptions),
    /// Compare a saved profile with exact counts.
    Eval(eval::EvalOptions),
    /// Show what this machine supports.
    Check(TextOrJson),
    /// Compare live kernel text with the static image.
    KernelText(kernel_text::KernelTextOptions),
    /// Print the mix of each process at intervals.
    ProcessWatch(processwatch::WatchOptions),
    /// Show the mix as it runs.
    Top(top::TopOptions),
    /// Measure for ever, and keep a profile of each interval.
    Daemon(daemon::DaemonOptions),
    /// Print the columns that such a mix can have.
    ListColumns(processwatch::Columns),
    /// Run loads whose executions are known, and say how true a measurement of them is here.
    SelfTest(selftest::SelfTestOptions),
    /// Run these loads.
    SelfTestLoads {
        /// The process that asks.
        parent: u32,
        /// An inherited descriptor that the counts are written to.
        counts: RawFd,
        /// How long they run.
        time: Duration,
    },
    /// Print a text that is generated from the definition of the command line.
    Print(Vec<u8>),
    /// Write man pages to a directory.
    SaveManual(Vec<manual::Page>, PathBuf),
}

/// How a job ended.
#[derive(Debug, Default)]
pub struct Done {
    /// Exit code of the command that was measured.
    pub command: Option<u8>,
    /// Quality of the measurement.
    pub quality: Quality,
    /// What became of the conditions on a difference.
    pub gates: Vec<Gate>,
    /// What was done, where nothing else says it.
    pub saved: Option<String>,
    /// Whether a self-test found that something is off.
    pub is_off: bool,
    /// What the user must know of an import, a merge or an export, sentence by sentence.
    pub warnings: Vec<String>,
    /// What was measured. The program ends without freeing it piece by piece.
    pub snapshot: Option<Snapshot>,
}

/// Runs the job, and prints its output to `out`. A closed pipe ends the output of a job that has no other result.
pub fn run(job: &Job, out: &mut dyn Write) -> anyhow::Result<Done> {
    match job {
        Job::Direct(record, report, output) => direct(record, report, output.as_deref(), out),
        Job::Bbv(options) => record_vectors(options, out),
        Job::Record(record, path) => {
            let output = open_output(path)?;
            let recorded = record::record(record)?;
            output.save(std::slice::from_ref(&recorded.snapshot), Compression::Fast, out)?;
            Ok(Done {
                saved: saved(path),
                ..end(recorded)?
            })
        }
        Job::Report(input, report, output) => Ok(Done {
            quality: saved_report(input, report, output.as_deref(), out)?,
            ..Done::default()
        }),
        Job::Import(input, path) => save_import(input, path, out),
        Job::Diff(options) => Ok(Done {
            gates: diff::compare(options, out)?,
            ..Done::default()
        }),
        Job::Merge(options) => Ok(Done {
            warnings: merge::merge(options, out)?,
            saved: saved(&options.output),
            ..Done::default()
        }),
        Job::Annotate(options) => annotate::annotate(options, out).map(|()| Done::default()),
        Job::ProcessWatch(options) => processwatch::watch(options, out).map(|()| Done::default()),
        Job::Top(options) => top::top(options, out).map(|()| Done::default()),
        Job::Daemon(options) => Ok(Done {
            warnings: daemon::daemon(options)?,
            ..Done::default()
        }),
        Job::Export(options) => Ok(Done {
            warnings: up_to_a_closed_pipe(export::run(options, out))?,
            ..Done::default()
        }),
        Job::Eval(options) => up_to_a_closed_pipe(eval::eval(options, out)).map(|()| Done::default()),
        Job::KernelText(options) => {
            up_to_a_closed_pipe(kernel_text::kernel_text(options, out)).map(|()| Done::default())
        }
        Job::ListColumns(columns) => {
            up_to_a_closed_pipe(processwatch::list(*columns, out)).map(|()| Done::default())
        }
        Job::Print(text) => {
            let printed = out.write_all(text).map_err(anyhow::Error::from);
            up_to_a_closed_pipe(printed).map(|()| Done::default())
        }
        Job::SaveManual(pages, folder) => manual::save(pages, folder).map(|()| Done::default()),
        Job::SelfTest(options) => Ok(Done {
            is_off: selftest::selftest(options, out)?,
            saved: options.output.as_deref().and_then(saved),
            ..Done::default()
        }),
        Job::SelfTestLoads { parent, counts, time } => {
            selftest::run_loads(*parent, *counts, *time).map(|()| Done::default())
        }
        Job::Check(format) => up_to_a_closed_pipe(check::check(*format, out)).map(|()| Done::default()),
    }
}

/// Imports a recording as a profile.
fn save_import(input: &ImportOptions, path: &Path, out: &mut dyn Write) -> anyhow::Result<Done> {
    let output = open_output(path)?;
    let snapshot = import::import(input)?;
    import::check_resolved(&snapshot)?;
    output.save(std::slice::from_ref(&snapshot), Compression::Small, out)?;
    Ok(Done {
        saved: saved(path),
        warnings: snapshot.run.notes,
        ..Done::default()
    })
}

/// Where a profile is, how large it is, and what reads it; `None` of one in a pipe or device.
fn saved(path: &Path) -> Option<String> {
    let size = path.metadata().ok().filter(Metadata::is_file)?.len();
    let (path, size) = (allowed::quoted(&path.to_string_lossy()), HumanBytes(size));
    Some(format!("saved {path}, {size}: hbbp-sys report {path}"))
}

/// Records basic block vectors, and saves them or prints their totals.
fn record_vectors(options: &bbv::BbvOptions, out: &mut dyn Write) -> anyhow::Result<Done> {
    options.check_output()?;
    let mut recorded = record::record(&options.record)?;
    let warnings = bbv::save(options, &mut recorded, out)?;
    Ok(Done {
        warnings,
        ..end(recorded)?
    })
}

/// Reports on what was recorded before.
fn saved_report(
    input: &ImportOptions,
    report: &ReportOptions,
    output: Option<&Path>,
    out: &mut dyn Write,
) -> anyhow::Result<Quality> {
    let Some(path) = output else {
        anyhow::ensure!(
            report.format != Format::Html || !io::stdout().is_terminal(),
            "a page is for a browser, not for a terminal: name a file, as in `-o report.html`"
        );
        return report::print_runs(&runs::read_runs(input)?, report, out);
    };
    let output = Output::open(path)?;
    let mut bytes = Vec::new();
    let quality = report::print_runs(&runs::read_runs(input)?, report, &mut bytes)?;
    output.write(&bytes, out)?;
    Ok(quality)
}

/// Records and reports at once.
fn direct(
    record: &RecordOptions,
    report: &ReportOptions,
    output: Option<&Path>,
    out: &mut dyn Write,
) -> anyhow::Result<Done> {
    let output = output.map(Output::open).transpose()?;
    anyhow::ensure!(
        !output.as_ref().is_some_and(Output::is_standard),
        "the report goes to standard output: save the profile with `hbbp-sys record -o -`"
    );
    let recorded = record::record(record)?;
    let saved = output.map(|output| {
        let runs = std::slice::from_ref(&recorded.snapshot);
        output.save(runs, Compression::Fast, &mut io::sink())
    });
    // The report is printed even if the disk is full.
    let quality = report::print(&recorded.snapshot, report, out)?;
    saved.transpose()?;
    Ok(Done {
        quality,
        ..end(recorded)?
    })
}

/// Waits for a command that outlives its measurement, to pass on its exit code.
fn end(recorded: Recorded) -> anyhow::Result<Done> {
    let Recorded {
        snapshot,
        command,
        interrupt,
        ..
    } = recorded;
    interrupt.abort_at_next();
    let command = match command {
        None => None,
        Some(Command::Ended(code)) => Some(code),
        Some(Command::Running(mut child)) => Some(child::exit_code(child.wait()?)),
    };
    Ok(Done {
        command,
        snapshot: Some(snapshot),
        ..Done::default()
    })
}
