//! Collection: perf events, the programs on them, the count maps they count in, and the sideband beside them.
//!
//! Nothing here knows what an address means; that is the matter of [`crate::resolve`], which in turn knows nothing of
//! perf events. The program calls, in this order: [`Collector::open`], [`Collector::enable`], then
//! [`Collector::records`] often and [`Collector::drain`] rarely, and [`Collector::stop`] once.

pub mod bpf;
pub mod cpu_times;
pub mod cpus;
pub mod drain;
pub mod event;
pub mod limits;
mod map_sizes;
pub mod mapped;
pub mod module_layout;
pub mod modules;
pub mod object;
pub mod ordered;
pub mod overhead;
pub mod perf;
pub mod pid_namespace;
pub mod pmu;
pub mod scope;
pub mod sideband;
pub mod stacks;
mod stream_counts;
pub mod stride;
pub mod task_layout;
pub mod text;
pub mod totals;
pub mod uarch;
pub mod wake;

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use btf_rs::Btf;
use hbbp_ebpf::{EventStats, MAX_EVENTS};
use tokio::sync::Notify;

use crate::record::{Record, Timed};
use crate::snapshot::Loss;
use crate::snapshot::run::{Event, Period};
use crate::streams::{KernelCounts, Quirks};
use cpus::Cpus;
use drain::CountMaps;
use event::{Choice, Source};
use limits::LockedMemory;
pub use modules::ModuleWatch;
use modules::{Modules, module_layout, no_modules};
use object::{Constants, Messages, Object, ProgramLog};
pub use ordered::Parts;
use perf::Perf;
pub use scope::Scope;
use sideband::{Reading, Sideband};
use stacks::Stacks;
use stride::Sampler;
pub use totals::Totals;
use totals::{add_losses, hotplug, read_sample_rate, sum, throttled};
use wake::Wake;

/// What to collect.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whose samples to take.
    pub scope: Scope,
    /// Which events, how often.
    pub choice: Choice,
    /// Whether kernel addresses are kept apart by process.
    pub kernel: KernelCounts,
    /// Capacity of a count map in counts; `None` for a size by the number of CPUs.
    pub map_entries: Option<u32>,
    /// Whether to tell of modules that come and go.
    pub modules: ModuleWatch,
    /// Whether the programs say what they refuse.
    pub messages: Messages,
}

/// A running collection.
pub struct Collector {
    object: Object,
    log: Option<ProgramLog>,
    counts: CountMaps,
    cpus: Arc<Cpus>,
    stacks: Option<Stacks>,
    events: Vec<Sampled>,
    sideband: Sideband,
    modules: Option<Modules>,
    wake: Wake,
    notes: Vec<String>,
    starts_by_exec: bool,
    /// The CPUs that were there at the start.
    online: Vec<u32>,
    /// The limit of samples at the start.
    sample_rate: Option<u64>,
}

/// An event with its counters and the program on them.
struct Sampled {
    source: Source,
    _program: OwnedFd,
    counters: Vec<Sampler>,
}

/// What the samples with branch stacks brought.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StacksSeen {
    /// Too few such samples have arrived to tell, or none is asked for.
    NotYet,
    /// At least one held branches.
    Filled,
    /// All were empty, as on some virtual machines.
    Empty,
}

