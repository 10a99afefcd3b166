//! The command line: its definition, and the conversion to the plain options of [`crate::cmd`].
//!
//! No other module uses clap. Parsing does not touch the system; the conversion to options may fail.

#[cfg(test)]
mod advice;
mod annotate;
mod bbv;
mod daemon;
mod diff;
mod eval;
mod export;
mod format;
mod generated;
mod mistaken;
mod processwatch;
mod record;
mod recording;
mod report;
mod selftest;
mod top;

use std::path::{Path, PathBuf};

use clap::{Arg, CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

use crate::cmd::Job;
use crate::cmd::kernel_text::KernelTextOptions;
use crate::cmd::pager::Paging;
use crate::cmd::record::RecordOptions;
use crate::cmd::report::{Extent, Strict};
use annotate::AnnotateArgs;
use bbv::BbvArgs;
use daemon::DaemonArgs;
use diff::{DiffArgs, MergeArgs};
use eval::EvalArgs;
use export::ExportArgs;
use format::{TEXT_OR_JSON, one_of};
use generated::ManArgs;
use hbbp_model::profile::STANDARD;
use hbbp_model::streams::ThreadCounts;
use hbbp_output::report::{Format, TextOrJson};
use hbbp_resolve::kernel::recorded::KernelPlace;
use processwatch::ProcessWatchArgs;
use record::{BurstArgs, EndedArgs, RecordArgs};
use recording::InputArgs;
use report::{ReportArgs, plain_look};
use selftest::{SelfTestArgs, SelfTestLoadsArgs};
use top::TopArgs;

/// Measure the dynamic instruction mix of the whole system, kernel and user code.
///
/// Without a subcommand, record and print a report: `sudo hbbp-sys --duration 10`.
#[derive(Debug, Parser)]
#[command(
    name = "hbbp-sys",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    after_help = "Start with: sudo hbbp-sys --duration 10",
    mut_args = beyond_the_start
)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    record: RecordArgs,
    #[command(flatten)]
    bursts: BurstArgs,
    #[command(flatten)]
    ended: EndedArgs,
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
        #[command(flatten)]
        bursts: BurstArgs,
        #[command(flatten)]
        ended: EndedArgs,
        /// Save the profile to FILE.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Print a report of a profile or a perf recording (needs no root).
    Report {
        #[command(flatten)]
        input: InputArgs,
        #[command(flatten)]
        report: ReportArgs,
        /// Write the report to FILE.
        ///
        /// Such as a page: `--format html -o report.html`.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Show in a page what changed since this profile.
        ///
        /// Changes have their significance. Needs --format html; else see `hbbp-sys diff`.
        #[arg(long, value_name = "PROFILE")]
        compare: Option<PathBuf>,
    },
    /// Show the code of a function with its executions.
    ///
    /// Disassembly, both estimates, samples, loops, text versions.
    #[command(after_long_help = annotate::HELP)]
    Annotate(AnnotateArgs),
    /// Show what changed between profiles, and what is more than chance.
    Diff(DiffArgs),
    /// Put the runs of several profiles into one.
    ///
    /// The profiles may be of several hosts.
    Merge(MergeArgs),
    /// Convert a recording to a profile.
    ///
    /// A recording is perf.data, `perf script` output with branch stacks, or BOLT pre-aggregated text.
    Import {
        #[command(flatten)]
        input: InputArgs,
        /// Save the profile to FILE.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Export a profile for compilers, BOLT, viewers or scripts.
    ///
    /// A profile or a recording becomes profiles for compilers and BOLT, tables for viewers, or lines for scripts.
    #[command(after_long_help = export::EXPORT_HELP)]
    Export(ExportArgs),
    /// Record basic block vectors, for SimPoint.
    ///
    /// A vector has what each block executed in an interval of instructions.
    #[command(after_long_help = bbv::HELP)]
    Bbv(BbvArgs),
    /// Compare a profile with exact counts: errors of each method.
    ///
    /// The methods are EBS, LBR and hybrid.
    Eval(EvalArgs),
    /// Show the instruction mix as it runs.
    ///
    /// Classes of both rings, hottest functions, modules, processes.
    #[command(after_long_help = top::HELP)]
    Top(TopArgs),
    /// Measure for ever, and keep a profile of each interval.
    ///
    /// Profiles are in a directory.
    #[command(after_long_help = daemon::HELP)]
    Daemon(DaemonArgs),
    /// Print the instruction mix of each process at intervals.
    ///
    /// Options and columns are those of Intel's processwatch.
    #[command(name = "processwatch")]
    ProcessWatch(ProcessWatchArgs),
    /// Show what this machine supports, and how to enable the rest.
    Check {
        /// Output format.
        #[arg(long, value_parser = one_of(&TEXT_OR_JSON), default_value = "text")]
        format: TextOrJson,
    },
    /// Show how true figures are on this machine, by known loads.
    ///
    /// They are measured as by default, and each method is compared with what they executed.
    #[command(name = "selftest")]
    SelfTest(SelfTestArgs),
    /// Run the loads of `selftest`, which starts this itself.
    #[command(name = "selftest-loads", hide = true)]
    SelfTestLoads(SelfTestLoadsArgs),
    /// Compare live kernel text with the static image.
    ///
    /// Differing bytes and sites by cause.
    KernelText {
        /// Static image: a vmlinux or a boot image. Default: the image of the running kernel, found by build id in
        /// the usual locations.
        #[arg(long, value_name = "FILE")]
        vmlinux: Option<PathBuf>,
        /// Write a copy of the image with the live text to a new file.
        #[arg(long, value_name = "FILE")]
        write: Option<PathBuf>,
        /// Output format.
        #[arg(long, value_parser = one_of(&TEXT_OR_JSON), default_value = "text")]
        format: TextOrJson,
    },
    /// Print the completion script of a shell.
    #[command(after_long_help = generated::COMPLETIONS_HELP)]
    Completions {
        /// Shell that the script is for.
        shell: Shell,
    },
    /// Print a man page, or write all of them to a directory.
    #[command(after_long_help = generated::MAN_HELP)]
    Man(ManArgs),
}

