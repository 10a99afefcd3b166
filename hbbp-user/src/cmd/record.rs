//! `hbbp-sys record`: from options to a snapshot; wires the collector to the resolver.

use std::collections::HashMap;
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

use super::child::{Held, exit_code};
use super::interrupt::Interrupt;
use super::interval::raw_interval;
use super::progress::Progress;
use crate::collect::event::Choice;
use crate::collect::object::KernelCounts;
use crate::collect::own_cost::{read_idle_times, read_own_cpu, read_own_memory};
use crate::collect::{Collector, ModuleWatch, Plan, Scope, StacksSeen};
use crate::record::{Record, Timed};
use crate::resolve::Resolver;
use crate::resolve::elf::build_id::read_kernel_build_id;
use crate::resolve::kernel::reader::ReadKernel;
use crate::resolve::kernel::space::{TextHistory, open_kernel_space};
use crate::resolve::user::proc_scan::read_processes;
use crate::snapshot::{Loss, Run, Snapshot};

/// What to record.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Whose samples.
    pub target: Target,
    /// How long; `None` until a signal, or until the command ends.
    pub duration: Option<Duration>,
    /// Which events, how often.
    pub choice: Choice,
    /// Whether kernel addresses are kept apart by process.
    pub kernel: KernelCounts,
    /// Room of a bank in counts.
    pub map_entries: Option<u32>,
    /// How kernel text is kept.
    pub text: TextHistory,
}

/// Whose samples to record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Target {
    /// Everything that runs.
    System,
    /// Everything that runs on these CPUs.
    Cpus(Vec<u32>),
    /// One process and what it creates.
    Process(u32),
    /// A cgroup, by its folder.
    Cgroup(PathBuf),
    /// A command and what it creates.
    Command(Vec<OsString>),
    /// Everything that runs while a command does.
    SystemDuring(Vec<OsString>),
}

/// A finished recording.
#[derive(Debug)]
pub struct Recorded {
    /// What was measured.
    pub snapshot: Snapshot,
    /// The command, where it still runs or has ended already.
    pub command: Option<Command>,
    /// As long as this is held, a first signal is taken as the wish to end the measurement, and later things go on.
    pub interrupt: Interrupt,
}

/// The command of a recording.
#[derive(Debug)]
pub enum Command {
    /// The time was over before it.
    Running(Child),
    /// It ended with this exit code.
    Ended(u8),
}

/// Time between two drains. Rare, because each costs samples on the CPU that drains; often enough to notice a patch of
/// kernel text soon where the kernel does not tell.
const DRAIN_EVERY: Duration = Duration::from_secs(2);

/// Time between two readings of the sideband. The files of a process can be opened through it only while it lives.
const SIDEBAND_EVERY: Duration = Duration::from_millis(50);

/// Time between two looks at the branch stacks, until it is known whether they hold anything: within a second, empty
/// ones are recognised.
const STACKS_EVERY: Duration = Duration::from_millis(250);

/// Time from the end of a drain to one for the sake of a patch, where counts cannot be cut any more, in lengths of a
/// drain: these take at most a twentieth of the time, however often text is switched.
const REST: u32 = 19;

/// Time from a patch to the cut of the counts there. Switching a key patches many sites one after another.
const SWITCH: Duration = Duration::from_millis(2);

/// Said where kernel text is read once.
const TEXT_ONCE: &str = "kernel text was read once, at the end (--text-once): what was patched or unloaded before then \
                         counts for the wrong instructions or for none";

/// Said where branch stacks come back empty.
const EMPTY_STACKS: &str = "the branch stacks of this machine come back empty, as on some virtual machines: \
                            the mix comes from sampled instructions alone";

