//! A running measurement: drains the collector into the resolver, and hands out what was measured: once at the end, or again
//! and again while it goes on. When which of it is done is a matter of [`super::measure`].

mod following;

use std::mem;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, SystemTime};

use procfs::{Current as _, LoadAverage};
use tokio::time::Instant;

use super::budget::Budget;
use super::interval::{raw_chain, raw_interval};
use super::record::EndedProcesses;
use crate::advice::{notes_in_words, words};
use hbbp_collect::bpf::code_of_programs;
use hbbp_collect::chains::Chained;
use hbbp_collect::cpu_times::CpuTimes;
use hbbp_collect::overhead::{read_own_cpu, read_own_memory, reset_own_memory};
use hbbp_collect::{Collector, Parts, Plan, Scope, StacksSeen};
use hbbp_elf::parser::Parser;
use hbbp_model::slices::Slices;
use hbbp_model::snapshot::{Loss, Losses, Run, Snapshot};
use hbbp_resolve::Resolver;
use hbbp_resolve::kernel::live_symbols::KernelFacts;
use hbbp_resolve::kernel::open::open_kernel_space;
use hbbp_resolve::kernel::reader::ReadKernel;
use hbbp_resolve::kernel::space::TextHistory;
use hbbp_resolve::user::haste::Haste;
use hbbp_resolve::user::proc_scan::read_processes;

/// Time between two drains. Long, because each drain costs samples on its CPU; short enough to notice soon that text
/// changed without a record.
pub(super) const DRAIN_EVERY: Duration = Duration::from_secs(2);

/// The same where slices are told apart, whose counts fill the maps sooner.
const DRAIN_SLICES_EVERY: Duration = Duration::from_millis(500);

/// Memory that the counts of a recording may take beside those of its slices: an hour has many drains.
const COUNTS_BESIDE_SLICES: usize = 32 << 20;

/// Time between two reads of the sideband. The files of a process can be opened only while it lives.
pub(super) const SIDEBAND_EVERY: Duration = Duration::from_millis(50);

/// How long the end of an interval waits for the functions of files that are still being parsed, all together: rings are not
/// read meanwhile.
const INTERVAL_WAIT: Duration = Duration::from_millis(200);

/// The same at the end of the measurement, when nothing is measured any more, on a machine with a CPU to spare. On a busy one
/// it is longer by the tasks that share a CPU, as that is the part of one that parsing gets.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// The most that it is multiplied by.
const MOST_CROWDED: u32 = 5;

/// Minimum gap between two extra drains triggered by text patches, as a multiple of the duration of the last one: they take
/// at most 5 % of the time, however often text is patched. Other drains do not count, so that the first patch is never kept
/// waiting for what a drain took that read the symbols of programs.
const DRAIN_GAP: u32 = 19;

/// The same for memory with code that changed, as it does all the time where compilers run: at most 1 % of the time.
const MEMORY_DRAIN_GAP: u32 = 99;

/// Note if kernel text is read once.
const TEXT_ONCE: &str = "kernel text was read once, at the end (--text-once): samples in code patched or \
                         unloaded earlier are misattributed or unresolved";

/// Note if branch stacks are empty.
const EMPTY_STACKS: &str = "branch stacks are empty on this machine, as on some virtual machines: the mix \
                            uses instruction samples only";

/// A running measurement: collector, resolver, and the intervals since the last drain.
pub(super) struct Session {
    pub(super) collector: Collector,
    resolver: Resolver,
    /// Parses the files of processes.
    parser: Parser,
    /// Facts of the run, as far as they are known.
    run: Run,
    /// When sampling was started.
    started: u64,
    /// Times of the CPUs at that time; `None` where these say nothing about what is measured.
    cpu_times: Option<CpuTimes>,
    /// CPU time of this program up to the last profile, in ns.
    own_cpu: u64,
    /// Start of the current interval.
    began: u64,
    /// Earlier intervals since the last drain.
    split: Vec<Range<u64>>,
    /// When to split the interval because of a patch.
    pub(super) patched: Option<Instant>,
    /// Whether user text was patched, too: then a drain does it, as only kernel code is counted apart.
    user_patched: bool,
    /// Earliest time of an extra drain because memory with code changed.
    next_memory_drain: Instant,
    /// Earliest time of an extra drain because of a patch.
    next_drain: Instant,
    /// Earliest time of the next comparison of kernel text.
    next_comparison: Instant,
    /// Whether kernel text is followed.
    text: TextHistory,
    /// Malformed records.
    unread: u64,
    /// Whether branch stacks have entries.
    pub(super) stacks: StacksSeen,
    /// `None` where none was asked for, or it cannot be kept.
    pub(super) budget: Option<Budget>,
    /// What becomes of processes that have ended when a profile is taken.
    pub(super) ended: EndedProcesses,
}

