//! Options of measurements.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use jiff::SignedDuration;

use crate::cmd::record::{BurstFollowing, EndedProcesses, RecordOptions, Target};
use hbbp_collect::choice::Choice;
use hbbp_collect::object::Messages;
use hbbp_collect::periods::CYCLES;
use hbbp_collect::{ClassCounting, StackEvents, cpu_list};
use hbbp_model::snapshot::run::Period;
use hbbp_model::streams::ThreadCounts;
use hbbp_resolve::kernel::space::TextHistory;

#[derive(Debug, Args)]
#[command(next_help_heading = "Recording")]
pub(super) struct RecordArgs {
    /// Measure for TIME: 10, 500ms, 90s, 5m, 1h.
    ///
    /// Without a unit, in seconds. Default: until Ctrl-C or until the command exits.
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Event to sample. Default: the best of this machine.
    ///
    /// One of branches, instructions, cycles, cpu-clock, task-clock, or PMU/config=0x..,precise=N,name=../. `hbbp-sys check` says
    /// which is the best.
    #[arg(short, long)]
    event: Option<String>,
    /// Sampling period in event counts (ns for clocks).
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    period: Option<u64>,
    /// Sampling period of branch stacks, in taken branches.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), hide_short_help = true)]
    branch_period: Option<u64>,
    /// Sample core cycles as well, for CPI.
    ///
    /// Every N of them (default: 3000017): reports then show CPI, by instruction up to loop and process. Where there are no
    /// counters, the clock is sampled anyway.
    #[arg(long, value_name = "N", require_equals = true, value_parser = clap::value_parser!(u64).range(1..))]
    time: Option<Option<u64>>,
    /// Sample branch stacks of the kernel and of user code by an event for each, so that the less active ring has more
    /// of them: up to four times its share. Takes one more counter. The kernel begins at four times its share; where
    /// counters follow tasks (--pid, a command) it stays there, as such counters cannot change.
    #[arg(long, hide_short_help = true)]
    rings_apart: bool,
    /// Take call chains with the samples of time (implies --time). `report --view loops` then charges the time of what was
    /// called to the loops and lines that called it. User code must keep frame pointers; where it keeps none, callers are not
    /// known.
    #[arg(long, hide_short_help = true)]
    callers: bool,
    /// Sampling frequency on each CPU, instead of a period; the kernel adapts the period to it.
    #[arg(short = 'F', long, value_name = "HERTZ", conflicts_with = "period",
          value_parser = clap::value_parser!(u64).range(1..), hide_short_help = true)]
    frequency: Option<u64>,
    /// Measure this process and its descendants.
    #[arg(short, long, value_name = "PID", value_parser = parse_pid)]
    pid: Option<u32>,
    /// Measure only these CPUs, e.g. 0-3,8.
    #[arg(short = 'C', long, value_name = "LIST", conflicts_with = "pid")]
    cpu: Option<String>,
    /// Measure this cgroup, by its path.
    ///
    /// The path is below /sys/fs/cgroup, or absolute.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["pid", "cpu"])]
    cgroup: Option<PathBuf>,
    /// Measure the whole system while the command runs.
    ///
    /// Otherwise only the command is measured.
    #[arg(short, long, conflicts_with_all = ["pid", "cpu", "cgroup"])]
    all: bool,
    /// Count each thread separately, for `--rows thread` (implied by it): more rows, and a larger profile.
    #[arg(long, hide_short_help = true)]
    per_thread: bool,
    /// Capacity of the count map in distinct addresses between two drains. Default: grows with the number of CPUs.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(64..=(1 << 24)), hide_short_help = true)]
    map_entries: Option<u32>,
    /// Read kernel text only once, at the end, for comparison with other tools: samples in code patched or unloaded
    /// earlier are misattributed or unresolved.
    #[arg(long, hide_short_help = true)]
    text_once: bool,
    /// Count classes of instructions (loads, stores, branches, ..) exactly, on the counters that the samples leave
    /// free; the counts are reported and constrain the estimate.
    #[arg(long, hide_short_help = true)]
    classes: bool,
    /// Log to standard error what the programs in the kernel refuse, and why.
    #[arg(long, hide_short_help = true)]
    pub(super) verbose: bool,
    /// Static image of the running kernel (vmlinux or boot image), for kernel text and function names where the live
    /// ones cannot be read. Default: the image with the build id of the kernel in the usual locations.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    vmlinux: Option<PathBuf>,
    /// Command to run and measure.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["pid", "cpu", "cgroup"])]
    command: Vec<OsString>,
}

