//! `hbbp-sys record`: from options to a snapshot, or to one after the other. Wires the collector to the resolver.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::allowed::{check_frequency, in_place_of_a_refusal};
use super::child::PendingChild;
use super::host_facts::{facts, read_n_cpus};
use super::interrupt::{Ender, Interrupt};
use super::measure::{Pause, measure};
use super::progress::Progress;
pub use super::session::EndedProcesses;
use super::session::Session;
use super::worker;
use hbbp_collect::choice::Choice;
use hbbp_collect::limits;
use hbbp_collect::object::Messages;
use hbbp_collect::{ClassCounting, ModuleWatch, Plan, Scope};
use hbbp_elf::parser::Parser;
use hbbp_model::slices::Slices;
use hbbp_model::snapshot::Snapshot;
use hbbp_model::streams::ThreadCounts;
use hbbp_resolve::kernel::space::TextHistory;

/// Note that an interval ended late. Its duration says how much.
const LATE: &str = "an interval was longer than planned: this machine was too busy to end it in time";

/// What to record.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Scope of the measurement.
    pub target: Target,
    /// Duration; `None` until a signal or until the command exits.
    pub duration: Option<Duration>,
    /// Events and periods.
    pub choice: Choice,
    /// Whether the threads of a process are kept separate.
    pub threads: ThreadCounts,
    /// Whether processes that have ended are kept separate, where they are many of one name.
    pub ended: EndedProcesses,
    /// Capacity of the count map.
    pub map_entries: Option<u32>,
    /// Whether kernel text is followed through its changes.
    pub text: TextHistory,
    /// Whether the programs say what they refuse.
    pub messages: Messages,
    /// Static image of the kernel, used where live text or symbols cannot be read.
    pub vmlinux: Option<PathBuf>,
    /// CPU time that successive profiles may take, in parts per million of all CPUs: periods are adapted to it.
    pub cpu_budget: Option<u32>,
    /// Whether classes of instructions are counted along with the samples.
    pub classes: ClassCounting,
    /// Whether user code is followed from the samples of a clock.
    pub bursts: BurstFollowing,
}

/// Whether user code is followed ahead from samples of a clock, for its executions.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum BurstFollowing {
    /// No memory of other processes is read for that.
    #[default]
    Off,
    /// In bursts of some hundred branches.
    On,
}

impl Default for RecordOptions {
    /// Everything that runs, until a signal.
    fn default() -> Self {
        Self {
            target: Target::System,
            duration: None,
            choice: Choice::default(),
            threads: ThreadCounts::Together,
            ended: EndedProcesses::Apart,
            map_entries: None,
            text: TextHistory::Followed,
            messages: Messages::Off,
            vmlinux: None,
            cpu_budget: None,
            classes: ClassCounting::Off,
            bursts: BurstFollowing::Off,
        }
    }
}

/// Scope of a measurement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Target {
    /// Everything that runs.
    System,
    /// Everything that runs on these CPUs.
    Cpus(Vec<u32>),
    /// One process and its descendants.
    Process(u32),
    /// A cgroup, by its folder.
    Cgroup(PathBuf),
    /// A command and its descendants.
    Command(Vec<OsString>),
    /// Everything that runs while a command does.
    SystemDuring(Vec<OsString>),
}

/// A finished recording.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// What was measured.
    pub snapshot: Snapshot,
    /// What was counted in each slice, where these are distinguished.
    pub slices: Option<Slices>,
    /// The command, running or exited.
    pub command: Option<Command>,
    /// While this is held, the first signal only ends the measurement.
    pub interrupt: Interrupt,
}

/// The command of a recording.
#[derive(Debug)]
pub(crate) enum Command {
    /// It outlives the measurement.
    Running(Child),
    /// It exited with this code.
    Ended(u8),
}

/// Records until the time is over, the command exits or a signal arrives.
pub(crate) fn record(options: &RecordOptions) -> anyhow::Result<Recorded> {
    recorded(options).map_err(advised)
}

