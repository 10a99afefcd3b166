//! A measurement that runs: how it is opened and started, and how what was measured is taken out of it.

use std::mem;
use std::path::Path;
use std::time::Duration;

use procfs::{Current as _, LoadAverage};

use super::bursts::UserBursts;
use super::changes::Changes;
use super::intervals::Intervals;
use super::tasks::Followed;
use crate::advice::{notes_in_words, words};
use crate::cmd::budget::Budget;
use crate::cmd::environment::why_no_executions;
use crate::cmd::interval::Counts;
use hbbp_collect::bpf::code_of_programs;
use hbbp_collect::cpu_times::CpuTimes;
use hbbp_collect::overhead::{read_own_cpu, read_own_memory, reset_own_memory};
use hbbp_collect::{Collector, Plan, Scope, StacksSeen};
use hbbp_elf::parser::Parser;
use hbbp_model::slices::Slices;
use hbbp_model::snapshot::{Loss, Losses, Run, Snapshot};
use hbbp_resolve::Resolver;
use hbbp_resolve::clock::{now, since_epoch};
use hbbp_resolve::kernel::live_symbols::KernelFacts;
use hbbp_resolve::kernel::open::open_kernel_space;
use hbbp_resolve::kernel::reader::ReadKernel;
use hbbp_resolve::kernel::space::TextHistory;
use hbbp_resolve::user::haste::Haste;
use hbbp_resolve::user::proc_scan::read_processes;

/// Time between two drains. Long, because each drain costs samples on its CPU; short enough to notice soon that text
/// changed without a record.
pub(crate) const DRAIN_EVERY: Duration = Duration::from_secs(2);

/// The same where slices are distinguished, whose counts fill the maps sooner.
const DRAIN_SLICES_EVERY: Duration = Duration::from_millis(500);

/// Memory that the counts of a recording may take in addition to those of its slices: an hour has many drains.
const COUNTS_BESIDE_SLICES: usize = 32 << 20;

/// Time between two reads of the sideband. The files of a process can be opened only while it lives.
pub(crate) const SIDEBAND_EVERY: Duration = Duration::from_millis(50);

/// How long the end of an interval waits for the functions of files that are still being parsed, all together: rings are not
/// read meanwhile.
const INTERVAL_WAIT: Duration = Duration::from_millis(200);

/// The same at the end of the measurement, when nothing is measured any more, on a machine with a CPU to spare. On a busy one
/// it is longer by the tasks that share a CPU, as that is the part of one that parsing gets.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// The most that it is multiplied by.
const MOST_CROWDED: u32 = 5;

/// Note if kernel text is read once.
const TEXT_ONCE: &str = "kernel text was read once, at the end (--text-once): samples in code patched or \
                         unloaded earlier are misattributed or unresolved";

/// Note if branch stacks are empty.
const EMPTY_STACKS: &str = "branch stacks are empty on this machine, as on some virtual machines: the mix \
                            uses instruction samples only";

/// Note that an interval was longer than requested. Its duration says how much.
const LENGTHENED: &str = "to keep the CPU budget, intervals were longer than asked for";

/// What becomes of processes that have ended when a profile is taken ([`Snapshot::join_ended`]).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EndedProcesses {
    /// Many of one command name and cgroup are one.
    Together,
    /// Each is there by itself.
    Apart,
}

/// The time of the next profile, from the last one on.
#[derive(Debug)]
pub(super) struct SinceLast {
    /// When sampling was started.
    started: u64,
    /// Times of the CPUs at that time; `None` if these say nothing about what is measured.
    cpu_times: Option<CpuTimes>,
    /// CPU time of this program up to the last profile, in ns.
    own_cpu: u64,
    /// Malformed records.
    pub(super) unread: u64,
}

/// A running measurement: collector, resolver, and the intervals since the last drain.
pub(crate) struct Session {
    pub(crate) collector: Collector,
    pub(super) resolver: Resolver,
    /// Parses the files of processes.
    pub(super) parser: Parser,
    /// Facts of the run, as far as they are known.
    pub(super) run: Run,
    /// What is known of the time since the last profile.
    pub(super) since_last: SinceLast,
    /// The intervals since the last drain.
    pub(super) intervals: Intervals,
    /// Text that changed, and when that is looked at.
    pub(super) changes: Changes,
    /// Whether branch stacks have entries.
    pub(crate) stacks: StacksSeen,
    /// `None` if none was asked for, or it cannot be kept.
    pub(crate) budget: Option<Budget>,
    /// What becomes of processes that have ended when a profile is taken.
    pub(crate) ended: EndedProcesses,
    /// The tasks that events follow, where they do.
    pub(super) followed: Option<Followed>,
    /// `None` where user code is not followed.
    pub(crate) bursts: Option<UserBursts>,
}

