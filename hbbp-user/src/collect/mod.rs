//! Collection: perf events, the programs on them, the banks they count in, and the sideband beside them.
//!
//! Nothing here knows what an address means; that is the matter of [`crate::resolve`], which in turn knows nothing of
//! perf events. The program calls, in this order: [`Collector::open`], [`Collector::enable`], then
//! [`Collector::records`] often and [`Collector::drain`] rarely, and [`Collector::stop`] once.

pub mod bpf;
pub mod drain;
pub mod event;
pub mod object;
pub mod own_cost;
pub mod perf;
pub mod sideband;
pub mod task_layout;
pub mod text;

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use aya::maps::{MapData, PerCpuArray};
use hbbp_ebpf::{CountKey, EventStats, MAX_EVENTS, Tally, name};

use crate::snapshot::run::{Counter, Event};
use crate::snapshot::{Loss, Losses};
use drain::Banks;
use event::{Choice, Source};
use object::{Constants, KernelCounts, Object};
use perf::{Perf, Target};
use sideband::{Reading, Sideband};

/// What to collect.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whose samples to take.
    pub scope: Scope,
    /// Which events, how often.
    pub choice: Choice,
    /// Whether kernel addresses are kept apart by process.
    pub kernel: KernelCounts,
    /// Room of a bank in counts; `None` for a size by the number of CPUs.
    pub map_entries: Option<u32>,
}

/// Whose samples to take.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Scope {
    /// Everything that runs.
    System,
    /// Everything that runs on these CPUs.
    Cpus(Vec<u32>),
    /// One process and what it creates.
    Process(u32),
    /// One process and what it creates, from its next exec on.
    Command(u32),
    /// A cgroup, by its folder.
    Cgroup(PathBuf),
}

/// A running collection.
pub struct Collector {
    object: Object,
    banks: Banks,
    stats: PerCpuArray<MapData, EventStats>,
    events: Vec<Sampled>,
    sideband: Sideband,
    notes: Vec<String>,
    starts_by_exec: bool,
}

/// An event with its counters and the program on them.
struct Sampled {
    source: Source,
    _program: OwnedFd,
    counters: Vec<Perf>,
}

/// What a collection knows of itself when it has stopped.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// The events with what the kernel counted.
    pub events: Vec<Event>,
    /// Samples that reached a program and could not be counted.
    pub losses: Losses,
}

/// Counts of a bank for each CPU: two drain intervals of a thousand samples a second, all at different addresses.
const ENTRIES_PER_CPU: u32 = 8192;
/// The smallest and the largest bank that is chosen by itself: 1.6 MB and 100 MB of kernel memory.
const ENTRIES_RANGE: (u32, u32) = (1 << 14, 1 << 20);

impl Collector {
    /// Loads the programs and opens the events, disabled; the sideband runs from here on.
    pub fn open(plan: &Plan) -> anyhow::Result<Self> {
        let online = perf::read_online_cpus().context("failed to list the CPUs")?;
        let mut notes = Vec::new();
        let exec_id_offset = task_layout::read_exec_id_offset()
            .map_err(|reason| {
                notes.push(format!(
                    "an exec within a process is not told apart by count: {reason}"
                ))
            })
            .ok();
        let mut object = Object::load(Constants {
            exec_id_offset,
            kernel: plan.kernel,
        })?;
        let n_cpus = u32::try_from(online.len()).unwrap_or(u32::MAX);
        let (least, most) = ENTRIES_RANGE;
        let by_cpus = n_cpus.saturating_mul(ENTRIES_PER_CPU).clamp(least, most);
        let banks = Banks::create(&mut object, plan.map_entries.unwrap_or(by_cpus))?;
        let stats = PerCpuArray::try_from(object.take_map(name::EVENT_STATS)?)?;

        let sideband = Sideband::open(&online).context(
            "failed to open the events that tell about processes; the tool needs root, or CAP_PERFMON and \
             CAP_BPF with kernel.perf_event_paranoid at most 1",
        )?;
        for what in sideband.missing() {
            notes.push(format!("this kernel does not tell about {what}"));
        }
        let mut events = Vec::new();
        for (number, source) in event::choose(&plan.choice)?.into_iter().enumerate() {
            if MAX_EVENTS <= number {
                bail!("more than {MAX_EVENTS} events in one run");
            }
            let program = object.on_ip(number)?;
            let counters = open_counters(&source, &plan.scope, &online)?;
            for counter in &counters {
                counter
                    .attach(program.as_fd())
                    .context("failed to attach the program to a perf event")?;
            }
            events.push(Sampled {
                source,
                _program: program,
                counters,
            });
        }
        let starts_by_exec = matches!(plan.scope, Scope::Command(_));
        Ok(Self {
            object,
            banks,
            stats,
            events,
            sideband,
            notes,
            starts_by_exec,
        })
    }

    /// A reader of live kernel text, for machines without /proc/kcore.
    pub fn text_window(&mut self) -> anyhow::Result<text::TextWindow> {
        text::TextWindow::open(&mut self.object)
    }