fn recorded(options: &RecordOptions) -> anyhow::Result<Recorded> {
    let parser = worker::start(|_| {})?;
    let mut running = Recording::open(options, &parser, Interrupt::listen()?)?;
    // A command may write to the same terminal.
    let progress = running.child.is_none().then(|| Progress::start(options.duration));
    let pause = running.measure(options.duration, progress)?;
    let command = running.child.map(|child| match pause {
        Pause::Exited(code) => Command::Ended(code),
        Pause::Time | Pause::Signal | Pause::Budget => Command::Running(child),
    });
    let (snapshot, slices) = running.session.finish_with_slices()?;
    Ok(Recorded {
        snapshot,
        slices,
        command,
        interrupt: running.interrupt,
    })
}

/// A recording that hands out the profile of each interval while it runs.
pub struct Intervals {
    /// `None` when it has ended.
    recording: Option<Recording>,
    /// The recording that has ended: it is torn down with this, when its last profile may have been saved.
    ended: Option<Recording>,
    interval: Duration,
    /// When the last interval was to end.
    due: Instant,
    /// When the interval at hand began.
    began: Instant,
    /// When the recording ends, if it has a duration.
    end: Option<Instant>,
    ender: Ender,
}

impl Intervals {
    /// Starts the recording.
    pub fn open(options: &RecordOptions, interval: Duration) -> anyhow::Result<Self> {
        let parser = worker::start(|_| {})?;
        Self::open_until(options, interval, &parser, Interrupt::listen()?)
    }

    /// Starts the recording, whose files a parser parses; it ends with the interrupt, at once where that has happened.
    pub(crate) fn open_until(
        options: &RecordOptions,
        interval: Duration,
        parser: &Parser,
        interrupt: Interrupt,
    ) -> anyhow::Result<Self> {
        let recording = Recording::open(options, parser, interrupt).map_err(advised)?;
        let due = Instant::now();
        Ok(Self {
            ender: recording.interrupt.ender(),
            recording: Some(recording),
            ended: None,
            interval,
            due,
            began: due,
            end: options.duration.and_then(|duration| due.checked_add(duration)),
        })
    }

    /// What ends the recording from another thread, as a signal does.
    pub fn ender(&self) -> Ender {
        self.ender.clone()
    }

    /// Measures to the end of the interval.
    fn measure(&mut self, mut recording: Recording) -> anyhow::Result<Snapshot> {
        let length = self.interval * recording.session.lengthening();
        // Intervals keep their pace, unless too little of one is left.
        let (paced, whole) = (self.due + length, self.began + length);
        self.due = if whole <= paced + length / 2 { paced } else { whole };
        let until = self.end.map_or(self.due, |end| end.min(self.due));
        let left = until.saturating_duration_since(Instant::now());
        let pause = recording.measure(Some(left), None)?;
        match pause {
            Pause::Time if Some(until) != self.end => {}
            // The next one ends when this one was to.
            Pause::Budget => self.due = self.due.checked_sub(length).unwrap_or(self.due),
            Pause::Time | Pause::Signal | Pause::Exited(_) => {
                let last = recording.session.finish();
                self.ended = Some(recording);
                return last;
            }
        }
        let mut snapshot = recording.session.take()?;
        snapshot.run.notes.extend(late(snapshot.run.duration, length));
        self.began = Instant::now();
        self.recording = Some(recording);
        Ok(snapshot)
    }
}

/// The last one is that in which the time is over, the command exits or a signal arrives, or that failed. An interval is
/// longer where the program takes longer than that to ask for it.
impl Iterator for Intervals {
    type Item = anyhow::Result<Snapshot>;

    fn next(&mut self) -> Option<Self::Item> {
        let recording = self.recording.take()?;
        Some(self.measure(recording).map_err(advised))
    }
}

/// The note on an interval of this many ns that was planned to have this length, at most, and lasted a fifth longer.
fn late(duration: u64, planned: Duration) -> Option<String> {
    let beyond = Duration::from_nanos(duration).saturating_sub(planned);
    (planned / 5 < beyond).then(|| LATE.to_owned())
}

