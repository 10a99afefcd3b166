//! Options of `hbbp-sys processwatch`, which are those of Intel's processwatch 1.3.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args};

use super::report::LookArgs;
use crate::cmd::Job;
use crate::cmd::processwatch::{Columns, Rings, WatchOptions};
use hbbp_output::report::watch::Layout;

/// Name of the subcommand, and of a link to the program that means it.
const NAME: &str = "processwatch";

/// Columns that are shown unless others are asked for.
const USUAL: [&str; 3] = ["AVX", "AVX2", "AVX512"];

#[derive(Debug, Args)]
#[command(version, disable_version_flag = true)]
pub(super) struct ProcessWatchArgs {
    /// Length of an interval, in seconds.
    #[arg(short, value_name = "SECONDS", default_value = "2", value_parser = clap::value_parser!(u64).range(1..))]
    interval: u64,
    /// Number of intervals. Default: until Ctrl-C.
    #[arg(short = 'n', value_name = "TIMES")]
    times: Option<u32>,
    /// Print comma-separated values.
    #[arg(short)]
    csv: bool,
    /// Only this process and its descendants.
    #[arg(short, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// Columns are mnemonics.
    #[arg(short, conflicts_with = "extensions")]
    mnemonics: bool,
    /// Columns are instruction set extensions.
    #[arg(short)]
    extensions: bool,
    /// Units of the event from sample to sample. Default: the best period of this machine.
    #[arg(short, value_name = "PERIOD", value_parser = clap::value_parser!(u64).range(1..))]
    sample_period: Option<u64>,
    /// Show this column; may be repeated. Default: AVX, AVX2 and AVX512.
    #[arg(short = 'f', value_name = "NAME", conflicts_with = "all")]
    shown: Vec<String>,
    /// Show all columns.
    #[arg(short)]
    all: bool,
    /// List the names of the columns.
    #[arg(short)]
    list: bool,
    /// Include what the kernel executes for each process.
    #[arg(long)]
    kernel: bool,
    /// Print the version.
    #[arg(short, action = ArgAction::Version)]
    version: Option<bool>,
    /// Accepted and ignored: kernel types are always read from the running kernel.
    #[arg(short, value_name = "FILE", hide = true)]
    btf: Option<PathBuf>,
}

impl ProcessWatchArgs {
    /// Converts the arguments to a job.
    pub(super) fn into_job(self) -> Job {
        let columns = match (self.mnemonics, self.extensions) {
            (true, _) => Columns::Mnemonics,
            (false, true) => Columns::Extensions,
            (false, false) => Columns::Categories,
        };
        if self.list {
            return Job::ListColumns(columns);
        }
        let shown = match (self.all, self.shown, columns) {
            (true, ..) => None,
            (false, shown, Columns::Categories | Columns::Extensions) if shown.is_empty() => {
                let extensions = ["AVX", "AVX2", "AVX512F"];
                let usual = if columns == Columns::Categories {
                    USUAL
                } else {
                    extensions
                };
                Some(usual.map(str::to_owned).to_vec())
            }
            (false, shown, _) => Some(shown).filter(|shown| !shown.is_empty()),
        };
        Job::ProcessWatch(WatchOptions {
            interval: Duration::from_secs(self.interval),
            times: self.times,
            pid: self.pid,
            period: self.sample_period,
            columns,
            shown,
            rings: if self.kernel { Rings::Both } else { Rings::User },
            layout: if self.csv { Layout::Csv } else { Layout::Table },
            look: LookArgs::default().into_look(),
        })
    }
}

/// The words of a command line, in which those of this subcommand are as scripts for processwatch pass them: an option
/// and its value in one word (`-s 1000000`), and empty words for options that are not given. A link named
/// `processwatch` selects the subcommand.
pub(super) fn words(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words = words.into_iter();
    let program = words.next().unwrap_or_default();
    let is_link = Path::new(&program).file_name().is_some_and(|name| name == NAME);
    let mut words: Vec<OsString> = words.collect();
    if is_link {
        words.insert(0, NAME.into());
    }
    if words.first().is_some_and(|first| first == NAME) {
        words = words.iter().flat_map(split).collect();
    }
    words.insert(0, program);
    words
}

fn split(word: &OsString) -> Vec<OsString> {
    match word.to_str() {
        Some("") => Vec::new(),
        Some(option) if option.starts_with('-') => option.split_whitespace().map(OsString::from).collect(),
        _ => vec![word.clone()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_line(line: &[&str]) -> Vec<String> {
        let words = words(line.iter().map(OsString::from));
        words
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect()
    }

    #[test]
    fn words_of_scripts_for_processwatch_are_split() {
        let line = [
            "hbbp-sys",
            "processwatch",
            "-c",
            "-a",
            "",
            "-s 1000000",
            "-i 10",
            "",
        ];
        assert_eq!(
            split_line(&line),
            [
                "hbbp-sys",
                "processwatch",
                "-c",
                "-a",
                "-s",
                "1000000",
                "-i",
                "10"
            ]
        );
        assert_eq!(
            split_line(&["/usr/bin/processwatch", "-n 2"])[1..],
            ["processwatch", "-n", "2"]
        );
        assert_eq!(split_line(&["hbbp-sys", "--", "a b", ""])[1..], ["--", "a b", ""]);
    }
}