/// What is known when sampling has stopped: the facts of the run, what the programs lost, and the last counts.
struct Closed {
    run: Run,
    losses: Losses,
    counts: Counts,
}

impl Session {
    /// Opens the events and the text of what runs; nothing is sampled yet. `image` is the static image of the kernel, and the
    /// parser is that of the files of processes. What a reader should know becomes a note of the run.
    pub(crate) fn open(
        plan: &Plan,
        text: TextHistory,
        image: Option<&Path>,
        cpu_budget: Option<u32>,
        parser: &Parser,
        mut run: Run,
    ) -> anyhow::Result<Self> {
        let mut collector = Collector::open(plan)?;
        run.notes.extend(collector.notes().iter().cloned());
        if plan.choice.event.is_none() && !collector.counts_executions() {
            run.without_executions = why_no_executions();
        }
        let window = collector.text_window();
        let probe = window
            .ok()
            .map(|window| Box::new(move |at, out: &mut [u8]| window.read(at, out)) as Box<ReadKernel>);
        let facts = KernelFacts {
            release: &run.host.kernel_release,
            modules: collector.module_layout(),
            compiled: collector.compiled_layout(),
            programs: &code_of_programs(),
        };
        let (mut kernel, notes) = open_kernel_space(probe, image, &facts)?;
        kernel.keep(text);
        if collector.has_stacks()
            && let Some((start, len)) = kernel.switch()
        {
            collector.tell_switch(start, len);
        }
        run.notes.extend(notes_in_words(notes));
        if text == TextHistory::Once {
            run.notes.push(TEXT_ONCE.to_owned());
        }
        let mut resolver = Resolver::parsing(kernel, &read_processes(), parser);
        resolver.count_threads(plan.threads);
        if collector.has_slices() {
            resolver.hold_counts(COUNTS_BESIDE_SLICES);
        }
        let budget = cpu_budget.and_then(|share| {
            let budget = Budget::open(share, run.host.n_cpus, &collector, parser);
            run.notes.extend(budget.as_ref().err().map(ToString::to_string));
            budget.ok()
        });
        // Counters of tasks and cgroups stop while none of these run: that they are idle says nothing.
        let whole_cpus = matches!(plan.scope, Scope::System | Scope::Cpus(_));
        Ok(Self {
            collector,
            resolver,
            parser: parser.clone(),
            run,
            since_last: SinceLast {
                started: now(),
                cpu_times: whole_cpus.then(CpuTimes::read),
                own_cpu: 0,
                unread: 0,
            },
            intervals: Intervals::from(now()),
            changes: Changes::of(text),
            stacks: StacksSeen::NotYet,
            budget,
            ended: EndedProcesses::Apart,
            followed: Followed::of(&plan.scope),
            bursts: None,
        })
    }

    /// Has user code followed, by an event after all others.
    pub(crate) fn follow_bursts(&mut self, scope: &Scope) -> anyhow::Result<()> {
        let event = u32::try_from(self.collector.clock_periods().len())?;
        self.bursts = Some(UserBursts::open(scope, event, self.run.host.n_cpus)?);
        Ok(())
    }

    /// Follows the bursts that have begun.
    pub(crate) fn follow(&mut self) {
        if let Some(bursts) = &mut self.bursts {
            bursts.follow();
        }
    }

    /// Sets what notifies that the remainder is to be done soon.
    pub(crate) fn hasten_with(&mut self, haste: Haste) {
        self.resolver.hasten_with(haste);
    }

    /// Factor by which the time between two polls is longer than usual, because of a budget.
    pub(crate) fn pace(&self) -> u32 {
        self.budget.as_ref().map_or(1, Budget::pace)
    }

    /// Factor by which intervals are longer than requested, because of a budget.
    pub(crate) fn lengthening(&self) -> u32 {
        self.budget.as_ref().map_or(1, Budget::lengthening)
    }