/// What was counted, part by part in the order of time.
struct Counts {
    times: Vec<Range<u64>>,
    parts: Parts,
    chains: Vec<Chained>,
    /// See [`Collector::clock_periods`].
    clock_periods: Vec<Option<u64>>,
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
    pub(super) fn open(
        plan: &Plan,
        text: TextHistory,
        image: Option<&Path>,
        (cpu_budget, parser): (Option<u32>, &Parser),
        mut run: Run,
    ) -> anyhow::Result<Self> {
        let mut collector = Collector::open(plan)?;
        run.notes.extend(collector.notes().iter().cloned());
        let window = collector.text_window();
        let probe = window
            .ok()
            .map(|window| Box::new(move |at, out: &mut [u8]| window.read(at, out)) as Box<ReadKernel>);
        let facts = KernelFacts {
            release: &run.kernel_release,
            modules: collector.module_layout(),
            compiled: collector.compiled_layout(),
            programs: &code_of_programs(),
        };
        let (mut kernel, notes) = open_kernel_space(probe, image, &facts)?;
        kernel.keep(text);
        if collector.has_stacks()
            && let Some(switch) = kernel.switch()
        {
            collector.tell_switch(switch);
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
            let budget = Budget::open(share, run.n_cpus, &collector, parser);
            run.notes.extend(budget.as_ref().err().map(ToString::to_string));
            budget.ok()
        });
        // Counters of tasks and cgroups stop while none of these run: that they are idle says nothing.
        let whole_cpus = matches!(plan.scope, Scope::System | Scope::Cpus(_));
        let opened = Instant::now();
        Ok(Self {
            collector,
            resolver,
            parser: parser.clone(),
            run,
            cpu_times: whole_cpus.then(CpuTimes::read),
            own_cpu: 0,
            started: now(),
            began: now(),
            split: Vec::new(),
            patched: None,
            user_patched: false,
            next_memory_drain: opened,
            next_drain: opened,
            next_comparison: opened,
            text,
            unread: 0,
            stacks: StacksSeen::NotYet,
            budget,
            ended: EndedProcesses::Apart,
        })
    }

    /// Sets what tells that the rest is to be done soon.
    pub(super) fn hasten_with(&mut self, haste: Haste) {
        self.resolver.hasten_with(haste);
    }

    /// By what the time between two looks is longer than usual, because of a budget.
    pub(super) fn pace(&self) -> u32 {
        self.budget.as_ref().map_or(1, Budget::pace)
    }

    /// Starts sampling; a command's events start by themselves at its exec. [`Self::take`] starts it again.
    pub(super) fn start(&mut self) -> anyhow::Result<()> {
        self.collector.enable()?;
        self.started = now();
        self.began = self.started;
        self.cpu_times = self.cpu_times.take().map(|_| CpuTimes::read());
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        self.run.started = u64::try_from(since_epoch.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX);
        Ok(())
    }

    /// What was measured since the last call. Sampling stands still only while the counts are taken out of the maps, so that
    /// all sums close, and goes on before they are resolved.
    pub(super) fn take(&mut self) -> anyhow::Result<Snapshot> {
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

    /// Stops sampling, and returns what was measured since the last profile was taken.
    pub(super) fn finish(self) -> anyhow::Result<Snapshot> {
        Ok(self.finish_with_slices()?.0)
    }

    /// The same, with what was counted in each slice where these are told apart.
    pub(super) fn finish_with_slices(mut self) -> anyhow::Result<(Snapshot, Option<Slices>)> {
        let closed = self.end()?;
        let snapshot = self.snapshot(closed);
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
        self.resolver.await_functions(LAST_WAIT * crowd(self.run.n_cpus));
        Ok(closed)
    }

    /// Stops sampling and takes what was counted last.
    fn close(&mut self) -> anyhow::Result<Closed> {
        self.look_at_stacks()?;
        self.collector.stop()?;
        let duration = now().saturating_sub(self.started);
        let counts = self.counts()?;
        let totals = self.collector.take_totals()?;
        let mut run = self.run.clone();
        run.duration = duration;
        run.events = totals.events;
        run.classes = totals.classes;
        run.notes.extend(notes_in_words(totals.notes));
        run.notes.extend(paced(self.pace()));
        if self.stacks == StacksSeen::Empty {
            run.notes.push(EMPTY_STACKS.to_owned());
        }
        if let Some(before) = &self.cpu_times {
            CpuTimes::read().add_since(before, &mut run.events);
        }
        Ok(Closed {
            run,
            losses: totals.losses,
            counts,
        })
    }

    /// Puts together what was resolved, and adds what is known only now.
    fn snapshot(&mut self, closed: Closed) -> Snapshot {
        let together = match self.ended {
            EndedProcesses::Together => self.resolver.ended(),
            EndedProcesses::Apart => Vec::new(),
        };
        let mut snapshot = self.resolver.take(closed.run, words);
        snapshot.join_ended(&together);
        for (loss, n) in closed.losses.iter().filter_map(|(_, n, loss)| Some((loss?, n))) {
            snapshot.losses.add(loss, n);
        }
        snapshot
            .losses
            .add(Loss::SidebandUnread, mem::take(&mut self.unread));
        let rested = self.budget.as_mut().map_or(0, Budget::take_rested);
        snapshot.losses.add(Loss::RecordsRested, rested);
        snapshot.fit();
        let own_cpu = read_own_cpu().saturating_add(self.parser.spent());
        let before = mem::replace(&mut self.own_cpu, own_cpu);
        snapshot.run.own_cpu = own_cpu.saturating_sub(before);
        snapshot.run.own_memory = read_own_memory();
        snapshot
    }

    /// Time between two drains.
    pub(super) const fn drain_every(&self) -> Duration {
        if self.collector.has_slices() {
            DRAIN_SLICES_EVERY
        } else {
            DRAIN_EVERY
        }
    }

    /// Splits the interval, so that kernel counts before and after a patch are separate.
    pub(super) fn split(&mut self) -> anyhow::Result<()> {
        if !self.user_patched && self.collector.cut()? {
            let end = now();
            self.split.push(self.began..end);
            self.began = end;
            self.patched = None;
        } else if self.next_drain <= Instant::now() {
            let start = own_time();
            self.drain()?;
            let cost = own_time().saturating_sub(start);
            self.next_drain = Instant::now() + DRAIN_GAP * cost;
            self.next_memory_drain = Instant::now() + MEMORY_DRAIN_GAP * cost;
        } else {
            self.patched = Some(self.next_drain);
        }
        Ok(())
    }

    pub(super) fn drain(&mut self) -> anyhow::Result<()> {
        // First, so that a period that changes by much is not changed by little as well: each change loses half a period.
        self.collector.share_out()?;
        self.collector.vary()?;
        let counts = self.counts()?;
        self.resolve(&counts);
        Ok(())
    }

    /// Takes out what was counted since the last time; all records of that time have been applied then.
    fn counts(&mut self) -> anyhow::Result<Counts> {
        let parts = self.collector.drain()?;
        let chains = self.collector.drain_chains()?;
        let end = now();
        self.read_sideband()?;
        self.split.push(self.began..end);
        self.began = end;
        self.patched = None;
        self.user_patched = false;
        Ok(Counts {
            times: mem::take(&mut self.split),
            parts,
            chains,
            clock_periods: self.collector.clock_periods(),
        })
    }

    fn resolve(&mut self, counts: &Counts) {
        let chains = counts.chains.iter();
        let chains = chains.map(|chain| raw_chain(chain, &counts.clock_periods));
        self.resolver.chained(chains);
        let has_stack = |event| self.collector.has_stack(event);
        let times = counts.times.iter().cloned();
        let intervals = times
            .zip(counts.parts.iter())
            .map(|(time, part)| raw_interval(time, part, has_stack, &counts.clock_periods));
        self.resolver.drained(intervals.collect());
    }

    /// Checks whether branch stacks have entries, until that is known; empty ones are no longer sampled.
    pub(super) fn look_at_stacks(&mut self) -> anyhow::Result<()> {
        if self.stacks == StacksSeen::NotYet {
            self.stacks = self.collector.stacks_seen();
            if self.stacks == StacksSeen::Empty {
                self.collector.stop_stacks()?;
            }
        }
        Ok(())
    }
}

/// Tasks that are ready to run, for each CPU (proc_loadavg(5)): at least one.
fn crowd(n_cpus: u32) -> u32 {
    let ready = LoadAverage::current().map_or(0, |load| load.cur);
    ready.div_ceil(n_cpus.max(1)).clamp(1, MOST_CROWDED)
}

/// What is to be said where looks came less often than usual.
fn paced(pace: u32) -> Option<String> {
    let (records, counts) = (SIDEBAND_EVERY * pace, DRAIN_EVERY * pace);
    (1 < pace).then(|| {
        format!(
            "to keep the CPU budget, records of processes and memory with code were read every {records:?}, and counts every \
             {counts:?}: programs that ran for less may have no text"
        )
    })
}

/// CPU time of this thread. A drain mostly waits for the kernel, which costs no CPU time.
fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Now in ns of CLOCK_MONOTONIC.
pub(super) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}
