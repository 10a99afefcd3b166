//! Event based sampling: paper section III.A.
//!
//! An eventing IP in a block counts for the whole block:
//! executions(block) = samples in the block x period / instructions in the block.
//! Samples of a clock belong to single instructions instead ([`crate::waited`]).

use std::collections::BTreeMap;

use super::counted::{Counted, ring, summed};
use crate::EventAssignment;
use hbbp_code::blocks::{BlockId, BlockMap, Flow, TextBlocks};
use hbbp_code::locate::{Located, LocatedIp, Tally, TextIdx, Unresolved};
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::{EventIdx, EventUnit, ModuleIdx, Period, Snapshot};

/// Samples by text and instruction.
pub(crate) type Hits = BTreeMap<(TextIdx, u32), f64>;

/// The samples of the events that serve by instruction, over all process images, `per_weight` for their weights.
pub(crate) fn by_instruction(
    map: &BlockMap,
    located: &Located,
    assignment: &EventAssignment,
    per_weight: f64,
) -> Hits {
    let mut hits = Hits::new();
    for ip in located.ips.iter().filter(|ip| assignment.uses_ips_of(ip.event)) {
        let text = map.text(ip.location.text);
        if let Some(Ok(instruction)) = text.map(|text| text.find(ip.location.addr)) {
            let at = (ip.location.text, instruction);
            *hits.entry(at).or_default() += ip.weight as f64 * per_weight;
        }
    }
    hits
}

/// Samples of the events that serve as EBS, wherever they fell.
pub(crate) fn samples(snapshot: &Snapshot, assignment: &EventAssignment) -> f64 {
    let ips = snapshot.intervals.iter().flat_map(|i| &i.ips);
    ips.filter(|c| assignment.uses_ips_of(c.event))
        .map(|c| c.hits as f64)
        .sum()
}

/// What became of the samples of all events.
#[derive(Default)]
pub(crate) struct Sampled {
    /// Samples on instructions, each with its event and weighted by its period.
    counts: Vec<(EventIdx, Counted)>,
    /// Samples on instructions, by event; together with `unresolved` all that were located.
    pub(crate) resolved: Tally<()>,
    /// Samples that hit no instruction, or found the CPU halted.
    pub(crate) unresolved: Tally<Unresolved>,
    /// Those of them that lie inside an instruction, by module.
    pub(crate) inside: BTreeMap<ModuleIdx, u64>,
    /// Of each event whose periods were adapted during the run: samples by weight.
    samples_by_weight: BTreeMap<EventIdx, f64>,
}

/// Finds the block of each sample.
pub(crate) fn sampled(snapshot: &Snapshot, located: &Located, map: &BlockMap) -> Sampled {
    let mut sampled = Sampled {
        samples_by_weight: samples_by_weight(snapshot),
        ..Sampled::default()
    };
    for ip in &located.ips {
        let ring = ring(snapshot, map, ip.location.text);
        let event = snapshot.run.events.get(ip.event.0 as usize);
        let unit = event.map_or(EventUnit::Other, |event| event.unit);
        match block(map, ip, ring, unit) {
            Ok(block) => {
                sampled.resolved.add(ip.event, (), ring, ip.hits);
                let counted = Counted {
                    block,
                    process: ip.process,
                    hits: ip.hits as f64,
                    weight: ip.weight as f64,
                };
                sampled.counts.push((ip.event, counted));
            }
            Err(why) => {
                sampled.unresolved.add(ip.event, why, ring, ip.hits);
                let text = map.texts.get(ip.location.text.0 as usize);
                if let Some(text) = text.filter(|_| why == Unresolved::NotOnInstruction) {
                    let inside = sampled.inside.entry(text.module).or_default();
                    *inside = inside.saturating_add(ip.hits);
                }
            }
        }
    }
    sampled
}

impl Sampled {
    /// The samples of the events that serve as EBS, weighted by their periods and sorted by (block, process).
    pub(crate) fn counts(&self, assignment: &EventAssignment) -> Vec<Counted> {
        let uses = |(event, _): &&(EventIdx, Counted)| assignment.uses_ips_of(*event);
        let serving = self.counts.iter().filter(uses);
        summed(serving.map(|(_, counted)| *counted).collect())
    }