    /// Starts sampling; a command's events start by themselves at its exec. [`Self::take`] starts it again.
    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        self.collector.enable()?;
        if let Some(bursts) = &mut self.bursts {
            bursts.start()?;
        }
        self.since_last.started = now();
        self.intervals.start(self.since_last.started);
        self.since_last.cpu_times = self.since_last.cpu_times.take().map(|_| CpuTimes::read());
        self.run.started = since_epoch();
        Ok(())
    }

    /// What was measured since the last call. Sampling is stopped only while the counts are taken out of the maps, so that
    /// all sums close, and goes on before they are resolved.
    pub(crate) fn take(&mut self) -> anyhow::Result<Snapshot> {
        let mut closed = self.close()?;
        if let Some(budget) = &mut self.budget {
            budget.adapt(&mut self.collector, &mut closed.run)?;
        }
        self.start()?;
        self.collector.vary()?;
        self.resolve(&closed.counts);
        self.compare_text()?;
        self.resolver.await_functions(INTERVAL_WAIT);
        let snapshot = self.snapshot(closed);
        reset_own_memory();
        Ok(snapshot)
    }

    /// Stops sampling, and returns what was measured since the last profile was taken. Events and maps stay open until this is
    /// dropped, so that what was measured can be saved before.
    pub(crate) fn finish(&mut self) -> anyhow::Result<Snapshot> {
        let closed = self.end()?;
        Ok(self.snapshot(closed))
    }

    /// The same, with what was counted in each slice where these are distinguished.
    pub(crate) fn finish_with_slices(mut self) -> anyhow::Result<(Snapshot, Option<Slices>)> {
        let snapshot = self.finish()?;
        Ok((snapshot, self.collector.take_slices()))
    }

    /// Stops sampling, and resolves what was counted last.
    fn end(&mut self) -> anyhow::Result<Closed> {
        let mut closed = self.close()?;
        if let Some(budget) = &mut self.budget {
            budget.account(&self.collector, &mut closed.run);
        }
        self.resolve(&closed.counts);
        self.compare_text()?;
        self.resolver.catch_up();
        self.resolver
            .await_functions(LAST_WAIT * crowd(self.run.host.n_cpus));
        Ok(closed)
    }

    /// Stops sampling and takes what was counted last.
    fn close(&mut self) -> anyhow::Result<Closed> {
        self.look_at_stacks()?;
        self.collector.stop()?;
        let duration = now().saturating_sub(self.since_last.started);
        let of_bursts = self.bursts.as_mut().map(UserBursts::stop).transpose()?;
        let counts = self.counts()?;
        let totals = self.collector.take_totals()?;
        let mut run = self.run.clone();
        run.duration = duration;
        run.events = totals.events;
        run.events.extend(of_bursts);
        run.classes = totals.classes;
        run.notes.extend(notes_in_words(totals.notes));
        run.notes.extend(paced(self.pace()));
        run.notes
            .extend((1 < self.lengthening()).then(|| LENGTHENED.to_owned()));
        if self.stacks == StacksSeen::Empty {
            run.note_unmeasured(EMPTY_STACKS.to_owned(), Run::WHOLE);
        }
        let mut losses = totals.losses;
        if let Some(bursts) = &self.bursts {
            bursts.add_losses(&mut losses)?;
            run.notes.push(bursts.note()?);
        }
        let unfinished = self.followed.as_mut().and_then(|tasks| tasks.take_note(&run));
        run.notes.extend(unfinished);
        if let Some(before) = &self.since_last.cpu_times {
            CpuTimes::read().add_since(before, &mut run.events);
        }
        Ok(Closed { run, losses, counts })
    }

    /// Puts together what was resolved, and adds what is known only now.
    fn snapshot(&mut self, closed: Closed) -> Snapshot {
        let together = match self.ended {
            EndedProcesses::Together => self.resolver.ended(),
            EndedProcesses::Apart => Vec::new(),
        };
        let mut snapshot = self.resolver.take(closed.run, words);
        snapshot.join_ended(&together);
        snapshot.losses += &closed.losses;
        snapshot
            .losses
            .add(Loss::SidebandUnread, mem::take(&mut self.since_last.unread));
        let rested = self.budget.as_mut().map_or(0, Budget::take_rested);
        snapshot.losses.add(Loss::RecordsRested, rested);
        snapshot.fit();
        let own_cpu = read_own_cpu().saturating_add(self.parser.spent());
        let before = mem::replace(&mut self.since_last.own_cpu, own_cpu);
        snapshot.run.overhead.cpu = own_cpu.saturating_sub(before);
        snapshot.run.overhead.memory = read_own_memory();
        snapshot
    }

    /// Time between two drains.
    pub(crate) const fn drain_every(&self) -> Duration {
        if self.collector.has_slices() {
            DRAIN_SLICES_EVERY
        } else {
            DRAIN_EVERY
        }
    }
}

/// Tasks that are ready to run, for each CPU (proc_loadavg(5)): at least one.
fn crowd(n_cpus: u32) -> u32 {
    let ready = LoadAverage::current().map_or(0, |load| load.cur);
    ready.div_ceil(n_cpus.max(1)).clamp(1, MOST_CROWDED)
}

/// The note on polls that came less often than usual.
fn paced(pace: u32) -> Option<String> {
    let (records, counts) = (SIDEBAND_EVERY * pace, DRAIN_EVERY * pace);
    (1 < pace).then(|| {
        format!(
            "to keep the CPU budget, records of processes and memory with code were read every {records:?}, and counts every \
             {counts:?}: programs that ran for less may have no text"
        )
    })
}
