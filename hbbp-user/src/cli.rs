//! The command line: its definition, and the conversion to the plain options of [`crate::cmd`].
//!
//! No other module uses clap. Parsing does not touch the system; the conversion to options may fail.

mod export;
mod recording;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use clap::{Args, Parser, Subcommand, ValueEnum};
use jiff::SignedDuration;

use crate::cmd::eval::EvalOptions;
use crate::cmd::kernel_text::KernelTextOptions;
use crate::cmd::record::{RecordOptions, Target};
use crate::cmd::report::ReportOptions;
use crate::cmd::{Job, check};
use crate::collect::event::Choice;
use crate::collect::object::Messages;
use crate::collect::perf::parse_cpu_list;
use crate::eval::Level;
use crate::mix::Dimension;
use crate::report::Format;
use crate::resolve::kernel::recorded::KernelPlace;
use crate::resolve::kernel::space::TextHistory;
use crate::snapshot::run::Period;
use crate::streams::KernelCounts;
use export::ExportArgs;
use recording::InputArgs;

/// Measure the dynamic instruction mix of the whole system, kernel and user code together.
///
/// Without a subcommand, record and print a report: `sudo hbbp-sys --duration 10`.
#[derive(Debug, Parser)]
#[command(
    name = "hbbp-sys",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true
)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    report: ReportArgs,
    /// Also save the profile to FILE, for `hbbp-sys report`.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Record a profile and save it to a file.
    Record {
        #[command(flatten)]
        record: RecordArgs,
        /// Save the profile to FILE.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Print a report of a saved profile or a perf recording (needs no root).
    Report {
        #[command(flatten)]
        input: InputArgs,
        #[command(flatten)]
        report: ReportArgs,
    },
    /// Convert a recording to a profile: perf.data, `perf script` output with branch stacks, or BOLT pre-aggregated
    /// text.
    Import {
        #[command(flatten)]
        input: InputArgs,
        /// Save the profile to FILE.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Export a profile or a recording: profiles for compilers and BOLT, tables for viewers, lines for scripts.
    #[command(after_long_help = export::EXPORT_HELP)]
    Export(ExportArgs),
    /// Compare a profile with exact counts: errors of EBS, LBR and hybrid.
    Eval {
        /// Profile to evaluate.
        file: PathBuf,
        /// Exact counts of the same run, as written by the emulated machine (`cargo xtask vm`).
        #[arg(long, value_name = "FILE")]
        reference: PathBuf,
        /// Level at which errors are grouped.
        #[arg(short, long, value_enum, default_value_t = EvalLevel::Ring)]
        by: EvalLevel,
        #[command(flatten)]
        rule: RuleArgs,
        /// Show the top N groups and mnemonics (`all` for every one).
        #[arg(short = 'n', long, value_name = "N", default_value = "20", value_parser = parse_top)]
        top: Top,
        /// Output format.
        #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
        format: CheckFormat,
    },
    /// Show what this machine supports, and how to enable what is missing.
    Check {
        /// Output format.
        #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
        format: CheckFormat,
    },
    /// Compare live kernel text with the static image: differing bytes and sites by cause.
    KernelText {
        /// Static image: a vmlinux or a boot image. Default: the image of the running kernel, found by build id in
        /// the usual locations.
        #[arg(long, value_name = "FILE")]
        vmlinux: Option<PathBuf>,
        /// Write a copy of the image with the live text to a new file.
        #[arg(long, value_name = "FILE")]
        write: Option<PathBuf>,
        /// Output format.
        #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
        format: CheckFormat,
    },
}

#[derive(Debug, Args)]
struct RuleArgs {
    /// Rule that chooses between EBS and LBR: `balanced`, `paper` (as published), `bias`, or a rule file.
    #[arg(long, value_name = "RULE", default_value = "balanced")]
    rule: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EvalLevel {
    Ring,
    Module,
    Function,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CheckFormat {
    Text,
    Json,
}

impl From<CheckFormat> for check::Format {
    fn from(format: CheckFormat) -> Self {
        match format {
            CheckFormat::Text => Self::Text,
            CheckFormat::Json => Self::Json,
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Recording")]
struct RecordArgs {
    /// Measurement time in seconds, or with a unit (500ms, 90s, 5m, 1h). Default: until Ctrl-C or until the command
    /// exits.
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Event to sample: instructions, cycles, cpu-clock, task-clock, or PMU/config=0x..,precise=N,name=../.
    /// Default: the best event of this machine, see `hbbp-sys check`.
    #[arg(short, long)]
    event: Option<String>,
    /// Sampling period in event counts (nanoseconds for clocks).
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    period: Option<u64>,
    /// Sampling period of branch stacks, in taken branches.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    branch_period: Option<u64>,
    /// Sampling frequency on each CPU, instead of a period; the kernel adapts the period to it.
    #[arg(short = 'F', long, value_name = "HERTZ", conflicts_with = "period",
          value_parser = clap::value_parser!(u64).range(1..))]
    frequency: Option<u64>,
    /// Measure this process and its descendants.
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// Measure only these CPUs, e.g. 0-3,8.
    #[arg(short = 'C', long, value_name = "LIST", conflicts_with = "pid")]
    cpu: Option<String>,
    /// Measure this cgroup: a path below /sys/fs/cgroup, or absolute.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["pid", "cpu"])]
    cgroup: Option<PathBuf>,
    /// Measure the whole system while the command runs, not only the command.
    #[arg(short, long, conflicts_with_all = ["pid", "cpu", "cgroup"])]
    all: bool,
    /// Count kernel code separately for each process (implied by `--by process`).
    #[arg(long)]
    split_kernel: bool,
    /// Capacity of the count map in distinct addresses between two drains. Default: grows with the number of CPUs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(64..=(1 << 24)))]
    map_entries: Option<u32>,
    /// Read kernel text only once, at the end, for comparison with other tools: samples in code patched or unloaded
    /// earlier are misattributed or unresolved.
    #[arg(long)]
    text_once: bool,
    /// Log to standard error what the programs in the kernel refuse, and why.
    #[arg(long)]
    verbose: bool,
    /// Static image of the running kernel (vmlinux or boot image), for kernel text and function names where the live
    /// ones cannot be read. Default: the image with the build id of the kernel in the usual locations.
    #[arg(long, value_name = "FILE")]
    vmlinux: Option<PathBuf>,
    /// Command to run and measure.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["pid", "cpu", "cgroup"])]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Report")]
struct ReportArgs {
    /// Dimensions of the rows, comma-separated, e.g. mnemonic, module, function, process, extension, category.
    #[arg(
        short,
        long,
        value_name = "DIMENSION",
        value_delimiter = ',',
        default_value = "mnemonic"
    )]
    by: Vec<Dimension>,
    #[command(flatten)]
    rule: RuleArgs,
    /// Show the top N rows (`all` for every row); the remainder is summed.
    #[arg(short = 'n', long, value_name = "N", default_value = "40", value_parser = parse_top)]
    top: Top,
    /// Output format: text, json or csv.
    #[arg(long, default_value = "text")]
    format: Format,
    /// Exit with status 3 if the measurement misses a quality limit.
    #[arg(long)]
    strict: bool,
}

/// How many rows to print.
#[derive(Clone, Copy, Debug)]
struct Top(Option<usize>);

impl Cli {
    /// Whether a measurement that misses a quality limit fails.
    pub const fn is_strict(&self) -> bool {
        match &self.command {
            Some(Command::Report { report, .. }) => report.strict,
            _ => self.report.strict,
        }
    }

    /// Whether the log is shown.
    pub const fn is_verbose(&self) -> bool {
        match &self.command {
            Some(Command::Record { record, .. }) => record.verbose,
            _ => self.record.verbose,
        }
    }

    /// Converts the arguments to a job.
    pub fn into_job(self) -> anyhow::Result<Job> {
        match self.command {
            None => {
                let by_process = self.report.by.contains(&Dimension::Process);
                let mut record = self.record.into_options()?;
                if by_process {
                    record.kernel = KernelCounts::ByProcess;
                }
                let mut report = self.report.into_options();
                report.debug_files.extend(record.vmlinux.clone());
                Ok(Job::Direct(record, report, self.output))
            }
            Some(Command::Record { record, output }) => Ok(Job::Record(record.into_options()?, output)),
            Some(Command::Report { input, report }) => {
                let (input, mut report) = (input.into_options(), report.into_options());
                report.debug_files.clone_from(&input.places.binaries);
                if let KernelPlace::Vmlinux(image) = &input.kernel {
                    report.debug_files.push(image.clone());
                }
                Ok(Job::Report(input, report))
            }
            Some(Command::Import { input, output }) => Ok(Job::Import(input.into_options(), output)),
            Some(Command::Export(export)) => Ok(Job::Export(export.into_options()?)),
            Some(Command::Eval {
                file,
                reference,
                by,
                rule,
                top,
                format,
            }) => Ok(Job::Eval(EvalOptions {
                rule: rule.rule,
                profile: file,
                reference,
                by: match by {
                    EvalLevel::Ring => Level::Ring,
                    EvalLevel::Module => Level::Module,
                    EvalLevel::Function => Level::Function,
                },
                top: top.0,
                format: match format {
                    CheckFormat::Text => Format::Text,
                    CheckFormat::Json => Format::Json,
                },
                width: terminal_width().unwrap_or(ReportOptions::default().width),
            })),
            Some(Command::Check { format }) => Ok(Job::Check(format.into())),
            Some(Command::KernelText {
                vmlinux,
                write,
                format,
            }) => Ok(Job::KernelText(KernelTextOptions {
                vmlinux,
                write,
                format: format.into(),
            })),
        }
    }
}

impl RecordArgs {
    fn into_options(self) -> anyhow::Result<RecordOptions> {
        let period = match (self.period, self.frequency) {
            (Some(period), _) => Some(Period::Fixed(period)),
            (None, hertz) => hertz.map(Period::Frequency),
        };
        let target = match (self.pid, &self.cpu, self.cgroup) {
            (Some(pid), ..) => Target::Process(pid),
            (_, Some(list), _) => match parse_cpu_list(list) {
                Some(cpus) if !cpus.is_empty() => Target::Cpus(cpus),
                _ => bail!("invalid CPU list `{list}`; expected one such as 0-3,8"),
            },
            (_, _, Some(path)) => Target::Cgroup(cgroup_folder(&path)),
            _ if self.command.is_empty() => Target::System,
            _ if self.all => Target::SystemDuring(self.command),
            _ => Target::Command(self.command),
        };
        Ok(RecordOptions {
            target,
            duration: self.duration,
            choice: Choice {
                event: self.event,
                period,
                branch_period: self.branch_period,
                duration: self.duration,
            },
            kernel: if self.split_kernel {
                KernelCounts::ByProcess
            } else {
                KernelCounts::Together
            },
            map_entries: self.map_entries,
            text: if self.text_once {
                TextHistory::Once
            } else {
                TextHistory::Followed
            },
            messages: if self.verbose { Messages::On } else { Messages::Off },
            vmlinux: self.vmlinux,
        })
    }
}

impl ReportArgs {
    fn into_options(self) -> ReportOptions {
        let width = terminal_width();
        let plain = ReportOptions::default();
        ReportOptions {
            by: self.by,
            rule: self.rule.rule,
            top: self.top.0,
            format: self.format,
            width: width.unwrap_or(plain.width),
            debug_files: plain.debug_files,
        }
    }
}

/// Columns of the terminal on standard output; `None` if it is not a terminal.
fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (0 < size.ws_col).then_some(usize::from(size.ws_col))
}

/// Directory of a cgroup, given by its directory or by its path in `/proc/PID/cgroup`. Hosts mount the hierarchy of
/// the perf_event controller at one of three paths; if the cgroup exists in none, the first one is reported.
fn cgroup_folder(path: &Path) -> PathBuf {
    const MOUNTS: [&str; 3] = [
        "/sys/fs/cgroup",
        "/sys/fs/cgroup/unified",
        "/sys/fs/cgroup/perf_event",
    ];
    if path.starts_with(MOUNTS[0]) {
        return path.to_owned();
    }
    let below = path.strip_prefix("/").unwrap_or(path);
    let mut paths = MOUNTS.iter().map(|mount| Path::new(mount).join(below));
    let found = paths.find(|path| path.join("cgroup.procs").exists());
    found.unwrap_or_else(|| Path::new(MOUNTS[0]).join(below))
}

fn parse_top(text: &str) -> Result<Top, String> {
    match text {
        "all" => Ok(Top(None)),
        _ => text
            .parse()
            .map(|n| Top(Some(n)))
            .map_err(|_| "expected a number of rows or `all`".to_owned()),
    }
}

/// Seconds, or numbers with units such as ms, s, m, h.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .ok()
        .and_then(|it| Duration::try_from_secs_f64(it).ok());
    let with_units = || Duration::try_from(text.parse::<SignedDuration>().ok()?).ok();
    seconds
        .or_else(with_units)
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "expected a time such as 10, 500ms, 90s, 5m or 1h".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("1h 30m"), Ok(Duration::from_secs(5400)));
        for wrong in ["", "0", "-1", "s", "10 parsecs", "1e400", "nan"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    fn job(args: &[&str]) -> anyhow::Result<Job> {
        Cli::try_parse_from([&["hbbp-sys"], args].concat())?.into_job()
    }

    #[test]
    fn command_is_measured_alone_without_all() {
        let Ok(Job::Direct(options, ..)) = job(&["--", "ls", "-l"]) else {
            panic!()
        };
        assert_eq!(options.target, Target::Command(vec!["ls".into(), "-l".into()]));
        let Ok(Job::Direct(options, ..)) = job(&["--all", "--", "ls"]) else {
            panic!()
        };
        assert_eq!(options.target, Target::SystemDuring(vec!["ls".into()]));
    }

    #[test]
    fn conflicting_options_are_rejected() {
        assert!(job(&["--pid", "1", "--cpu", "0"]).is_err());
        assert!(job(&["--period", "7", "--frequency", "7"]).is_err());
        assert!(job(&["--cpu", "none"]).is_err());
        assert!(job(&["--by", "colour"]).is_err());
        assert!(job(&["--duration", "10", "report", "x"]).is_err());
    }

    #[test]
    fn mix_by_process_splits_kernel_counts() {
        let Ok(Job::Direct(options, ..)) = job(&["--by", "process,mnemonic"]) else {
            panic!()
        };
        assert_eq!(options.kernel, KernelCounts::ByProcess);
    }

    #[test]
    fn cgroup_paths_of_proc_are_accepted() {
        assert_eq!(
            cgroup_folder(Path::new("/a.slice/b")),
            Path::new("/sys/fs/cgroup/a.slice/b")
        );
        assert_eq!(
            cgroup_folder(Path::new("/sys/fs/cgroup/c")),
            Path::new("/sys/fs/cgroup/c")
        );
    }
}
