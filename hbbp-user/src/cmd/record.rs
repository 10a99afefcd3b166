//! `hbbp-sys record`: from options to a snapshot. Wires the collector to the resolver.

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::child::{PendingChild, exit_code};
use super::interrupt::{Interrupt, Signals};
use super::interval::raw_interval;
use super::progress::Progress;
use crate::collect::cpu_times::CpuTimes;
use crate::collect::event::Choice;
use crate::collect::limits;
use crate::collect::object::Messages;
use crate::collect::overhead::{read_own_cpu, read_own_memory};
use crate::collect::{Collector, ModuleWatch, Plan, Scope, StacksSeen};
use crate::record::{Record, Timed};
use crate::resolve::Resolver;
use crate::resolve::elf::build_id::read_kernel_build_id;
use crate::resolve::kernel::reader::ReadKernel;
use crate::resolve::kernel::space::{TextHistory, open_kernel_space};
use crate::resolve::user::proc_scan::read_processes;
use crate::snapshot::{Loss, Run, Snapshot};
use crate::streams::KernelCounts;

/// What to record.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Scope of the measurement.
    pub target: Target,
    /// Duration; `None` until a signal or until the command exits.
    pub duration: Option<Duration>,
    /// Events and periods.
    pub choice: Choice,
    /// Whether kernel addresses are counted by process.
    pub kernel: KernelCounts,
    /// Capacity of the count map.
    pub map_entries: Option<u32>,
    /// Whether kernel text is followed through its changes.
    pub text: TextHistory,
    /// Whether the programs say what they refuse.
    pub messages: Messages,
    /// Static image of the kernel, used where live text or symbols cannot be read.
    pub vmlinux: Option<PathBuf>,
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
pub struct Recorded {
    /// What was measured.
    pub snapshot: Snapshot,
    /// The command, running or exited.
    pub command: Option<Command>,
    /// While this is held, the first signal only ends the measurement.
    pub interrupt: Interrupt,
}

/// The command of a recording.
#[derive(Debug)]
pub enum Command {
    /// It outlives the measurement.
    Running(Child),
    /// It exited with this code.
    Ended(u8),
}

/// Time between two drains. Long, because each drain costs samples on its CPU; short enough to notice kernel text
/// patches soon where the kernel does not report them.
const DRAIN_EVERY: Duration = Duration::from_secs(2);

/// Time between two reads of the sideband. The files of a process can be opened only while it lives.
const SIDEBAND_EVERY: Duration = Duration::from_millis(50);

/// Time between two checks whether branch stacks are empty, until that is known: empty ones are detected within a
/// second.
const STACKS_EVERY: Duration = Duration::from_millis(250);

/// Minimum gap before an extra drain triggered by a text patch, as a multiple of the duration of the last drain: such
/// drains take at most 5 % of the time, however often text is patched.
const DRAIN_GAP: u32 = 19;

/// The same for memory with code that changed, as it does all the time where compilers run: at most 1 % of the time.
const MEMORY_DRAIN_GAP: u32 = 99;

/// Delay from a patch to the split of the interval. Switching a static key patches many sites in a row.
const PATCH_DELAY: Duration = Duration::from_millis(2);

/// Note if kernel text is read once.
const TEXT_ONCE: &str = "kernel text was read once, at the end (--text-once): samples in code patched or \
                         unloaded earlier are misattributed or unresolved";

/// Note if branch stacks are empty.
const EMPTY_STACKS: &str = "branch stacks are empty on this machine, as on some virtual machines: the mix \
                            uses instruction samples only";

/// Records until the time is over, the command exits or a signal arrives.
pub fn record(options: &RecordOptions) -> anyhow::Result<Recorded> {
    recorded(options).map_err(|error| limits::advised(error, super::check::read_n_cpus()))
}