impl Collector {
    /// Loads the programs and opens the events, disabled; the sideband runs from here on.
    pub fn open(plan: &Plan) -> anyhow::Result<Self> {
        let online = perf::read_online_cpus().context("failed to list the CPUs")?;
        let mut notes = Vec::new();
        let sources = event::choose(&plan.choice)?;
        let with_stacks = sources.iter().filter(|source| source.request.stack.is_some());
        let stack_period = with_stacks.map(shortest_period).min();
        let sizes = map_sizes::choose(online.len(), stack_period, plan.map_entries)?;
        let btf = task_layout::open_btf();
        let layout = module_layout(plan.modules, &btf, &mut notes);
        let mut constants = constants(plan, &btf, &mut notes);
        let repeats_newest;
        (repeats_newest, constants.wrong_paths) = event::quirks();
        constants.module_size = layout.map(|layout| layout.size);
        let mut object = Object::load(constants, sizes)?;
        let log = match plan.messages {
            Messages::Off => None,
            Messages::On => Some(object.take_log()?),
        };
        let counts = CountMaps::open(&mut object, sizes.counts)?;
        let cpus = Arc::new(Cpus::open(&mut object)?);
        let sideband = Sideband::open(&online).with_context(|| no_sideband(online.len()))?;
        for what in sideband.missing() {
            notes.push(format!("the kernel does not report {what}"));
        }
        let modules = layout.and_then(|layout| {
            let modules = Modules::open(&mut object, layout);
            let why = |error| notes.push(no_modules(&format!("{error:#}")));
            modules.map_err(why).ok()
        });
        let told = modules.iter().map(AsFd::as_fd);
        let wake = Wake::on(sideband.descriptors().chain(told))
            .context("failed to wait for records of the kernel")?;
        let quirks = Quirks {
            repeats_newest,
            ..quirks(plan, &sources)
        };
        let stacks = stack_period.map(|_| Stacks::open(&mut object, &cpus, sizes, quirks));
        let stacks = stacks.transpose()?;
        let mut events = Vec::new();
        for (number, source) in sources.into_iter().enumerate() {
            if MAX_EVENTS <= number {
                bail!("too many events in one run (at most {MAX_EVENTS})");
            }
            let program = match source.request.stack {
                Some(_) => object.on_branch(number)?,
                None => object.on_ip(number)?,
            };
            let counters = scope::open_counters(&source, &plan.scope, &online)?;
            for counter in &counters {
                counter
                    .attach(program.as_fd())
                    .context("failed to attach the program to a perf event")?;
            }
            let period = source.varying_period();
            let counters = counters.into_iter().map(|perf| Sampler::new(perf, period));
            events.push(Sampled {
                source,
                _program: program,
                counters: counters.collect(),
            });
        }
        let starts_by_exec = matches!(plan.scope, Scope::Command(_));
        Ok(Self {
            object,
            log,
            counts,
            cpus,
            stacks,
            events,
            sideband,
            modules,
            wake,
            notes,
            starts_by_exec,
            online,
            sample_rate: read_sample_rate(),
        })
    }

    /// A reader of live kernel text, for machines without /proc/kcore.
    pub fn text_window(&mut self) -> anyhow::Result<text::TextWindow> {
        text::TextWindow::open(&mut self.object)
    }

