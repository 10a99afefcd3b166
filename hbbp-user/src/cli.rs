//! What may be said on the command line, and what it means as the plain options of [`crate::cmd`].
//!
//! Nothing below this file knows clap. Parsing cannot touch the system; turning what was said into options may fail.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cmd::record::{KernelTextChoice, Length, RecordOptions};
use crate::cmd::report::{Format, ReportOptions};
use crate::cmd::{Job, check};
use crate::collect::event::Choice;
use crate::collect::object::KernelCounts;
use crate::collect::perf::parse_cpu_list;
use crate::collect::{Plan, Scope};
use crate::mix::Dimension;
use crate::snapshot::run::Period;

/// Measures which instructions run, in the kernel and in user code, on the whole system, and prints the mix.
///
/// Without a subcommand it records and reports at once: `sudo hbbp-sys --duration 10`.
#[derive(Debug, Parser)]
#[command(name = "hbbp-sys", version, max_term_width = 100, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    report: ReportArgs,
    /// Also save the profile, for `hbbp-sys report`.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Record a profile and save it, without a report.
    Record {
        #[command(flatten)]
        record: RecordArgs,
        /// Where to save the profile.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Print the report of a saved profile: on any machine, without root.
    Report {
        /// The profile.
        file: PathBuf,
        #[command(flatten)]
        report: ReportArgs,
    },
    /// Say what this machine offers for measuring, and what to do about what is missing.
    Check {
        /// How to print it.
        #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
        format: CheckFormat,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CheckFormat {
    Text,
    Json,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Recording")]
struct RecordArgs {
    /// How long to measure: seconds, or with a unit (500ms, 90s, 5m, 1h). Without it: until Ctrl-C, or until the
    /// command ends.
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Event to sample: instructions, cycles, cpu-clock, task-clock, or PMU/config=0x..,precise=N,name=../.
    /// Default: the best that this machine has, see `hbbp-sys check`.
    #[arg(short, long)]
    event: Option<String>,
    /// Take a sample every so many units of the event (for a clock: nanoseconds).
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    period: Option<u64>,
    /// Take so many samples a second on each CPU; the kernel then chooses the period.
    #[arg(short = 'F', long, value_name = "HERTZ", conflicts_with = "period",
          value_parser = clap::value_parser!(u64).range(1..))]
    frequency: Option<u64>,
    /// Measure this process and what it creates.
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// Measure these CPUs only, such as 0-3,8.
    #[arg(short = 'C', long, value_name = "LIST", conflicts_with = "pid")]
    cpu: Option<String>,
    /// Measure this cgroup: a path below /sys/fs/cgroup, or absolute.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["pid", "cpu"])]
    cgroup: Option<PathBuf>,
    /// With a command: measure the whole system while it runs, not only the command.
    #[arg(short, long, conflicts_with_all = ["pid", "cpu", "cgroup"])]
    all: bool,
    /// Keep kernel code apart by the process that entered it. `--by process` asks for it too.
    #[arg(long)]
    split_kernel: bool,
    /// Room for distinct addresses between two drains; the default follows the number of CPUs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(64..=(1 << 24)))]
    map_entries: Option<u32>,
    /// Where to read the kernel's text: auto, kcore, probe, none, or the path of a vmlinux.
    #[arg(long, value_name = "SOURCE", default_value = "auto")]
    kernel_text: String,
    /// Read kernel text once, at the end, instead of after each drain.
    #[arg(long)]
    text_once: bool,
    /// Command to run and measure.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["pid", "cpu", "cgroup"])]
    command: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Report")]
struct ReportArgs {
    /// What the rows are, such as mnemonic, module, function, process, extension, category.
    #[arg(short, long, value_name = "DIMENSION", value_delimiter = ',', default_value = "mnemonic")]
    by: Vec<Dimension>,
    /// Print at most so many rows; the sum of the others follows.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 40)]
    top: usize,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Exit with 3 where the quality of the measurement misses its limits.
    #[arg(long)]
    strict: bool,
}

impl Cli {
    /// What was said, as a job.
    pub fn into_job(self) -> anyhow::Result<Job> {
        match self.command {
            None => Ok(Job::Direct(self.record.options(&self.report)?, self.report.options(), self.output)),
            Some(Command::Record { record, output }) => Ok(Job::Record(record.options(&ReportArgs::none())?, output)),
            Some(Command::Report { file, report }) => Ok(Job::Report(file, report.options())),
            Some(Command::Check { format }) => Ok(Job::Check(match format {
                CheckFormat::Text => check::Format::Text,
                CheckFormat::Json => check::Format::Json,
            })),
        }
    }
}