/// Options that are in the short help: with the subcommands they fill a screen that is read at a glance.
const AT_THE_START: [&str; 6] = ["duration", "pid", "command", "rows", "view", "output"];

/// Leaves an option of the measurement out of the short help, unless one begins with it.
fn beyond_the_start(arg: Arg) -> Arg {
    let is_first = AT_THE_START.contains(&arg.get_id().as_str());
    if is_first { arg } else { arg.hide_short_help(true) }
}

impl Cli {
    /// Parses the command line of this process; ends it with a message where that is wrong.
    pub fn of_process() -> Self {
        let parsed = Self::try_parse_from(processwatch::words(std::env::args_os()));
        parsed.unwrap_or_else(|error| mistaken::with_similar_subcommand(error, &Self::command()).exit())
    }

    /// Whether a measurement that misses a quality limit fails.
    pub const fn strict(&self) -> Strict {
        let strict = match &self.command {
            Some(Command::Report { report, .. }) => report.strict,
            _ => self.report.strict,
        };
        if strict { Strict::Yes } else { Strict::No }
    }

    /// Whether the log is shown.
    pub const fn is_verbose(&self) -> bool {
        match &self.command {
            Some(Command::Record { record, .. }) => record.verbose,
            Some(Command::Bbv(bbv)) => bbv.record.verbose,
            _ => self.record.verbose,
        }
    }

