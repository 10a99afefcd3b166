//! The verbs of the program: each wires the stages that it needs.

pub mod check;
pub mod child;
pub mod eval;
pub mod export;
pub mod import;
mod input;
pub mod interrupt;
mod interval;
pub mod kernel_text;
pub mod progress;
pub mod record;
pub mod report;
mod rule;

use std::io::{self, Write};
use std::mem;
use std::path::PathBuf;

use crate::collect::own_cost::keep_freed_memory;
use crate::snapshot::file;
use export::ExportOptions;
use import::ImportOptions;
use record::{Command, RecordOptions, Recorded};
use report::{Quality, ReportOptions};

/// What the program is asked to do.
#[derive(Debug)]
pub enum Job {
    /// Record, report at once, and save the profile where a path is given.
    Direct(RecordOptions, ReportOptions, Option<PathBuf>),
    /// Record and save the profile.
    Record(RecordOptions, PathBuf),
    /// Report on a saved profile, or on a recording of another tool.
    Report(ImportOptions, ReportOptions),
    /// Make a profile of a recording of another tool.
    Import(ImportOptions, PathBuf),
    /// Write lines for scripts.
    Export(ExportOptions),
    /// Hold a saved profile against exact counts.
    Eval(eval::EvalOptions),
    /// Say what this machine offers.
    Check(check::Format),
    /// Say how live kernel text differs from the static image.
    KernelText(kernel_text::KernelTextOptions),
}

/// How a job ended.
#[derive(Debug, Default)]
pub struct Done {
    /// Exit code of the command that was measured.
    pub command: Option<u8>,
    /// How good the measurement is.
    pub quality: Quality,
    /// What the user must know of an import, sentence by sentence.
    pub warnings: Vec<String>,
}

/// Does the job; what it prints goes to `out`.
pub fn run(job: &Job, out: &mut dyn Write) -> anyhow::Result<Done> {
    keep_freed_memory();
    match job {
        Job::Direct(record, report, output) => {
            output.as_deref().map(file::check_writable).transpose()?;
            let recorded = record::record(record)?;
            let saved = output
                .as_deref()
                .map(|path| file::write_atomic(path, &recorded.snapshot));
            // A disk that is full takes nothing away from the report.
            let quality = report::print(&recorded.snapshot, report, out)?;
            saved.transpose()?;
            Ok(Done {
                command: exit(recorded)?,
                quality,
                ..Done::default()
            })
        }
        Job::Record(record, path) => {
            file::check_writable(path)?;
            let recorded = record::record(record)?;
            file::write_atomic(path, &recorded.snapshot)?;
            Ok(Done {
                command: exit(recorded)?,
                ..Done::default()
            })
        }
        Job::Report(input, report) => {
            let quality = report::print(&input::read_profile(input)?, report, out)?;
            Ok(Done {
                command: None,
                quality,
                ..Done::default()
            })
        }
        Job::Import(input, path) => {
            let warnings = import::save(input, path)?;
            Ok(Done {
                warnings,
                ..Done::default()
            })
        }
        Job::Export(options) => {
            export::run(options, out)?;
            Ok(Done::default())
        }
        Job::Eval(options) => {
            match eval::eval(options, out) {
                Err(error) if is_closed_pipe(&error) => {}
                evaluated => evaluated?,
            }
            Ok(Done::default())
        }
        Job::KernelText(options) => {
            match kernel_text::kernel_text(options, out) {
                Err(error) if is_closed_pipe(&error) => {}
                compared => compared?,
            }
            Ok(Done::default())
        }
        Job::Check(format) => {
            match check::check(*format, out) {
                Err(error) if is_closed_pipe(&error) => {}
                checked => checked?,
            }
            Ok(Done::default())
        }
    }
}

/// Waits for a command that outlives its measurement, since its exit code is to be passed on.
fn exit(recorded: Recorded) -> anyhow::Result<Option<u8>> {
    let Recorded {
        snapshot,
        command,
        interrupt,
    } = recorded;
    // The process ends soon, which frees it all at once rather than piece by piece.
    mem::forget(snapshot);
    drop(interrupt);
    Ok(match command {
        None => None,
        Some(Command::Ended(code)) => Some(code),
        Some(Command::Running(mut child)) => Some(child::exit_code(child.wait()?)),
    })
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io =
        |cause: &(dyn std::error::Error + 'static)| cause.downcast_ref::<io::Error>().map(io::Error::kind);
    error
        .chain()
        .any(|cause| io(cause) == Some(io::ErrorKind::BrokenPipe))
}