/// The error with what helps against it.
fn advised(error: anyhow::Error) -> anyhow::Error {
    in_place_of_a_refusal(limits::advised(error, read_n_cpus()))
}

/// A recording that runs.
struct Recording {
    session: Session,
    child: Option<Child>,
    interrupt: Interrupt,
}

impl Recording {
    fn open(options: &RecordOptions, parser: &Parser, interrupt: Interrupt) -> anyhow::Result<Self> {
        check_frequency(&options.choice)?;
        let (scope, pending) = prepare(&options.target)?;
        // After the fork, so that the command keeps its own limit.
        raise_file_limit();
        let plan = Plan {
            scope,
            choice: options.choice.clone(),
            threads: options.threads,
            map_entries: options.map_entries,
            modules: match options.text {
                TextHistory::Followed => ModuleWatch::Told,
                TextHistory::Once => ModuleWatch::Untold,
            },
            messages: options.messages,
            classes: options.classes,
        };
        let run = facts(describe(&options.target, pending.as_ref()));
        let image = options.vmlinux.as_deref();
        let mut session = Session::open(&plan, options.text, image, options.cpu_budget, parser, run)?;
        session.ended = options.ended;
        if options.bursts == BurstFollowing::On {
            session.follow_bursts(&plan.scope)?;
        }
        session.hasten_with(interrupt.haste());
        session.start()?;
        let child = pending.map(PendingChild::release).transpose()?;
        Ok(Self {
            session,
            child,
            interrupt,
        })
    }

    fn measure(&mut self, duration: Option<Duration>, progress: Option<Progress>) -> anyhow::Result<Pause> {
        let (runtime, signals) = self.interrupt.parts();
        let child = self.child.as_mut();
        runtime.block_on(measure(&mut self.session, duration, child, signals, progress))
    }
}

fn prepare(target: &Target) -> anyhow::Result<(Scope, Option<PendingChild>)> {
    Ok(match target {
        Target::System => (Scope::System, None),
        Target::Cpus(cpus) => (Scope::Cpus(cpus.clone()), None),
        Target::Process(pid) => (Scope::Process(*pid), None),
        Target::Cgroup(path) => (Scope::Cgroup(path.clone()), None),
        Target::Command(command) => {
            let pending = PendingChild::fork(command)?;
            (Scope::Command(pending.pid()), Some(pending))
        }
        Target::SystemDuring(command) => (Scope::System, Some(PendingChild::fork(command)?)),
    })
}

fn describe(target: &Target, pending: Option<&PendingChild>) -> String {
    let command = pending.map_or("", PendingChild::name);
    match target {
        Target::System => "the whole system".to_owned(),
        Target::Cpus(cpus) => {
            let cpus: Vec<String> = cpus.iter().map(ToString::to_string).collect();
            format!("CPU {}", cpus.join(", "))
        }
        Target::Process(pid) => format!("process {pid} and its descendants"),
        Target::Cgroup(path) => format!("cgroup {}", path.display()),
        Target::Command(_) => format!("the command {command} and its descendants"),
        Target::SystemDuring(_) => format!("the whole system while the command {command} runs"),
    }
}

/// Raises the limit of open files to its maximum: each CPU needs one for each event and one more, and each mapped file
/// needs one. If that fails, opening too many files reports it.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let _ = setrlimit(Resource::Nofile, raised);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_that_end_late_say_so() {
        let said = |ms: u64, planned| late(ms * 1_000_000, Duration::from_secs(planned));
        assert_eq!(
            [5_000, 6_000, 4_000, 0].map(|ms| said(ms, 5)),
            [None, None, None, None]
        );
        assert_eq!(said(6_013, 5).as_deref(), Some(LATE));
        assert_eq!((said(6_013, 60), said(73_000, 60).as_deref()), (None, Some(LATE)));
    }
}