    /// Converts the arguments to a job.
    pub fn into_job(self) -> anyhow::Result<Job> {
        match self.command {
            None => direct(self.record, &self.bursts, self.ended, self.report, self.output),
            Some(Command::Record {
                record,
                bursts,
                ended,
                output,
            }) => Ok(Job::Record(recording(record, &bursts, ended)?, output)),
            Some(Command::Report {
                input,
                report,
                output,
                compare,
            }) => {
                let mut report = report.into_options()?;
                report.compare = compare.map(|other| input.same_files(other));
                if report.compare.is_some() && report.format != Format::Html {
                    anyhow::bail!(
                        "--compare needs --format html; `hbbp-sys diff` compares as text, JSON and CSV"
                    );
                }
                if output.as_ref().is_some_and(|path| path != Path::new(STANDARD)) {
                    if let Extent::Details(paging) = &mut report.extent {
                        *paging = Paging::Never;
                    }
                    report.look = plain_look(report.look, report.extent);
                }
                let input = input.into_options();
                report.debug_files.clone_from(&input.places.binaries);
                if let KernelPlace::Vmlinux(image) = &input.kernel {
                    report.debug_files.push(image.clone());
                }
                Ok(Job::Report(input, report, output))
            }
            Some(Command::Import { input, output }) => Ok(Job::Import(input.into_options(), output)),
            Some(Command::Export(export)) => Ok(Job::Export(export.into_options()?)),
            Some(Command::Annotate(annotate)) => Ok(Job::Annotate(annotate.into_options())),
            Some(Command::Diff(diff)) => Ok(Job::Diff(diff.into_options()?)),
            Some(Command::Merge(merge)) => Ok(Job::Merge(merge.into_options())),
            Some(Command::Bbv(bbv)) => Ok(Job::Bbv(bbv.into_options()?)),
            Some(Command::Eval(eval)) => Ok(Job::Eval(eval.into_options())),
            Some(Command::ProcessWatch(watch)) => Ok(watch.into_job()),
            Some(Command::Top(top)) => Ok(Job::Top(top.into_options()?)),
            Some(Command::Daemon(daemon)) => Ok(Job::Daemon(daemon.into_options()?)),
            Some(Command::SelfTest(selftest)) => Ok(Job::SelfTest(selftest.into_options())),
            Some(Command::SelfTestLoads(loads)) => Ok(loads.into_job()),
            Some(Command::Check { format }) => Ok(Job::Check(format)),
            Some(Command::KernelText {
                vmlinux,
                write,
                format,
            }) => Ok(Job::KernelText(KernelTextOptions {
                vmlinux,
                write,
                format,
            })),
            Some(Command::Completions { shell }) => Ok(generated::completions(Cli::command(), shell)),
            Some(Command::Man(man)) => man.into_job(Cli::command()),
        }
    }
}

/// What to record for a profile, which holds processes that have ended.
fn recording(record: RecordArgs, bursts: &BurstArgs, ended: EndedArgs) -> anyhow::Result<RecordOptions> {
    let mut options = record.into_options()?;
    bursts.add_to(&mut options)?;
    options.ended = ended.into_ended();
    Ok(options)
}

/// Records and reports; what the report asks for is counted separately.
fn direct(
    record: RecordArgs,
    bursts: &BurstArgs,
    ended: EndedArgs,
    report: ReportArgs,
    output: Option<PathBuf>,
) -> anyhow::Result<Job> {
    let mut report = report.into_options()?;
    let mut record = recording(record, bursts, ended)?;
    if report.asks_thread() {
        record.threads = ThreadCounts::Apart;
    }
    report.debug_files.extend(record.vmlinux.clone());
    Ok(Job::Direct(record, report, output))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::record::{EndedProcesses, Target};

    #[test]
    fn definition_is_consistent() {
        Cli::command().debug_assert();
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

    /// Processes that have ended stay separate where profiles hold many.
    #[test]
    fn ended_processes_are_separate_in_large_profiles() {
        let ended = |args: &[&str]| match job(args) {
            Ok(Job::Direct(options, ..) | Job::Record(options, _)) => options.ended,
            Ok(Job::Daemon(options)) => options.record.ended,
            other => panic!("{:?}", other.err()),
        };
        for command in [&["record", "-o", "x"][..], &["daemon", "--dir", "x"], &[]] {
            assert_eq!(ended(command), EndedProcesses::Together);
            assert_eq!(
                ended(&[command, &["--each-process"]].concat()),
                EndedProcesses::Apart
            );
        }
        // There is nothing to choose where a run is short or has slices.
        assert!(job(&["top", "--each-process"]).is_err());
        assert!(job(&["bbv", "-o", "x", "--each-process"]).is_err());
    }
}