/// Executions of user code where nothing counts them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Recording")]
pub(super) struct BurstArgs {
    /// Estimate executions of user code where there are no counters, by emulation.
    ///
    /// At samples of the clock, registers and some pages of memory are read, and some hundred branches of the program are emulated
    /// from there. Kernel code has time, in tables of its own. Implies --event cpu-clock; programs are neither stopped nor changed.
    #[arg(long, conflicts_with_all = ["branch_period", "rings_apart", "time", "callers", "per_thread", "classes"])]
    bursts: bool,
}

impl BurstArgs {
    /// Adds what is asked for to a recording.
    pub(super) fn add_to(&self, options: &mut RecordOptions) -> anyhow::Result<()> {
        if !self.bursts {
            return Ok(());
        }
        let event = options.choice.event.get_or_insert_with(|| CLOCK.to_owned());
        if event != CLOCK {
            bail!("--bursts begins at samples of {CLOCK}, and not of {event}: leave out --event");
        }
        options.bursts = BurstFollowing::On;
        Ok(())
    }
}

/// The event whose samples bursts begin at.
const CLOCK: &str = "cpu-clock";

/// What becomes of processes that have ended, in profiles that hold many.
#[derive(Debug, Args)]
#[command(next_help_heading = "Recording")]
pub(super) struct EndedArgs {
    /// Keep each process separate. Otherwise, more than sixteen ended processes of one command name and cgroup become
    /// one.
    #[arg(long, hide_short_help = true)]
    each_process: bool,
}

impl EndedArgs {
    pub(super) const fn into_ended(self) -> EndedProcesses {
        if self.each_process {
            EndedProcesses::Apart
        } else {
            EndedProcesses::Together
        }
    }
}

impl RecordArgs {
    /// Converts the arguments to options.
    pub(super) fn into_options(self) -> anyhow::Result<RecordOptions> {
        if let Some(event) = &self.event {
            check_event(event)?;
        }
        let period = match (self.period, self.frequency) {
            (Some(period), _) => Some(Period::Fixed(period)),
            (None, hertz) => hertz.map(Period::Frequency),
        };
        let target = match (self.pid, &self.cpu, self.cgroup) {
            (Some(pid), ..) => Target::Process(pid),
            (_, Some(list), _) => match cpu_list::parse(list) {
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
                time: match self.time {
                    Some(period) => Some(period.unwrap_or(CYCLES)),
                    None => self.callers.then_some(CYCLES),
                },
                callers: self.callers,
                stacks: if self.rings_apart {
                    StackEvents::ForEachRing
                } else {
                    StackEvents::ForBothRings
                },
                slices: None,
            },
            threads: threads(self.per_thread),
            // Slices, too, name the process images of their addresses.
            ended: EndedProcesses::Apart,
            map_entries: self.map_entries,
            text: if self.text_once {
                TextHistory::Once
            } else {
                TextHistory::Followed
            },
            messages: if self.verbose { Messages::On } else { Messages::Off },
            vmlinux: self.vmlinux,
            cpu_budget: None,
            classes: if self.classes {
                ClassCounting::On
            } else {
                ClassCounting::Off
            },
            bursts: BurstFollowing::Off,
        })
    }
}

/// Refuses the modifiers of perf, with what does the same here.
fn check_event(event: &str) -> anyhow::Result<()> {
    let Some((name, modifier)) = event.split_once(':').filter(|_| !event.contains('/')) else {
        return Ok(());
    };
    bail!(
        "event `{event}`: the modifier `:{modifier}` is perf's; use --event {name}, which is as precise as this machine can \
         (both rings are always counted, see --filter ring=user), or PMU/config=0x..,precise=2/"
    )
}

/// The number of a process.
pub(super) fn parse_pid(text: &str) -> Result<u32, String> {
    let pid = text.parse().ok().filter(|pid| 0 < *pid);
    pid.ok_or_else(|| "expected the number of a process, as in `pgrep -n NAME`".to_owned())
}

/// What `--per-thread` asks for.
pub(super) const fn threads(apart: bool) -> ThreadCounts {
    if apart {
        ThreadCounts::Apart
    } else {
        ThreadCounts::Together
    }
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

/// Seconds, or numbers with units such as ms, s, m, h.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
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
    use super::*;

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
