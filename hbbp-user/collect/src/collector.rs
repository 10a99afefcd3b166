//! A collection: everything that is open while a run is measured.

mod classes;
mod hotplug;

use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::Context as _;
use tokio::sync::Notify;

use super::btf::Btf;
use super::chains::{Chained, Chains};
use super::class_pmus::open_classes;
use super::classes::ClassCounters;
use super::counters::Counters;
use super::counters::StacksSeen;
use super::cpus::Cpus;
use super::drain::CountMaps;
use super::hotplug::Online;
use super::limits::LockedMemory;
use super::module_layout::read_compiled_layout;
use super::modules::ModuleWatch;
use super::modules::{Modules, module_layout, no_modules};
use super::object::{Constants, Messages, Object, ProgramLog};
use super::ordered::Parts;
use super::overhead::Runs;
use super::plan::Plan;
use super::plan::{constants, event_count_offset, in_slices, quirks, shortest_stack_period};
use super::records::Records;
use super::scope::Scope;
use super::sideband::{Reading, Sideband};
use super::source::counting;
use super::stacks::Stacks;
use super::totals::Totals;
use super::totals::{read_sample_rate, throttled};
use super::{cpu_list, event, map_sizes, text};
use hbbp_model::record::{CompiledLayout, ModuleLayout};
use hbbp_model::slices::Slices;
use hbbp_model::streams::Quirks;

/// A running collection.
pub struct Collector {
    object: Object,
    log: Option<ProgramLog>,
    counted: Counted,
    counters: Counters,
    classes: Vec<ClassCounters>,
    records: Records,
    /// How the kernel describes modules, and compiled programs.
    layouts: (Option<ModuleLayout>, Option<CompiledLayout>),
    notes: Vec<String>,
    starts_by_exec: bool,
    scope: Scope,
    online: Online,
    /// The limit of samples at the start.
    sample_rate: Option<u64>,
}

/// What the programs counted.
struct Counted {
    maps: CountMaps,
    cpus: Arc<Cpus>,
    stacks: Option<Stacks>,
    chains: Option<Chains>,
}

impl Collector {
    /// Loads the programs and opens the events, disabled; the sideband runs from here on.
    pub fn open(plan: &Plan) -> anyhow::Result<Self> {
        let online = cpu_list::read_online().context("failed to list the CPUs")?;
        let mut notes = Vec::new();
        let sources = event::choose(&plan.choice)?;
        let stack_period = shortest_stack_period(&sources);
        let sizes = map_sizes::choose(online.len(), stack_period, plan.map_entries, plan.choice.callers)?;
        let btf = Btf::open();
        let layout = module_layout(plan.modules, &btf, &mut notes);
        let followed = layout.filter(|_| plan.modules == ModuleWatch::Told);
        let (repeats_newest, wrong_paths) = event::quirks();
        let constants = Constants {
            wrong_paths,
            module_size: followed.map(|layout| layout.size),
            slices: plan.choice.slices.map(|cut| (cut, counting(&sources))),
            event_count_offset: event_count_offset(plan, &btf, &mut notes),
            ..constants(plan, &btf, &mut notes)
        };
        let mut object = Object::load(constants, sizes)?;
        let log = (plan.messages == Messages::On)
            .then(|| object.take_log())
            .transpose()?;
        let (slices, keyed) = in_slices(&plan.choice);
        let maps = CountMaps::open(&mut object, sizes.counts, slices)?;
        let cpus = Arc::new(Cpus::open(&mut object, sizes.places, &online)?);
        let sideband = Sideband::open(&online).with_context(|| no_sideband(online.len()))?;
        let missing = sideband.missing().iter();
        notes.extend(missing.map(|what| format!("the kernel does not report {what}")));
        let modules = followed.and_then(|layout| open_modules(&mut object, layout, &mut notes));
        let records = Records::awaited(sideband, modules)?;
        let quirks = Quirks {
            repeats_newest,
            ..quirks(plan, &sources)
        };
        let open_stacks = |_| Stacks::open(&mut object, &cpus, sizes, quirks, keyed);
        let stacks = stack_period.map(open_stacks).transpose()?;
        let chains = Chains::open_if(plan.choice.callers, &mut object)?;
        let classes = open_classes(plan.classes, &sources, &plan.scope, &online, &mut notes);
        let counters = Counters::open(&mut object, sources, &plan.scope, &online)?;
        Ok(Self {
            object,
            log,
            counted: Counted {
                maps,
                cpus,
                stacks,
                chains,
            },
            counters,
            classes,
            records,
            layouts: (layout, btf.ok().and_then(|btf| read_compiled_layout(&btf))),
            notes,
            starts_by_exec: matches!(plan.scope, Scope::Command(_)),
            scope: plan.scope.clone(),
            online: Online::new(&online),
            sample_rate: read_sample_rate(),
        })
    }

