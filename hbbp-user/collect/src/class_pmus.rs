//! Where classes of instructions can be counted: on each PMU whose events sample executions on whole CPUs.

use std::io;
use std::path::Path;
use std::time::Duration;

use perf_event_open_sys::bindings;

use super::class_events::{ClassEvent, class_events};
use super::class_turns::RingEvent;
use super::classes::{ClassCounters, ClassCounting, CpuGroup};
use super::event::{Source, core_of};
use super::perf::{Counting, Perf};
use super::pmu::{DEVICES, read_pmus};
use super::scope::Scope;
use super::{Collector, Totals};
use hbbp_model::addr::Ring;

/// The events of a PMU, and where they are to count.
pub(super) struct OfPmu {
    /// `perf_event_attr.type`.
    pub(super) kind: u32,
    /// Its name.
    pub(super) name: String,
    pub(super) events: Vec<ClassEvent>,
    pub(super) cpus: Vec<u32>,
    /// `type` and `config` of each event that samples on its counters.
    pub(super) sampled: Vec<(u32, u64)>,
}

/// The counters of classes beside these events, one for each of their PMUs; none where single tasks or cgroups are measured, whose
/// events come and go with them. What cannot be counted has a sentence.
pub(super) fn open_classes(
    counting: ClassCounting,
    sources: &[Source],
    scope: &Scope,
    online: &[u32],
    notes: &mut Vec<String>,
) -> Vec<ClassCounters> {
    let cpus = match (counting, scope) {
        (ClassCounting::On, Scope::System) => online,
        (ClassCounting::On, Scope::Cpus(cpus)) => cpus,
        _ => return Vec::new(),
    };
    let mut opened = Vec::new();
    for pmu in of_pmus(sources, cpus) {
        match ClassCounters::open(&pmu, notes) {
            Ok(counters) => opened.extend(counters),
            Err(error) => notes.push(format!(
                "no class of instructions was counted on {}: {error}",
                pmu.name
            )),
        }
    }
    opened
}

impl Collector {
    /// Has classes count.
    pub(super) fn enable_classes(&mut self) {
        self.classes.iter_mut().for_each(ClassCounters::enable);
    }

    /// Has them count no more.
    pub(super) fn stop_classes(&mut self) {
        self.classes.iter_mut().for_each(ClassCounters::stop);
    }

    /// Adds what was counted of them since the last call.
    pub(super) fn take_classes(&mut self, totals: &mut Totals) {
        for counters in &mut self.classes {
            let enabled = self.counters.enabled_on(counters.kind(), &totals.events);
            let counts = counters.take_counts(enabled, &mut totals.notes);
            totals.classes.extend(counts);
        }
    }

    /// How long the turn of classes that begins now should be; `None` where nothing takes turns.
    pub fn turn_length(&self) -> Option<Duration> {
        self.classes.iter().filter_map(ClassCounters::turn_length).max()
    }

    /// Lets other classes count, where there are more than counters.
    pub fn take_turns(&mut self) {
        self.classes.iter_mut().for_each(ClassCounters::take_turns);
    }
}

/// The PMUs whose events sample executions.
fn of_pmus(sources: &[Source], cpus: &[u32]) -> Vec<OfPmu> {
    let mut pmus = Vec::new();
    for pmu in read_pmus(Path::new(DEVICES)) {
        // A generic event names its PMU in the upper half of its `config`.
        let sampling = |source: &&Source| {
            let request = &source.request;
            let generic =
                request.kind == bindings::PERF_TYPE_HARDWARE && request.config >> 32 == u64::from(pmu.kind);
            request.kind == pmu.kind || generic
        };
        let executions = |source: &Source| source.unit.counts_executions();
        if !sources.iter().filter(sampling).any(executions) {
            continue;
        }
        let on_pmu = |cpu: &&u32| pmu.cpus.is_empty() || pmu.cpus.contains(cpu);
        pmus.push(OfPmu {
            kind: pmu.kind,
            name: pmu.name.clone(),
            events: class_events(&pmu, core_of(&pmu)),
            cpus: cpus.iter().filter(on_pmu).copied().collect(),
            sampled: sources
                .iter()
                .filter(sampling)
                .map(|source| (source.request.kind, source.request.config))
                .collect(),
        });
    }
    // What only some kinds of cores count would be a part of the whole that nobody knows.
    let everywhere = |event: &ClassEvent, pmus: &[OfPmu]| {
        let has = |pmu: &OfPmu| pmu.events.iter().any(|other| other.class == event.class);
        pmus.iter().filter(|pmu| !pmu.cpus.is_empty()).all(has)
    };
    let events: Vec<Vec<ClassEvent>> = pmus
        .iter()
        .map(|pmu| {
            let of_all = pmu.events.iter().filter(|event| everywhere(event, &pmus));
            of_all.cloned().collect()
        })
        .collect();
    for (pmu, events) in pmus.iter_mut().zip(events) {
        pmu.events = events;
    }
    pmus.retain(|pmu| !pmu.cpus.is_empty() && !pmu.events.is_empty());
    pmus
}

impl OfPmu {
    /// The events that the kernel opens, once for each ring.
    pub(super) fn countable(&self, cpu: u32, notes: &mut Vec<String>) -> Vec<RingEvent> {
        let mut countable = Vec::new();
        for event in &self.events {
            let of_rings = [Ring::Kernel, Ring::User].map(|ring| RingEvent {
                class: event.class,
                name: format!("{}/{}/", self.name, event.name),
                counting: Counting {
                    kind: self.kind,
                    config: event.config,
                    ring,
                },
            });
            let refused = of_rings
                .iter()
                .find_map(|event| Perf::open_counting(&event.counting, cpu).err());
            match refused {
                None => countable.extend(of_rings),
                Some(error) => notes.push(format!(
                    "the class `{}` was not counted: event {}/{}/ was refused: {error}",
                    event.class.id(),
                    self.name,
                    event.name
                )),
            }
        }
        countable
    }

    /// How many events can count at the same time, beside those that sample. These stand aside for others that only count, so that
    /// nothing is sampled yet.
    pub(super) fn capacity(&self, cpu: u32, events: &[RingEvent]) -> io::Result<usize> {
        /// No processor has more counters than this (Intel SDM vol. 3B, architectural performance monitoring: 8 to 10 general
        /// ones and some fixed ones).
        const MOST: usize = 16;
        let stand_ins: Vec<Counting> = self
            .sampled
            .iter()
            .map(|(kind, config)| Counting {
                kind: *kind,
                config: *config,
                ring: Ring::Kernel,
            })
            .collect();
        let events: Vec<&Counting> = events.iter().map(|event| &event.counting).collect();
        for n in (1..=events.len().min(MOST)).rev() {
            let wanted = stand_ins.iter().chain(events.iter().take(n).copied());
            let group = CpuGroup::open(&wanted.collect::<Vec<_>>(), cpu);
            match group {
                Ok(group) if group.fits()? => return Ok(n),
                // The kernel refuses groups that no counters can hold (x86_pmu_event_init, `validate_group`).
                Ok(_) | Err(_) => {}
            }
        }
        Ok(0)
    }
}
