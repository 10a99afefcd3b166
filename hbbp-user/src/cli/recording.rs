//! Options for recordings of other tools.

use std::path::PathBuf;

use clap::Args;

use crate::cmd::import::ImportOptions;
use hbbp_model::segments::{Moment, TimeRange};
use hbbp_resolve::kernel::recorded::KernelPlace;
use hbbp_resolve::user::find_file::{Host, Mismatch, Places};

/// A profile or a recording, and the files needed to resolve a recording.
#[derive(Debug, Args)]
pub(super) struct InputArgs {
    /// Profile or recording; - for standard input.
    ///
    /// A file, a `perf record --kcore` directory, or the directory of a `hbbp-sys daemon`.
    file: PathBuf,
    /// For the directory of a daemon: read from this time on, which is an age (90s, 2h, 3d) or UTC (2026-11-22T15:00).
    #[arg(long, value_name = "TIME", hide_short_help = true)]
    since: Option<Moment>,
    /// For the directory of a daemon: read up to this time.
    #[arg(long, value_name = "TIME", hide_short_help = true)]
    until: Option<Moment>,
    #[command(flatten)]
    files: FilesArgs,
}

/// The heading of [`FilesArgs`] in the help, of each of them: a heading of the whole would be that of what follows as well.
const FILES: &str = "Recording files";

#[derive(Clone, Debug, Args)]
pub(super) struct FilesArgs {
    /// Executable or library that was recorded.
    ///
    /// It is matched by name or build id; may be repeated.
    #[arg(long, help_heading = FILES, value_name = "FILE")]
    binary: Vec<PathBuf>,
    /// Directory that holds the recorded files at their original paths.
    #[arg(long, help_heading = FILES, value_name = "DIR", hide_short_help = true)]
    symfs: Option<PathBuf>,
    /// Use files even if their build ids differ.
    #[arg(long, help_heading = FILES, hide_short_help = true)]
    force: bool,
    /// Directory with kcore, kallsyms and modules of the recorded kernel, as copied by perf.
    #[arg(long, help_heading = FILES, value_name = "DIR", conflicts_with = "vmlinux", hide_short_help = true)]
    kcore: Option<PathBuf>,
    /// Static image of the recorded kernel.
    #[arg(long, help_heading = FILES, value_name = "FILE")]
    vmlinux: Option<PathBuf>,
    /// Use only the samples of this process.
    #[arg(long, help_heading = FILES, value_name = "PID", hide_short_help = true)]
    pid: Option<u32>,
    /// Keep the threads of the recording separate, for `--rows thread`.
    #[arg(long, help_heading = FILES, hide_short_help = true)]
    per_thread: bool,
}

impl InputArgs {
    /// Converts the arguments to options.
    pub(super) fn into_options(self) -> ImportOptions {
        let range = TimeRange {
            since: self.since,
            until: self.until,
        };
        self.files.input(self.file, range)
    }

    /// The options to read another profile or recording with the same files.
    pub(super) fn same_files(&self, file: PathBuf) -> ImportOptions {
        self.files.clone().input(file, TimeRange::default())
    }
}

impl FilesArgs {
    /// The options to read this profile or recording.
    pub(super) fn input(self, file: PathBuf, range: TimeRange) -> ImportOptions {
        let Self {
            binary,
            symfs,
            force,
            kcore,
            vmlinux,
            pid,
            per_thread,
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
            range,
            threads: super::record::threads(per_thread),
        }
    }
}