    /// A reader of live kernel text, for machines without /proc/kcore.
    pub fn text_window(&mut self) -> anyhow::Result<text::TextWindow> {
        text::TextWindow::open(&mut self.object)
    }

    /// How the kernel describes its modules; `None` where that is not known or there are none.
    pub const fn module_layout(&self) -> Option<ModuleLayout> {
        self.layouts.0
    }

    /// How it keeps compiled BPF programs; `None` where that is not known.
    pub const fn compiled_layout(&self) -> Option<CompiledLayout> {
        self.layouts.1
    }

    /// Sets the range of code where the kernel changes from one task to the next (`__switch_to_asm` in
    /// arch/x86/entry/entry_64.S), start and length: a branch in there marks a context switch in a stack, and user
    /// entries older than that belong to another process. To be called before [`Self::enable`].
    pub fn tell_switch(&self, start: u64, len: u64) {
        if let Some(stacks) = &self.counted.stacks {
            stacks.tell_switch(start, len);
        }
    }

    /// What the reader of the report should know about this collection.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Starts sampling; a command's events start by themselves at its exec.
    /// It may be called again after [`Self::stop`].
    pub fn enable(&mut self) -> anyhow::Result<()> {
        if mem::take(&mut self.starts_by_exec) {
            return Ok(());
        }
        // What is counted is a part of what is sampled, never more.
        self.counters.enable()?;
        self.enable_classes();
        Ok(())
    }

    /// A descriptor that becomes readable when there are records about kernel text, or very many others.
    pub fn text_events(&self) -> anyhow::Result<OwnedFd> {
        self.records
            .wake
            .descriptor()
            .context("failed to wait for records of the kernel")
    }

    /// Pauses process and mapping records; kernel-text records continue.
    pub fn rest_records(&mut self) {
        self.records.sideband.rest();
    }

    /// Has it write them again.
    pub fn resume_records(&mut self) -> anyhow::Result<()> {
        self.records.resume()
    }

    /// What happened to processes, mappings and kernel text since the last call, in the order of time.
    pub fn records(&mut self) -> anyhow::Result<Reading> {
        self.records
            .wake
            .rest()
            .context("failed to wait for records of the kernel")?;
        if let Some(log) = &mut self.log {
            log.flush();
        }
        self.records.read()
    }

    /// Starts a new interval for kernel counts. Returns `false` if only a drain can.
    pub fn cut(&mut self) -> bool {
        self.counted.maps.cut(&self.counted.cpus)
    }

    /// Has counts of these processes carry their time, to about a millisecond, where threads are counted together.
    pub fn name_turning(&self, tgids: impl Iterator<Item = u32>) {
        self.counted.cpus.name_turning(tgids);
    }

    /// Notified when enough streams were counted for a drain; `None` where there are no branch stacks.
    pub fn half_full(&self) -> Option<Arc<Notify>> {
        self.counted.stacks.as_ref().map(Stacks::half_full)
    }

    /// Changes the periods a little while the events run, now and then.
    pub fn vary(&mut self) -> anyhow::Result<()> {
        self.counters.vary()
    }