    /// Where figures are samples, the number of these. If periods were adapted during the run, they are weighted by them, and
    /// all together remain as many as there were.
    pub(crate) fn amount(&self, ip: &LocatedIp) -> f64 {
        match self.samples_by_weight.get(&ip.event) {
            Some(samples) => ip.weight as f64 * samples,
            None => ip.hits as f64,
        }
    }
}

fn samples_by_weight(snapshot: &Snapshot) -> BTreeMap<EventIdx, f64> {
    let events = (0..).map(EventIdx).zip(&snapshot.run.events);
    let adapted = events.filter(|(_, event)| matches!(event.period, Period::Between(..)));
    let of = |(idx, _)| {
        let ips = snapshot.intervals.iter().flat_map(|interval| &interval.ips);
        let of_event = ips.filter(|ip| ip.event == idx);
        let (hits, weight) = of_event.fold((0.0, 0.0), |(hits, weight), ip| {
            (hits + ip.hits as f64, weight + ip.weight as f64)
        });
        (0.0 < weight).then_some((idx, hits / weight))
    };
    adapted.filter_map(of).collect()
}

/// The block of a sample, unless it hit no instruction or found the CPU halted.
pub(crate) fn block(
    map: &BlockMap,
    ip: &LocatedIp,
    ring: Ring,
    unit: EventUnit,
) -> Result<BlockId, Unresolved> {
    let text = map.text(ip.location.text).ok_or(Unresolved::NoText)?;
    let instruction = text.find(ip.location.addr)?;
    let by_time = matches!(unit, EventUnit::Nanoseconds | EventUnit::Cycles);
    if by_time && ring == Ring::Kernel && follows_idle(text, instruction) {
        return Err(Unresolved::Halted);
    }
    Ok(BlockId {
        text: ip.location.text,
        block: text.block_of(instruction),
    })
}

/// Whether the instruction before waits for an interrupt. The interrupt of a clock finds a halted CPU at the
/// instruction after HLT (SDM vol. 2, HLT: "the saved instruction pointer points to the instruction following").
fn follows_idle(text: &TextBlocks, instruction: u32) -> bool {
    let before = instruction
        .checked_sub(1)
        .and_then(|before| text.instruction(before));
    before.is_some_and(|before| before.flow == Flow::Idle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_code::blocks::blocks;
    use hbbp_code::locate::Location;
    use hbbp_model::addr::ImageAddr;
    use hbbp_model::snapshot::{Event, Module, ModuleIdx, ModuleKind, ProcessIdx, Text};

    #[test]
    fn only_events_of_time_find_the_cpu_halted() {
        let halted = |unit| {
            let kernel = Module {
                name: "[kernel]".to_owned(),
                kind: ModuleKind::Kernel,
                build_id: Vec::new(),
                symbols: Vec::new(),
            };
            let text = Text {
                module: ModuleIdx(0),
                start: ImageAddr(0x1000),
                // hlt; nop; ret
                bytes: vec![0xf4, 0x90, 0xc3],
                since: 0,
            };
            let mut snapshot = Snapshot {
                modules: vec![kernel],
                text: vec![text],
                ..Snapshot::default()
            };
            snapshot.run.events = vec![Event {
                unit,
                ..Event::default()
            }];
            let ip = LocatedIp {
                location: Location {
                    text: TextIdx(0),
                    addr: ImageAddr(0x1001),
                },
                event: EventIdx(0),
                process: ProcessIdx(0),
                hits: 3,
                weight: 3,
            };
            let located = Located {
                ips: vec![ip],
                ..Located::default()
            };
            let map = blocks(&snapshot, &located);
            let found = sampled(&snapshot, &located, &map);
            assert_eq!(
                found.resolved.get(()).total() + found.unresolved.get(Unresolved::Halted).total(),
                3
            );
            found.unresolved.get(Unresolved::Halted).total()
        };
        let units = [EventUnit::Nanoseconds, EventUnit::Cycles, EventUnit::Instructions];
        assert_eq!(units.map(halted), [3, 3, 0]);
    }
}