fn recorded(options: &RecordOptions) -> anyhow::Result<Recorded> {
    let mut interrupt = Interrupt::listen()?;
    let (scope, pending) = prepare(&options.target)?;
    // After the fork, so that the command keeps its own limit.
    raise_file_limit();
    let scope_words = describe(&options.target, pending.as_ref());
    let plan = Plan {
        scope,
        choice: options.choice.clone(),
        kernel: options.kernel,
        map_entries: options.map_entries,
        modules: match options.text {
            TextHistory::Followed => ModuleWatch::Told,
            TextHistory::Once => ModuleWatch::Untold,
        },
        messages: options.messages,
    };
    let mut collector = Collector::open(&plan)?;
    let mut run = facts(scope_words);
    run.notes.extend(collector.notes().iter().cloned());

    let window = collector.text_window();
    let probe = window
        .ok()
        .map(|window| Box::new(move |at, out: &mut [u8]| window.read(at, out)) as Box<ReadKernel>);
    let (mut kernel, notes) = open_kernel_space(probe, &run.kernel_release, options.vmlinux.as_deref())?;
    kernel.keep(options.text);
    if collector.has_stacks()
        && let Some(switch) = kernel.switch()
    {
        collector.tell_switch(switch);
    }
    run.notes.extend(notes);
    if options.text == TextHistory::Once {
        run.notes.push(TEXT_ONCE.to_owned());
    }
    let resolver = Resolver::new(kernel, &read_processes());

    let mut session = Session {
        collector,
        resolver,
        began: now(),
        split: Vec::new(),
        patched: None,
        user_patched: false,
        next_memory_drain: Instant::now(),
        next_drain: Instant::now(),
        text: options.text,
        unread: 0,
        stacks: StacksSeen::NotYet,
    };
    let times_before = CpuTimes::read();
    session.collector.enable()?;
    let started = now();
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    run.started = u64::try_from(since_epoch.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX);
    session.began = started;
    let child = pending.map(PendingChild::release).transpose()?;
    let (runtime, signals) = interrupt.parts();
    let command = runtime.block_on(measure(&mut session, options.duration, child, signals))?;

    session.look_at_stacks()?;
    session.collector.stop()?;
    run.duration = now().saturating_sub(started);
    session.drain()?;
    session.compare_text()?;
    let totals = session.collector.totals()?;
    run.events = totals.events;
    run.notes.extend(totals.notes);
    if session.stacks == StacksSeen::Empty {
        run.notes.push(EMPTY_STACKS.to_owned());
    }
    // Counters of tasks and cgroups stop while none of these run: that they are idle says nothing.
    if matches!(
        options.target,
        Target::System | Target::Cpus(_) | Target::SystemDuring(_)
    ) {
        CpuTimes::read().add_since(&times_before, &mut run.events);
    }
    let unread = session.unread;
    let mut snapshot = session.resolver.finish(run);
    for (loss, n) in totals.losses.iter().filter_map(|(_, n, loss)| Some((loss?, n))) {
        snapshot.losses.add(loss, n);
    }
    snapshot.losses.add(Loss::SidebandUnread, unread);
    snapshot.fit();
    snapshot.run.own_cpu = read_own_cpu();
    snapshot.run.own_memory = read_own_memory();
    Ok(Recorded {
        snapshot,
        command,
        interrupt,
    })
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

/// A running measurement: collector, resolver, and the intervals since the last drain.
struct Session {
    collector: Collector,
    resolver: Resolver,
    /// Start of the current interval.
    began: u64,
    /// Earlier intervals since the last drain.
    split: Vec<Range<u64>>,
    /// When to split the interval because of a patch.
    patched: Option<Instant>,
    /// Whether user text was patched, too: then a drain does it, as only kernel code is counted apart.
    user_patched: bool,
    /// Earliest time of an extra drain because memory with code changed.
    next_memory_drain: Instant,
    /// Earliest time of an extra drain because of a patch.
    next_drain: Instant,
    /// Whether kernel text is followed.
    text: TextHistory,
    /// Malformed records.
    unread: u64,
    /// Whether branch stacks have entries.
    stacks: StacksSeen,
}

impl Session {
    fn read_sideband(&mut self) -> anyhow::Result<()> {
        let reading = self.collector.records()?;
        self.unread += reading.unread;
        let is_patch = |record: &Record| matches!(record, Record::TextPoke { .. });
        // Patches before the interval do not split it: the kernel switches static keys when perf events are opened, and
        // an extra drain for these would only cost samples.
        let inside = |timed: &Timed| self.began < timed.time && is_patch(&timed.record);
        let patched = reading.records.iter().any(inside);
        if patched && self.text == TextHistory::Followed {
            self.patched.get_or_insert_with(|| Instant::now() + PATCH_DELAY);
        }
        self.resolver.apply(reading.records);
        if self.resolver.take_patched() {
            self.user_patched = true;
            self.patched.get_or_insert_with(|| Instant::now() + PATCH_DELAY);
        }
        Ok(())
    }

    /// Looks for changes of memory with code, which have no records.
    fn watch_memory(&mut self) {
        if self.patched.is_none() && self.resolver.has_memory_changed() {
            self.user_patched = true;
            self.patched = Some(self.next_memory_drain.max(Instant::now()));
        }
    }

    /// Splits the interval, so that kernel counts before and after a patch are separate.
    fn split(&mut self) -> anyhow::Result<()> {
        if !self.user_patched && self.collector.cut()? {
            let end = now();
            self.split.push(self.began..end);
            self.began = end;
            self.patched = None;
        } else if self.next_drain <= Instant::now() {
            self.drain()?;
        } else {
            self.patched = Some(self.next_drain);
        }
        Ok(())
    }

    fn drain(&mut self) -> anyhow::Result<()> {
        let start = own_time();
        let parts = self.collector.drain()?;
        let end = now();
        self.read_sideband()?;
        self.split.push(self.began..end);
        let has_stack = |event| self.collector.has_stack(event);
        let times = self.split.drain(..);
        let intervals = times
            .zip(parts.iter())
            .map(|(time, part)| raw_interval(time, part, has_stack));
        self.resolver.drained(intervals.collect());
        self.began = end;
        self.patched = None;
        self.user_patched = false;
        let cost = own_time().saturating_sub(start);
        self.next_drain = Instant::now() + DRAIN_GAP * cost;
        self.next_memory_drain = Instant::now() + MEMORY_DRAIN_GAP * cost;
        Ok(())
    }

    /// Compares live kernel text with the known text.
    fn compare_text(&mut self) -> anyhow::Result<()> {
        let live = self.resolver.read_text();
        self.read_sideband()?;
        self.resolver.compare_text(live);
        Ok(())
    }

    /// Checks whether branch stacks have entries, until that is known; empty ones are no longer sampled.
    fn look_at_stacks(&mut self) -> anyhow::Result<()> {
        if self.stacks == StacksSeen::NotYet {
            self.stacks = self.collector.stacks_seen();
            if self.stacks == StacksSeen::Empty {
                self.collector.stop_stacks()?;
            }
        }
        Ok(())
    }
}

async fn measure(
    session: &mut Session,
    duration: Option<Duration>,
    mut child: Option<Child>,
    signals: &mut Signals,
) -> anyhow::Result<Option<Command>> {
    let start = Instant::now();
    let mut drains = interval_at(start + DRAIN_EVERY, DRAIN_EVERY);
    let mut sideband = interval_at(start + SIDEBAND_EVERY, SIDEBAND_EVERY);
    let mut stacks = interval_at(start + STACKS_EVERY, STACKS_EVERY);
    // A late tick needs no catching up: the next drain takes more.
    drains.set_missed_tick_behavior(MissedTickBehavior::Delay);
    sideband.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let end = tokio::time::sleep(duration.unwrap_or(Duration::MAX));
    tokio::pin!(end);
    // A command may write to the same terminal.
    let progress = child.is_none().then(|| Progress::start(duration));
    let text_events = session.collector.text_events()?;
    // SAFETY: the descriptor is our own and stays the same and open as long as it is waited for.
    let text_events = unsafe { AsyncFd::register_with_interest(text_events, Interest::READABLE) }
        .context("failed to wait for kernel text events")?;
    let half_full = session.collector.half_full();
    loop {
        let patched = tokio::time::sleep_until(session.patched.unwrap_or(start));
        tokio::select! {
            biased;
            () = &mut end, if duration.is_some() => break,
            () = signals.wait() => break,
            _ = drains.tick() => {
                session.drain()?;
                session.compare_text()?;
            }
            () = notified(half_full.as_deref()) => session.drain()?,
            () = patched, if session.patched.is_some() => session.split()?,
            _ = stacks.tick(), if session.stacks == StacksSeen::NotYet => session.look_at_stacks()?,
            _ = sideband.tick() => {
                session.read_sideband()?;
                session.watch_memory();
                if let Some(progress) = &progress {
                    progress.at(start.elapsed());
                }
                if let Some(status) = ended(child.as_mut())? {
                    return Ok(Some(Command::Ended(exit_code(status))));
                }
            }
            ready = text_events.readable() => {
                ready.context("failed to wait for kernel text events")?.clear_ready();
                session.read_sideband()?;
            }
        }
    }
    Ok(child.map(Command::Running))
}

/// Waits for a notification; for ever without a notifier.
async fn notified(notify: Option<&Notify>) {
    match notify {
        Some(notify) => notify.notified().await,
        None => std::future::pending().await,
    }
}

fn ended(child: Option<&mut Child>) -> anyhow::Result<Option<ExitStatus>> {
    let status = child
        .map(Child::try_wait)
        .transpose()
        .context("failed to wait for the command")?;
    Ok(status.flatten())
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

/// Run facts that are known before the start.
fn facts(scope: String) -> Run {
    let read = |path: &str| {
        std::fs::read_to_string(path)
            .map(|text| text.trim().to_owned())
            .unwrap_or_default()
    };
    let cpus = read("/proc/cpuinfo");
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    Run {
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        host: read("/proc/sys/kernel/hostname"),
        cpu_model: model
            .map(|(_, model)| model.trim().to_owned())
            .unwrap_or_default(),
        kernel_release: read("/proc/sys/kernel/osrelease"),
        kernel_build_id: read_kernel_build_id(),
        n_cpus: super::check::read_n_cpus(),
        scope,
        ..Run::default()
    }
}

/// CPU time of this thread. A drain mostly waits for the kernel, which costs no CPU time.
fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Now in ns of CLOCK_MONOTONIC.
fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}
