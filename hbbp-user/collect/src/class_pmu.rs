//! The classes of instructions that a PMU counts, and how many of them at the same time.

use std::io;

use super::class_events::{ClassEvent, ICE_LAKE, SKYLAKE, event};
use super::class_turns::RingEvent;
use super::cpu_group::CpuGroup;
use super::perf::{Counting, Perf};
use super::pmu::Pmu;
use super::uarch::Core;
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::InstructionClass as Class;

/// The events of a PMU, instructions first: those of its kind of core, or those that its driver names itself in its folder
/// `events`, in lower case, with the encodings that it gives there.
pub(super) fn class_events(pmu: &Pmu, core: Option<Core>) -> Vec<ClassEvent> {
    if let Some(core) = core {
        return core.classes.to_vec();
    }
    let instructions = event(Class::Instructions, pmu.instructions, "instructions");
    let named = SKYLAKE.iter().chain(ICE_LAKE).filter_map(|known| {
        let name = known.name.to_lowercase();
        let (_, config) = pmu.named.iter().find(|(named, _)| *named == name)?;
        Some(event(known.class, *config, known.name))
    });
    let mut events = vec![instructions];
    for event in named {
        if events.iter().all(|other| other.class != event.class) {
            events.push(event);
        }
    }
    events
}

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

    /// How many events can count together with those that sample. Sampling is paused for others that only count, so
    /// nothing may be sampled yet.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_may_name_its_events() {
        let pmu = Pmu {
            instructions: 0xc0,
            named: vec![
                ("mem_inst_retired.all_loads".to_owned(), 0x81d0),
                ("branches_taken".to_owned(), 0x20c4),
            ],
            ..Pmu::default()
        };
        let classes: Vec<_> = class_events(&pmu, None)
            .iter()
            .map(|event| (event.class, event.config))
            .collect();
        assert_eq!(classes, [(Class::Instructions, 0xc0), (Class::Loads, 0x81d0)]);
    }
}