    /// What the reader of the report should know about this collection.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Starts sampling; a command's events start by themselves at its exec.
    pub fn enable(&self) -> anyhow::Result<()> {
        if self.starts_by_exec {
            return Ok(());
        }
        for counter in self.events.iter().flat_map(|event| &event.counters) {
            counter.enable().context("failed to start a perf event")?;
        }
        Ok(())
    }

    /// What happened to processes and mappings since the last call.
    pub fn records(&mut self) -> Reading {
        self.sideband.read()
    }

    /// What was counted since the last call.
    pub fn drain(&mut self) -> anyhow::Result<Vec<(CountKey, Tally)>> {
        self.banks.drain()
    }

    /// Stops sampling. The last bank must be drained after this.
    pub fn stop(&mut self) -> anyhow::Result<Totals> {
        for counter in self.events.iter().flat_map(|event| &event.counters) {
            counter.disable().context("failed to stop a perf event")?;
        }
        let mut totals = Totals::default();
        for (number, sampled) in self.events.iter().enumerate() {
            let by_cpu = self
                .stats
                .get(&u32::try_from(number)?, 0)
                .context("failed to read the counters")?;
            let stats = by_cpu
                .iter()
                .copied()
                .fold(EventStats::default(), EventStats::plus);
            totals.losses.add(Loss::CountsFull, stats.full);
            totals.losses.add(Loss::CountsBusy, stats.busy);
            totals.losses.add(Loss::CountsRefused, stats.refused);
            totals.losses.add(Loss::NoBank, stats.no_bank);
            let counters = sampled.counters.iter().map(|perf| {
                let mut counter = read_counter(perf, &sampled.source)?;
                let cpu = perf.cpu().and_then(|cpu| by_cpu.get(cpu as usize));
                counter.runs = cpu.map(|stats| stats.runs);
                Ok(counter)
            });
            totals.events.push(Event {
                name: sampled.source.name.clone(),
                unit: sampled.source.unit,
                branch_stack: false,
                precise: sampled.source.request.precise,
                period: sampled.source.request.period,
                runs: stats.runs,
                counters: counters.collect::<anyhow::Result<_>>()?,
            });
        }
        Ok(totals)
    }
}

fn read_counter(perf: &Perf, source: &Source) -> anyhow::Result<Counter> {
    perf.read().with_context(|| {
        let place = perf
            .cpu()
            .map_or_else(|| "a task".to_owned(), |cpu| format!("CPU {cpu}"));
        format!(
            "the event {} lost its counter on {place}: another user of the PMU holds it",
            source.name
        )
    })
}

fn open_counters(source: &Source, scope: &Scope, online: &[u32]) -> anyhow::Result<Vec<Perf>> {
    let refused = |place: String| {
        let name = &source.name;
        move || {
            format!("the kernel refused the event {name} on {place}; `hbbp-sys check` says what it allows")
        }
    };
    let has_event = |cpu: &u32| source.cpus.is_empty() || source.cpus.contains(cpu);
    let on_cpus = |cpus: &[u32]| -> anyhow::Result<Vec<Perf>> {
        let open = |cpu: &u32| {
            Perf::open(&source.request, &Target::Cpu(*cpu)).with_context(refused(format!("CPU {cpu}")))
        };
        cpus.iter().filter(|cpu| has_event(cpu)).map(open).collect()
    };
    match scope {
        Scope::System => on_cpus(online),
        Scope::Cpus(cpus) => {
            if let Some(cpu) = cpus.iter().find(|cpu| !online.contains(cpu)) {
                bail!("CPU {cpu} is not online; online are {online:?}");
            }
            on_cpus(cpus)
        }
        Scope::Process(pid) => read_tasks(*pid)?
            .into_iter()
            .map(|tid| {
                Perf::open(&source.request, &Target::Task(tid)).with_context(refused(format!("task {tid}")))
            })
            .collect(),
        Scope::Command(pid) => {
            let target = Target::TaskFromExec(*pid);
            Ok(vec![
                Perf::open(&source.request, &target).with_context(refused("the command".to_owned()))?,
            ])
        }
        Scope::Cgroup(path) => {
            let folder =
                File::open(path).with_context(|| format!("failed to open the cgroup {}", path.display()))?;
            let open = |cpu: &u32| {
                Perf::open(&source.request, &Target::Cgroup(folder.as_fd(), *cpu))
                    .with_context(refused(format!("the cgroup {}", path.display())))
            };
            online.iter().filter(|cpu| has_event(cpu)).map(open).collect()
        }
    }
}

/// The tasks of a process. Those it creates later are followed by the kernel.
fn read_tasks(pid: u32) -> anyhow::Result<Vec<u32>> {
    let folder = format!("/proc/{pid}/task");
    let entries = std::fs::read_dir(&folder).map_err(|_| anyhow!("there is no process {pid}"))?;
    let tasks = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(tasks.collect())
}