    /// Tells where the kernel changes from one task to the next (`__switch_to_asm` in arch/x86/entry/entry_64.S), start and
    /// length: a branch in there marks a context switch in a stack, and user entries older than that belong to another
    /// process. To be called before [`Self::enable`].
    pub fn tell_switch(&self, switch: (u64, u64)) {
        if let Some(stacks) = &self.stacks {
            stacks.tell_switch(switch);
        }
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
            counter.perf.enable().context("failed to start a perf event")?;
        }
        // An event that cannot have its counter is told at once, not at the end.
        for sampled in &self.events {
            for counter in &sampled.counters {
                if counter
                    .read()
                    .is_err_and(|error| error.kind() == ErrorKind::UnexpectedEof)
                {
                    bail!(
                        "{}; try `--event cpu-clock`",
                        no_counter(&counter.perf, &sampled.source)
                    );
                }
            }
        }
        Ok(())
    }

    /// A descriptor that becomes readable when there are records about kernel text, or very many others.
    pub fn text_events(&self) -> anyhow::Result<OwnedFd> {
        self.wake
            .descriptor()
            .context("failed to wait for records of the kernel")
    }

    /// What happened to processes, mappings and kernel text since the last call, in the order of time.
    pub fn records(&mut self) -> anyhow::Result<Reading> {
        self.wake
            .rest()
            .context("failed to wait for records of the kernel")?;
        if let Some(log) = &mut self.log {
            log.flush();
        }
        let mut reading = self.sideband.read();
        if let Some(modules) = &mut self.modules {
            let told = modules.read()?;
            reading.unread += told.unread;
            reading.records.extend(told.records);
            if 0 < told.lost {
                reading.records.push(Timed {
                    time: 0,
                    record: Record::LostText(told.lost),
                });
            }
            reading.records.sort_by_key(|timed| timed.time);
        }
        Ok(reading)
    }

    /// Counts kernel code apart from now on. Returns whether it could; where not, a drain does it.
    pub fn cut(&mut self) -> anyhow::Result<bool> {
        self.counts.cut(&self.cpus)
    }

    /// Notified when enough streams were counted for a drain; `None` where there are no branch stacks.
    pub fn half_full(&self) -> Option<Arc<Notify>> {
        self.stacks.as_ref().map(Stacks::half_full)
    }

    /// What was counted since the last call, up to each cut and from the last on; user code is all in the first part.
    /// Periods change a little here.
    pub fn drain(&mut self) -> anyhow::Result<Parts> {
        for counter in self.events.iter_mut().flat_map(|event| &mut event.counters) {
            counter
                .vary()
                .context("failed to change the period of a perf event")?;
        }
        self.counts.drain(&self.cpus, self.stacks.as_mut())
    }

    /// Whether the samples of some event carry branch stacks.
    pub fn has_stacks(&self) -> bool {
        self.stacks.is_some()
    }

    /// Whether the samples of the event with this number carry branch stacks.
    pub fn has_stack(&self, number: u32) -> bool {
        let event = usize::try_from(number)
            .ok()
            .and_then(|number| self.events.get(number));
        event.is_some_and(|event| event.source.request.stack.is_some())
    }

    /// What the samples with branch stacks brought so far.
    pub fn stacks_seen(&self) -> StacksSeen {
        let numbers = self.events.iter().zip(0usize..);
        let with_stacks = numbers.filter(|(event, _)| event.source.request.stack.is_some());
        let stats = with_stacks.map(|(_, number)| sum(&self.cpus.stats(number)));
        seen(&stats.fold(EventStats::default(), EventStats::plus))
    }

    /// Stops the events with branch stacks for good; the others go on.
    pub fn stop_stacks(&mut self) -> anyhow::Result<()> {
        let with_stacks = self
            .events
            .iter_mut()
            .filter(|event| event.source.request.stack.is_some());
        for counter in with_stacks.flat_map(|event| &mut event.counters) {
            counter.stop().context("failed to stop a perf event")?;
        }
        Ok(())
    }

    /// Stops sampling. What was counted last is to be drained after this.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        for counter in self.events.iter_mut().flat_map(|event| &mut event.counters) {
            counter.stop().context("failed to stop a perf event")?;
        }
        Ok(())
    }

    /// What it knows of itself, after the last drain.
    pub fn totals(&self) -> anyhow::Result<Totals> {
        let mut totals = Totals::default();
        for (sampled, number) in self.events.iter().zip(0u32..) {
            let by_cpu = self.cpus.stats(number as usize);
            let stats = sum(&by_cpu);
            let full = match sampled.source.request.stack {
                Some(_) => Loss::StacksFull,
                None => Loss::CountsFull,
            };
            totals.losses.add(full, stats.full);
            let stacks = self.stacks.as_ref().map(|stacks| stacks.stats(number));
            add_losses(&mut totals.losses, &stats, &stacks.unwrap_or_default());
            let mut counters = Vec::new();
            for sampler in &sampled.counters {
                match sampler.read() {
                    Ok(mut counter) => {
                        let cpu = counter.cpu.and_then(|cpu| by_cpu.get(cpu as usize));
                        counter.runs = cpu.map(|stats| stats.runs);
                        counters.push(counter);
                    }
                    // What it sampled until then is good; only how much was due is not known.
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                        totals.notes.push(no_counter(&sampler.perf, &sampled.source));
                    }
                    Err(error) => return Err(error).context("failed to read a perf event"),
                }
            }
            totals.events.push(Event {
                name: sampled.source.name.clone(),
                unit: sampled.source.unit,
                near_only: sampled.source.near_only,
                branch_stack: sampled.source.request.stack.is_some(),
                precise: sampled.source.request.precise,
                period: sampled.source.request.period,
                runs: stats.runs,
                counters,
            });
        }
        totals
            .notes
            .extend(hotplug(&self.online, &perf::read_online_cpus()?));
        totals
            .notes
            .extend(throttled(self.sample_rate, read_sample_rate()));
        Ok(totals)
    }
}