/// Records until the time is over, the command ends or a signal comes.
pub fn record(options: &RecordOptions) -> anyhow::Result<Recorded> {
    let mut interrupt = Interrupt::listen()?;
    let (scope, held) = prepare(&options.target)?;
    // Not before: a command keeps the limit that it would have without us, and has been forked by now.
    raise_file_limit();
    let scope_words = describe(&options.target, held.as_ref());
    let plan = Plan {
        scope,
        choice: options.choice.clone(),
        kernel: options.kernel,
        map_entries: options.map_entries,
        modules: match options.text {
            TextHistory::Followed => ModuleWatch::Told,
            TextHistory::Once => ModuleWatch::Untold,
        },
    };
    let mut collector = Collector::open(&plan)?;
    let mut run = facts(scope_words);
    run.notes.extend(collector.notes().iter().cloned());

    let window = collector.text_window();
    let probe = window
        .ok()
        .map(|window| Box::new(move |at, out: &mut [u8]| window.read(at, out)) as Box<ReadKernel>);
    let (mut kernel, notes) = open_kernel_space(probe, &run.kernel_release);
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
        cut: Vec::new(),
        patched: None,
        rested: Instant::now(),
        text: options.text,
        unread: 0,
        stacks: StacksSeen::NotYet,
    };
    let idle_before = read_idle_times();
    session.collector.enable()?;
    let started = now();
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    run.started = u64::try_from(since_epoch.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX);
    session.began = started;
    let child = held.map(Held::release).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let command = runtime.block_on(measure(&mut session, options.duration, child, &mut interrupt))?;

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
    // Counters of tasks and cgroups stand still while nothing of these runs, so idle time has no part in them.
    if matches!(
        options.target,
        Target::System | Target::Cpus(_) | Target::SystemDuring(_)
    ) {
        add_idle_times(&mut run, &idle_before, &read_idle_times());
    }
    let unread = session.unread;
    let mut snapshot = session.resolver.finish(run);
    for (loss, n) in totals.losses.iter().filter_map(|(_, n, loss)| Some((loss?, n))) {
        snapshot.losses.add(loss, n);
    }
    snapshot.losses.add(Loss::SidebandUnread, unread);
    snapshot.run.own_cpu = read_own_cpu();
    snapshot.run.own_memory = read_own_memory();
    Ok(Recorded {
        snapshot,
        command,
        interrupt,
    })
}

fn prepare(target: &Target) -> anyhow::Result<(Scope, Option<Held>)> {
    Ok(match target {
        Target::System => (Scope::System, None),
        Target::Cpus(cpus) => (Scope::Cpus(cpus.clone()), None),
        Target::Process(pid) => (Scope::Process(*pid), None),
        Target::Cgroup(path) => (Scope::Cgroup(path.clone()), None),
        Target::Command(command) => {
            let held = Held::fork(command)?;
            (Scope::Command(held.pid()), Some(held))
        }
        Target::SystemDuring(command) => (Scope::System, Some(Held::fork(command)?)),
    })
}

fn describe(target: &Target, held: Option<&Held>) -> String {
    let command = held.map_or("", Held::name);
    match target {
        Target::System => "the whole system".to_owned(),
        Target::Cpus(cpus) => {
            let cpus: Vec<String> = cpus.iter().map(ToString::to_string).collect();
            format!("CPU {}", cpus.join(", "))
        }
        Target::Process(pid) => format!("process {pid} and what it creates"),
        Target::Cgroup(path) => format!("the cgroup {}", path.display()),
        Target::Command(_) => format!("the command {command} and what it creates"),
        Target::SystemDuring(_) => format!("the whole system while the command {command} runs"),
    }
}

/// A running measurement: the two halves that meet here, and what the resolver is owed.
struct Session {
    collector: Collector,
    resolver: Resolver,
    /// Start of the current interval.
    began: u64,
    /// Start and end of the intervals before, since the last drain.
    cut: Vec<Range<u64>>,
    /// When to cut next for the sake of a patch.
    patched: Option<Instant>,
    /// When a drain for that may happen at the earliest.
    rested: Instant,
    /// How kernel text is kept.
    text: TextHistory,
    /// Records that could not be understood.
    unread: u64,
    /// What is known of the branch stacks.
    stacks: StacksSeen,
}

impl Session {
    fn read_sideband(&mut self) -> anyhow::Result<()> {
        let reading = self.collector.records()?;
        self.unread += reading.unread;
        let is_patch = |record: &Record| matches!(record, Record::TextPoke { .. });
        // What was patched before the interval cuts no count of it: the kernel switches keys of its own where perf events
        // are opened, and such a drain would cost samples for nothing.
        let inside = |timed: &Timed| self.began < timed.time && is_patch(&timed.record);
        let patched = reading.records.iter().any(inside);
        if patched && self.text == TextHistory::Followed {
            self.patched.get_or_insert_with(|| Instant::now() + SWITCH);
        }
        self.resolver.apply(reading.records);
        Ok(())
    }

