//! Where classes of instructions can be counted: on each PMU whose events sample executions on whole CPUs.

use std::path::Path;

use perf_event_open_sys::bindings;

use super::class_events::ClassEvent;
use super::class_pmu::{OfPmu, class_events};
use super::classes::{ClassCounters, ClassCounting};
use super::pmu::{DEVICES, read_pmus};
use super::scope::Scope;
use super::source::{Source, core_of};

/// The class counters that run with these events, one for each of their PMUs; none where single tasks or cgroups are
/// measured, whose events come and go with them. What cannot be counted has a sentence.
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
    // What only some kinds of cores count would be an unknown part of the whole.
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
