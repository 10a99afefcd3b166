//! Time by instruction: samples of core cycles or of a clock, next to estimated executions.
//!
//! With them the cycles of an execution follow in one run (CPI), which OptiWISE needs two for (Guo et al., CGO 2024, section
//! III): E(S_A) = N_A T_A f, with S_A samples, N_A executions, T_A cycles of one execution, and f samples per cycle.
//!
//! Each sample belongs to the instruction that was waited for ([`Waits`]).
//!
//! Without such samples the cycles in branch records serve ([`branch_records`]).
//!
//! Executions are scaled to what their events counted, so cycles are too: otherwise lost samples would lower each CPI by their
//! share.

mod branch_records;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{AddAssign, Range};

use hbbp_code::blocks::BlockMap;
use hbbp_code::locate::{Located, TextIdx};
use hbbp_estimate::{BlockCounts, Figure, Unit, Waits, disjoint};
use hbbp_model::snapshot::{Event, EventIdx, EventUnit, ProcessIdx, Snapshot};

/// The time that was sampled in addition to executions.
#[derive(Clone, Debug, PartialEq)]
pub struct Time {
    /// Cycles, or nanoseconds.
    pub unit: EventUnit,
    /// The events whose samples it is.
    pub events: Vec<EventIdx>,
    /// Sorted by text, instruction and process image, each once.
    pub spent: Vec<Spent>,
    /// Samples on an instruction, in all.
    pub samples: f64,
}

/// The time that one process image spent at an instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spent {
    /// Its text.
    pub text: TextIdx,
    /// Its index in the text.
    pub instruction: u32,
    /// The process image.
    pub process: ProcessIdx,
    /// Samples; a sample can be divided among several predecessors.
    pub hits: f64,
    /// Units of time.
    pub amount: f64,
}

/// Units of time with the samples that they rest on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Amount {
    /// Samples.
    pub(crate) hits: f64,
    /// Cycles, or nanoseconds.
    pub(crate) units: f64,
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.hits += other.hits;
        self.units += other.units;
    }
}

/// The relative error of executions beyond which nothing is divided by them: a CPI would be wrong by a quarter, and by more
/// than the error that the delta method states, which takes the error of the divisor to be small.
const TOO_FEW: f64 = 0.25;

impl Time {
    /// The time of a profile whose figures are executions; `None` if nothing shows it.
    pub(crate) fn new(
        snapshot: &Snapshot,
        located: &Located,
        map: &BlockMap,
        counts: &BlockCounts,
    ) -> Option<Self> {
        Self::sampled(snapshot, located, map, counts).or_else(|| {
            let are_executions = matches!(
                counts.assignment.unit,
                Unit::Executions | Unit::RelativeExecutions
            );
            are_executions
                .then(|| Self::of_branch_records(snapshot, map, counts))
                .flatten()
        })
    }