    /// Separates what was counted of kernel code before a patch from what will be.
    fn cut(&mut self) -> anyhow::Result<()> {
        if self.collector.cut()? {
            let end = now();
            self.cut.push(self.began..end);
            self.began = end;
            self.patched = None;
        } else if self.rested <= Instant::now() {
            self.drain()?;
        } else {
            self.patched = Some(self.rested);
        }
        Ok(())
    }

    fn drain(&mut self) -> anyhow::Result<()> {
        let start = own_time();
        let parts = self.collector.drain()?;
        let end = now();
        self.read_sideband()?;
        self.cut.push(self.began..end);
        let has_stack = |event| self.collector.has_stack(event);
        let times = self.cut.drain(..);
        let intervals = times
            .zip(parts.iter())
            .map(|(time, part)| raw_interval(time, part, has_stack));
        self.resolver.drained(intervals.collect());
        self.began = end;
        self.patched = None;
        self.rested = Instant::now() + REST * own_time().saturating_sub(start);
        Ok(())
    }

    /// Compares the kernel text that runs with what is known of it.
    fn compare_text(&mut self) -> anyhow::Result<()> {
        let live = self.resolver.read_text();
        self.read_sideband()?;
        self.resolver.compare_text(live);
        Ok(())
    }

    /// Looks whether the branch stacks hold anything, until that is known; empty ones are not asked for any more.
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
    interrupt: &mut Interrupt,
) -> anyhow::Result<Option<Command>> {
    let start = Instant::now();
    let mut drains = interval_at(start + DRAIN_EVERY, DRAIN_EVERY);
    let mut sideband = interval_at(start + SIDEBAND_EVERY, SIDEBAND_EVERY);
    let mut stacks = interval_at(start + STACKS_EVERY, STACKS_EVERY);
    // A delay is made up by itself: the next drain takes more.
    drains.set_missed_tick_behavior(MissedTickBehavior::Delay);
    sideband.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let end = tokio::time::sleep(duration.unwrap_or(Duration::MAX));
    tokio::pin!(end);
    // A command may use the same terminal.
    let progress = child.is_none().then(|| Progress::start(duration));
    let news = session.collector.text_news()?;
    // SAFETY: the descriptor is our own and stays the same and open as long as it is waited for.
    let news = unsafe { AsyncFd::register_with_interest(news, Interest::READABLE) }
        .context("failed to wait for news of kernel text")?;
    let half_full = session.collector.half_full();
    loop {
        let patched = tokio::time::sleep_until(session.patched.unwrap_or(start));
        tokio::select! {
            biased;
            () = &mut end, if duration.is_some() => break,
            () = interrupt.wait() => break,
            _ = drains.tick() => {
                session.drain()?;
                session.compare_text()?;
            }
            () = told(half_full.as_deref()) => session.drain()?,
            () = patched, if session.patched.is_some() => session.cut()?,
            _ = stacks.tick(), if session.stacks == StacksSeen::NotYet => session.look_at_stacks()?,
            _ = sideband.tick() => {
                session.read_sideband()?;
                if let Some(progress) = &progress {
                    progress.at(start.elapsed());
                }
                if let Some(status) = ended(child.as_mut())? {
                    return Ok(Some(Command::Ended(exit_code(status))));
                }
            }
            ready = news.readable() => {
                ready.context("failed to wait for news of kernel text")?.clear_ready();
                session.read_sideband()?;
            }
        }
    }
    Ok(child.map(Command::Running))
}

/// Waits until it is told, for ever where nobody tells.
async fn told(by: Option<&Notify>) {
    match by {
        Some(by) => by.notified().await,
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

/// Lets this process open as many files as it ever may: each CPU takes one for each event and one more, and so does
/// each file that runs. Where that fails, opening too many of them will say so.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let _ = setrlimit(Resource::Nofile, raised);
}

/// What is known of the run before it begins.
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

fn add_idle_times(run: &mut Run, before: &HashMap<u32, u64>, after: &HashMap<u32, u64>) {
    for counter in run.events.iter_mut().flat_map(|event| &mut event.counters) {
        let Some(cpu) = counter.cpu else {
            continue;
        };
        if let (Some(before), Some(after)) = (before.get(&cpu), after.get(&cpu)) {
            counter.idle = Some(after.saturating_sub(*before));
        }
    }
}

/// CPU time of this thread. A drain mostly waits for the kernel, which costs nobody anything.
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
