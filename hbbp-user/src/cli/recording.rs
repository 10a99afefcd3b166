//! What may be said about recordings of other tools, and about exports.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, ValueEnum};

use crate::cmd::export::{ExportLines, ExportOptions};
use crate::cmd::import::ImportOptions;
use crate::export::Hygiene;
use crate::export::counts::CountSource;
use crate::resolve::kernel::recorded::KernelPlace;
use crate::resolve::user::find_file::{Host, Mismatch, Places};

/// The contract of the exported lines.
pub(super) const EXPORT_HELP: &str = "\
Lines:
  M PATH BUILDID                before the lines of each module; - where there is no build id
  S START END COUNT             streams: addresses of the first and the last instruction that ran
  B FROM TO COUNT MISPREDICTED  branches; a target in another module is BUILDID:ADDRESS
  ADDRESS EXECUTIONS            counts
  # discarded REASON COUNT      at the end: what is in no line

Addresses are ELF addresses (of the kernel those that ran) in hexadecimal without 0x, counts
are decimal. Modules are sorted by path, lines by address.

Entries are lines of `perf script -F ip,brstack`, newest entry first:
  FROM/TO/M|P|-/X|-/A|-/CYCLES/TYPE/SPECULATION";

/// A profile or a recording, and what is needed to understand a recording.
#[derive(Debug, Args)]
pub(super) struct InputArgs {
    /// The profile or recording: a file, the folder of `perf record --kcore`, or - for standard input.
    file: PathBuf,
    #[command(flatten)]
    files: FilesArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Files of a recording")]
struct FilesArgs {
    /// A program or library that ran; its name or its build id must be that of the recording. May be given again.
    #[arg(long, value_name = "FILE")]
    binary: Vec<PathBuf>,
    /// Folder that holds the files that ran at their paths.
    #[arg(long, value_name = "DIR")]
    symfs: Option<PathBuf>,
    /// Use files although their build ids differ.
    #[arg(long)]
    force: bool,
    /// Folder with kcore, kallsyms and modules of the kernel that ran, as perf copies them.
    #[arg(long, value_name = "DIR", conflicts_with = "vmlinux")]
    kcore: Option<PathBuf>,
    /// Image of the kernel that ran.
    #[arg(long, value_name = "FILE")]
    vmlinux: Option<PathBuf>,
    /// Only the samples of this process.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
}

#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Which lines.
    #[arg(long, value_enum)]
    format: LinesArg,
    /// Streams as recorded, not only those that can have run.
    #[arg(long)]
    raw: bool,
    /// What counts instructions. lbr: recorded streams that pass them, not scaled by the period. ebs, hybrid:
    /// estimated executions. Default: lbr where there are streams, else ebs.
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
    /// What was said, as options.
    pub(super) fn into_options(self) -> ImportOptions {
        let FilesArgs {
            binary,
            symfs,
            force,
            kcore,
            vmlinux,
            pid,
        } = self.files;
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
            file: self.file,
            places,
            kernel,
            pid,
        }
    }
}

impl ExportArgs {
    /// What was said, as options.
    pub(super) fn into_options(self) -> anyhow::Result<ExportOptions> {
        if self.raw && self.format != LinesArg::Streams {
            bail!("--raw is about --format streams only");
        }
        if self.source.is_some() && self.format != LinesArg::Counts {
            bail!("--source is about --format counts only");
        }
        let lines = match self.format {
            LinesArg::Streams if self.raw => ExportLines::Streams(Hygiene::Raw),
            LinesArg::Streams => ExportLines::Streams(Hygiene::Checked),
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