    /// The time that was sampled in addition to executions; `None` if there is no such sample.
    fn sampled(snapshot: &Snapshot, located: &Located, map: &BlockMap, counts: &BlockCounts) -> Option<Self> {
        let is_beside = matches!(counts.assignment.unit, Unit::Executions);
        let units = [EventUnit::Cycles, EventUnit::Nanoseconds];
        let sampled = |unit| {
            let with_samples = |event| located.ips.iter().any(|ip| ip.event == event);
            disjoint(snapshot, |event, idx| {
                event.unit == unit && !event.branch_stack && with_samples(idx)
            })
        };
        let found = units.into_iter().map(|unit| (unit, sampled(unit)));
        let (unit, events) = { found }.find(|(_, events)| is_beside && !events.is_empty())?;
        let mut spent: BTreeMap<(TextIdx, u32, ProcessIdx), Amount> = BTreeMap::new();
        let waits = Waits::new(snapshot, map, counts);
        let mut samples = 0.0;
        let apart: BTreeSet<ProcessIdx> = counts.parts.iter().map(|part| part.process).collect();
        let counted_as = |process: ProcessIdx| match counts.n_together {
            1.. if !apart.contains(&process) => ProcessIdx::OTHERS,
            _ => process,
        };
        let scales: BTreeMap<EventIdx, f64> = events
            .iter()
            .map(|event| (*event, scale(snapshot, counts, *event)))
            .collect();
        for ip in &located.ips {
            let Some(scale) = scales.get(&ip.event) else {
                continue;
            };
            let text = map.text(ip.location.text);
            let Some(at) = text.and_then(|text| text.find(ip.location.addr).ok()) else {
                continue;
            };
            samples += ip.hits as f64;
            let process = counted_as(ip.process);
            for ((text, instruction), share) in waits.of(ip.event, ip.process, (ip.location.text, at)) {
                *spent.entry((text, instruction, process)).or_default() += Amount {
                    hits: share * ip.hits as f64,
                    units: scale * share * ip.weight as f64,
                };
            }
        }
        let spent = spent
            .into_iter()
            .map(|((text, instruction, process), sum)| Spent {
                text,
                instruction,
                process,
                hits: sum.hits,
                amount: sum.units,
            });
        Some(Self {
            unit,
            events,
            spent: spent.collect(),
            samples,
        })
    }

    /// Units of time at all instructions.
    pub(crate) fn total(&self) -> f64 {
        self.spent.iter().fold(0.0, |sum, spent| sum + spent.amount)
    }

    /// The time at these instructions of a text, over all process images.
    pub(crate) fn at(&self, text: TextIdx, instructions: &Range<u32>) -> Amount {
        let before = |n: u32| {
            self.spent
                .partition_point(|it| (it.text, it.instruction) < (text, n))
        };
        let spent = self
            .spent
            .get(before(instructions.start)..before(instructions.end));
        let mut sum = Amount::default();
        spent.unwrap_or(&[]).iter().for_each(|spent| sum.add(spent));
        sum
    }

    /// An amount with its error as a part of all samples.
    pub(crate) fn figure(&self, amount: Amount) -> Figure {
        amount.figure(self.samples)
    }
}

impl Amount {
    /// Adds the time at an instruction.
    pub(crate) fn add(&mut self, spent: &Spent) {
        self.hits += spent.hits;
        self.units += spent.amount;
    }

    /// The amount with its error as a part of this many samples.
    pub(crate) fn figure(self, samples: f64) -> Figure {
        let left = if 0.0 < samples {
            1.0 - self.hits / samples
        } else {
            0.0
        };
        let relative = if 0.0 < self.hits {
            left.max(0.0) / self.hits
        } else {
            0.0
        };
        Figure::new(self.units, self.units * self.units * relative)
    }
}

/// Factor on the time of a sample of this event: expected samples divided by received ones, if executions are scaled to counts as
/// well.
pub(crate) fn scale(snapshot: &Snapshot, counts: &BlockCounts, event: EventIdx) -> f64 {
    let is_tied = counts.biases.untied.is_some();
    let event = snapshot.run.events.get(event.0 as usize).filter(|_| is_tied);
    event.map_or(1.0, due_for_each)
}

/// Samples that were due for each that was received; 1 where that is not known. Clocks go on where there is nothing to sample, as on idle
/// CPUs: what they miss is not a part of all time.
fn due_for_each(event: &Event) -> f64 {
    let due = event.due().filter(|_| event.unit == EventUnit::Cycles);
    match (due, event.runs) {
        (Some(due @ 1..), runs @ 1..) => due as f64 / runs as f64,
        _ => 1.0,
    }
}

/// Cycles for each execution; `None` if executions are too few to divide by.
pub(crate) fn cpi(time: Figure, executions: Figure) -> Option<Figure> {
    let is_known = executions.std_error <= TOO_FEW * executions.value;
    time.over(executions).filter(|_| is_known)
}

#[cfg(test)]
mod tests;
