//! Options for recordings of other tools, and for exports.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, ValueEnum};

use crate::cmd::export::{ExportLines, ExportOptions};
use crate::cmd::import::ImportOptions;
use crate::export::StreamFilter;
use crate::export::counts::CountSource;
use crate::resolve::kernel::recorded::KernelPlace;
use crate::resolve::user::find_file::{Host, Mismatch, Places};

/// Format of the exported lines.
pub(super) const EXPORT_HELP: &str = "\
Lines:
  M PATH BUILDID                start of a module; BUILDID is - if unknown
  S START END COUNT             stream: addresses of its first and last instruction
  B FROM TO COUNT MISPREDICTED  branch; a target in another module is BUILDID:ADDRESS
  ADDRESS EXECUTIONS            count of an instruction
  # discarded REASON COUNT      trailer: counts that are in no other line

Addresses are ELF addresses (for the kernel, runtime addresses) in hexadecimal without 0x;
counts are decimal. Modules are sorted by path, lines by address.

Entries are lines of `perf script -F ip,brstack`, newest entry first:
  FROM/TO/M|P|-/X|-/A|-/CYCLES/TYPE/SPECULATION";

/// A profile or a recording, and the files needed to resolve a recording.
#[derive(Debug, Args)]
pub(super) struct InputArgs {
    /// Profile or recording: a file, a `perf record --kcore` directory, or - for standard input.
    file: PathBuf,
    #[command(flatten)]
    files: FilesArgs,
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Recording files")]
pub(super) struct FilesArgs {
    /// Executable or library that was recorded, matched by name or build id; may be repeated.
    #[arg(long, value_name = "FILE")]
    binary: Vec<PathBuf>,
    /// Directory that holds the recorded files at their original paths.
    #[arg(long, value_name = "DIR")]
    symfs: Option<PathBuf>,
    /// Use files even if their build ids differ.
    #[arg(long)]
    force: bool,
    /// Directory with kcore, kallsyms and modules of the recorded kernel, as copied by perf.
    #[arg(long, value_name = "DIR", conflicts_with = "vmlinux")]
    kcore: Option<PathBuf>,
    /// Static image of the recorded kernel.
    #[arg(long, value_name = "FILE")]
    vmlinux: Option<PathBuf>,
    /// Use only the samples of this process.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
}

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Kind of lines to print.
    #[arg(long, value_enum)]
    format: LinesArg,
    /// Print streams as recorded, without discarding impossible ones.
    #[arg(long)]
    raw: bool,
    /// Source of the counts. lbr: recorded streams through each instruction, not scaled by the period. ebs, hybrid:
    /// estimated executions. Default: lbr if there are streams, else ebs.
    #[arg(long, value_enum)]
    source: Option<SourceArg>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum LinesArg {
    Streams,
    Branches,
    Counts,
    Entries,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SourceArg {
    Lbr,
    Ebs,
    Hybrid,
}

impl InputArgs {
    /// Converts the arguments to options.
    pub(super) fn into_options(self) -> ImportOptions {
        self.files.input(self.file)
    }
}

impl FilesArgs {
    /// The options to read this profile or recording.
    pub(super) fn input(self, file: PathBuf) -> ImportOptions {
        let Self {
            binary,
            symfs,
            force,
            kcore,
            vmlinux,
            pid,
        } = self;
        let kernel = match (kcore, vmlinux) {
            (Some(folder), _) => KernelPlace::Kcore(folder),
            (None, Some(image)) => KernelPlace::Vmlinux(image),
            (None, None) => KernelPlace::None,
        };
        let mismatch = if force { Mismatch::Accept } else { Mismatch::Refuse };
        let cache = std::env::home_dir().map(|home| home.join(".debug"));
        let places = Places {
            binaries: binary,
            symfs,
            cache,
            mismatch,
            host: Host::default(),
        };
        ImportOptions {
            file,
            places,
            kernel,
            pid,
        }
    }
}

impl ExportArgs {
    /// Converts the arguments to options.
    pub(super) fn into_options(self) -> anyhow::Result<ExportOptions> {
        if self.raw && self.format != LinesArg::Streams {
            bail!("--raw requires --format streams");
        }
        if self.source.is_some() && self.format != LinesArg::Counts {
            bail!("--source requires --format counts");
        }
        let lines = match self.format {
            LinesArg::Streams if self.raw => ExportLines::Streams(StreamFilter::Raw),
            LinesArg::Streams => ExportLines::Streams(StreamFilter::Checked),
            LinesArg::Branches => ExportLines::Branches,
            LinesArg::Counts => ExportLines::Counts(self.source.map(|source| match source {
                SourceArg::Lbr => CountSource::Lbr,
                SourceArg::Ebs => CountSource::Ebs,
                SourceArg::Hybrid => CountSource::Hybrid,
            })),
            LinesArg::Entries => ExportLines::Entries,
        };
        Ok(ExportOptions {
            input: self.input.into_options(),
            lines,
        })
    }
}
