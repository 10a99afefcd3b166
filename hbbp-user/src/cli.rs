//! What may be said on the command line, and what it means as the plain options of [`crate::cmd`].
//!
//! Nothing below this file knows clap. Parsing cannot touch the system; turning what was said into options may fail.

mod recording;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cmd::eval::EvalOptions;
use crate::cmd::kernel_text::KernelTextOptions;
use crate::cmd::record::{RecordOptions, Target};
use crate::cmd::report::ReportOptions;
use crate::cmd::{Job, check};
use crate::collect::event::Choice;
use crate::collect::object::KernelCounts;
use crate::collect::perf::parse_cpu_list;
use crate::eval::Level;
use crate::mix::Dimension;
use crate::report::Format;
use crate::resolve::kernel_space::TextHistory;
use crate::resolve::recorded::kernel::KernelPlace;
use crate::snapshot::run::Period;
use recording::{ExportArgs, InputArgs};

/// Measures which instructions run, in the kernel and in user code, on the whole system, and prints the mix.
///
/// Without a subcommand it records and reports at once: `sudo hbbp-sys --duration 10`.
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
    /// Print the report of a saved profile: on any machine, without root. Recordings of perf are read as well.
    Report {
        #[command(flatten)]
        input: InputArgs,
        #[command(flatten)]
        report: ReportArgs,
    },
    /// Make a profile of a recording of perf (perf.data, perf script's text with branch stacks) or of BOLT's
    /// pre-aggregated text.
    Import {
        #[command(flatten)]
        input: InputArgs,
        /// Where to save the profile.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Print the counts of a profile or recording for scripts.
    #[command(after_long_help = recording::EXPORT_HELP)]
    Export(ExportArgs),
    /// Compare a saved profile with exact counts of the same span: the errors of EBS, LBR and the hybrid of both.
    Eval {
        /// The profile.
        file: PathBuf,
        /// The exact counts, as the emulated machine writes them (`cargo xtask vm`).
        #[arg(long, value_name = "FILE")]
        reference: PathBuf,
        /// What the groups are.
        #[arg(short, long, value_enum, default_value_t = EvalLevel::Ring)]
        by: EvalLevel,
        #[command(flatten)]
        rule: RuleArgs,
        /// Print at most so many groups and mnemonics, or `all`.
        #[arg(short = 'n', long, value_name = "N", default_value = "20", value_parser = parse_top)]
        top: Top,
        /// How to print it.
        #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
        format: CheckFormat,
    },
    /// Say what this machine offers for measuring, and what to do about what is missing.
    Check {
        /// How to print it.
        #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
        format: CheckFormat,
    },
    /// Say how the text that the kernel runs differs from its static image: bytes and sites by cause.
    KernelText {
        /// The image: a vmlinux or a boot image. Default: that of the running kernel, by build id, in the usual
        /// places.
        #[arg(long, value_name = "FILE")]
        vmlinux: Option<PathBuf>,
        /// Write the image with the live text in it to a new file.
        #[arg(long, value_name = "FILE")]
        write: Option<PathBuf>,
        /// How to print it.
        #[arg(long, value_enum, default_value_t = CheckFormat::Text)]
        format: CheckFormat,
    },
}

#[derive(Debug, Args)]
struct RuleArgs {
    /// How estimates are made of EBS and LBR: `balanced`, `paper` (as published), `bias`, or a rule file.
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
    /// Take a sample with a branch stack every so many taken branches.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    branch_period: Option<u64>,
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
    /// Read kernel text once, at the end, as other tools do. For comparison: what was patched or unloaded before then
    /// counts for the wrong instructions or for none.
    #[arg(long)]
    text_once: bool,
    /// Command to run and measure.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["pid", "cpu", "cgroup"])]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Report")]
struct ReportArgs {
    /// What the rows are, such as mnemonic, module, function, process, extension, category.
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
    /// Print at most so many rows, or `all`; the sum of the others follows.
    #[arg(short = 'n', long, value_name = "N", default_value = "40", value_parser = parse_top)]
    top: Top,
    /// How to print it: text, json or csv.
    #[arg(long, default_value = "text")]
    format: Format,
    /// Exit with 3 where the quality of the measurement misses its limits.
    #[arg(long)]
    strict: bool,
}

/// How many rows to print.
#[derive(Clone, Copy, Debug)]
struct Top(Option<usize>);

impl Cli {
    /// Whether a measurement that misses a limit of quality is to fail.
    pub const fn is_strict(&self) -> bool {
        match &self.command {
            Some(Command::Report { report, .. }) => report.strict,
            _ => self.report.strict,
        }
    }

    /// What was said, as a job.
    pub fn into_job(self) -> anyhow::Result<Job> {
        match self.command {
            None => {
                let by_process = self.report.by.contains(&Dimension::Process);
                let mut record = self.record.into_options()?;
                if by_process {
                    record.kernel = KernelCounts::ByProcess;
                }
                Ok(Job::Direct(record, self.report.into_options(), self.output))
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
                _ => bail!("--cpu takes a list such as 0-3,8, not {list}"),
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

/// Columns of the terminal on standard output; `None` where it is none.
fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (0 < size.ws_col).then_some(usize::from(size.ws_col))
}

/// A cgroup by the path that `/proc/PID/cgroup` shows, or by its folder. Hosts mount the hierarchy that perf events
/// know in one of three places; where there is none of that name, the first is named in the error to come.
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
    let mut places = MOUNTS.iter().map(|mount| Path::new(mount).join(below));
    let found = places.find(|place| place.join("cgroup.procs").exists());
    found.unwrap_or_else(|| Path::new(MOUNTS[0]).join(below))
}

fn parse_top(text: &str) -> Result<Top, String> {
    match text {
        "all" => Ok(Top(None)),
        _ => text
            .parse()
            .map(|n| Top(Some(n)))
            .map_err(|_| "a number of rows, or `all`".to_owned()),
    }
}

/// Seconds, or a number with one of the units ms, s, m, h.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || "a time such as 10, 500ms, 90s, 5m or 1h".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let seconds_per_unit = match text.get(digits.len()..) {
        Some("" | "s") => 1.0,
        Some("ms") => 1e-3,
        Some("m") => 60.0,
        Some("h") => 3600.0,
        _ => return Err(wrong()),
    };
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    let duration = Duration::try_from_secs_f64(number * seconds_per_unit).map_err(|_| wrong())?;
    if duration.is_zero() {
        Err(wrong())
    } else {
        Ok(duration)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        for wrong in ["", "0", "-1", "s", "10 parsecs", "1e400", "nan"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    fn job(args: &[&str]) -> anyhow::Result<Job> {
        Cli::try_parse_from([&["hbbp-sys"], args].concat())?.into_job()
    }

    #[test]
    fn a_command_is_measured_alone_unless_all_is_asked_for() {
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
    fn contradictions_are_refused() {
        assert!(job(&["--pid", "1", "--cpu", "0"]).is_err());
        assert!(job(&["--period", "7", "--frequency", "7"]).is_err());
        assert!(job(&["--cpu", "none"]).is_err());
        assert!(job(&["--by", "colour"]).is_err());
        assert!(job(&["--duration", "10", "report", "x"]).is_err());
    }

    #[test]
    fn a_mix_by_process_keeps_the_kernel_apart_too() {
        let Ok(Job::Direct(options, ..)) = job(&["--by", "process,mnemonic"]) else {
            panic!()
        };
        assert_eq!(options.kernel, KernelCounts::ByProcess);
    }

    #[test]
    fn cgroups_may_be_named_as_proc_names_them() {
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