/// Why the sideband cannot be opened, as far as that is known.
fn no_sideband(n_cpus: usize) -> String {
    const FAILED: &str = "failed to open the sideband events";
    match LockedMemory::read(n_cpus).lacking() {
        Some(lacking) => format!("{FAILED}: {}: {}", lacking.found, lacking.advice),
        None => format!(
            "{FAILED}: run as root, or grant CAP_PERFMON and CAP_BPF and set kernel.perf_event_paranoid to 1 or less"
        ),
    }
}

/// What the programs must know of this machine; what it does not tell becomes a note.
fn constants(plan: &Plan, btf: &Result<Btf, String>, notes: &mut Vec<String>) -> Constants {
    let exec_id_offset = match btf
        .as_ref()
        .map_err(String::clone)
        .and_then(task_layout::read_exec_id_offset)
    {
        Ok(offset) => Some(offset),
        Err(reason) => {
            notes.push(format!("successive programs of a process share counts: {reason}"));
            None
        }
    };
    let pid_namespace = pid_namespace::read_pid_namespace();
    if pid_namespace.is_some() {
        notes.push(
            "user code of processes outside this container cannot be resolved: start the container in the \
             host PID namespace (docker run --pid=host)"
                .to_owned(),
        );
    }
    Constants {
        exec_id_offset,
        pid_namespace,
        kernel: plan.kernel,
        wrong_paths: false,
        module_size: None,
        messages: plan.messages,
    }
}

/// The least events between two samples, as far as that is known before they run.
const fn shortest_period(source: &Source) -> u64 {
    match source.request.period {
        Period::Fixed(period) => period,
        // The kernel finds one, and no processor takes many more than a thousand million branches a second.
        Period::Frequency(frequency) => {
            let frequency = if frequency == 0 { 1 } else { frequency };
            1_000_000_000 / frequency
        }
    }
}

/// What the stacks of these events are judged by.
fn quirks(plan: &Plan, sources: &[Source]) -> Quirks {
    let near_only = sources.iter().enumerate().filter(|(_, source)| source.near_only);
    Quirks {
        near_only: near_only.fold(0, |all, (number, _)| all | 1 << number),
        kernel: plan.kernel,
        ..Quirks::default()
    }
}

/// What the samples of events with branch stacks brought, by their counters.
const fn seen(stats: &EventStats) -> StacksSeen {
    /// A stack may be empty by chance, and what is done about empty ones is done for the rest of the run.
    const ENOUGH: u64 = 16;

    if stats.no_stack < stats.runs {
        StacksSeen::Filled
    } else if stats.runs < ENOUGH {
        StacksSeen::NotYet
    } else {
        StacksSeen::Empty
    }
}

fn no_counter(perf: &Perf, source: &Source) -> String {
    let place = perf
        .cpu()
        .map_or_else(|| "a task".to_owned(), |cpu| format!("CPU {cpu}"));
    format!(
        "event {} lost its counter on {place} to another user of the PMU",
        source.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_empty_stacks_are_no_reason_to_give_up() {
        let stats = |runs, no_stack| EventStats {
            runs,
            no_stack,
            ..EventStats::default()
        };
        assert_eq!(seen(&stats(0, 0)), StacksSeen::NotYet);
        assert_eq!(seen(&stats(3, 3)), StacksSeen::NotYet);
        assert_eq!(seen(&stats(3, 2)), StacksSeen::Filled);
        assert_eq!(seen(&stats(90, 90)), StacksSeen::Empty);
    }
}