    /// Whether each ring has branch stacks by an event of its own.
    pub fn has_rings_apart(&self) -> bool {
        self.counters.has_rings_apart()
    }

    /// Sets the periods of such rings by their activity since the last call, while the events run.
    pub fn share_out(&mut self) -> anyhow::Result<()> {
        self.counters.share_out()
    }

    /// Sets the periods to those of the start times `scale`. To be called after [`Self::take_totals`], while sampling still
    /// is stopped.
    pub fn set_scale(&mut self, scale: f64) -> anyhow::Result<()> {
        self.counters.set_scale(scale)
    }

    /// Whether [`Self::set_scale`] can set the periods of all events.
    pub fn is_adaptable(&self) -> bool {
        self.counters.is_adaptable()
    }

    /// The period of each clock event, by number; the weight of its samples.
    pub fn clock_periods(&self) -> Vec<Option<u64>> {
        self.counters.clock_periods()
    }

    /// The runs of the programs of each event so far.
    pub fn runs(&self) -> Vec<Runs> {
        self.counters.runs(&self.counted.cpus)
    }

    /// What was counted since the last call, up to each cut and from the last on; user code is all in the first part.
    pub fn drain(&mut self) -> anyhow::Result<Parts> {
        self.counted
            .maps
            .drain(&self.counted.cpus, self.counted.stacks.as_mut())
    }

    /// The call chains that were counted since the last call; none where callers are not asked for.
    pub fn drain_chains(&mut self) -> anyhow::Result<Vec<Chained>> {
        let chains = self.counted.chains.as_mut();
        chains.map_or_else(|| Ok(Vec::new()), Chains::drain)
    }

    /// Whether slices are distinguished. Count maps fill faster then.
    pub const fn has_slices(&self) -> bool {
        self.counted.maps.has_slices()
    }

    /// What was counted in each slice, after the last drain; `None` where slices are not distinguished.
    pub fn take_slices(&mut self) -> Option<Slices> {
        self.counted.maps.take_slices()
    }

    /// Whether the samples of some event carry branch stacks.
    pub fn has_stacks(&self) -> bool {
        self.counted.stacks.is_some()
    }

    /// Whether a sampled event counts executions, rather than time.
    pub fn counts_executions(&self) -> bool {
        self.counters.has_executions()
    }

    /// Whether the samples of the event with this number carry branch stacks.
    pub fn has_stack(&self, number: u32) -> bool {
        self.counters.has_stack(number)
    }

    /// What the samples with branch stacks brought so far.
    pub fn stacks_seen(&self) -> StacksSeen {
        self.counters.stacks_seen(&self.counted.cpus)
    }

    /// Stops the events with branch stacks for good; the others go on.
    pub fn stop_stacks(&mut self) -> anyhow::Result<()> {
        self.counters.stop_stacks()
    }

    /// Stops sampling. What was counted last is to be drained after this.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        self.stop_classes();
        self.counters.stop()
    }

    /// What it knows of itself since the last call, after a drain while it is stopped.
    pub fn take_totals(&mut self) -> anyhow::Result<Totals> {
        let mut totals = self
            .counters
            .take_totals(&self.counted.cpus, self.counted.stacks.as_ref())?;
        if let Some(chains) = &mut self.counted.chains {
            chains.take_losses(&mut totals.losses)?;
        }
        self.take_classes(&mut totals);
        let of_cpus = self.settle_cpus(&mut totals.events);
        totals.notes.extend(of_cpus);
        totals
            .notes
            .extend(throttled(self.sample_rate, read_sample_rate()));
        Ok(totals)
    }
}

/// The programs that report modules; `None`, with a note, where it cannot be had.
fn open_modules(object: &mut Object, layout: ModuleLayout, notes: &mut Vec<String>) -> Option<Modules> {
    let why = |error| notes.push(no_modules(&format!("{error:#}")));
    Modules::open(object, layout).map_err(why).ok()
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
