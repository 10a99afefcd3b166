//! Finds the instruction that a sample belongs to.

use std::borrow::Cow;

use hbbp_code::blocks::{BlockMap, TextBlocks};
use hbbp_model::snapshot::{EventIdx, EventUnit, ProcessIdx, Snapshot};

use super::code::{Code, Place, is_string};
use super::interrupts::{HeldBack, Interrupts};
use super::origins::Origins;
use super::shares::shares;
use crate::{BlockCounts, Flows};

/// Finds the instruction that each sample belongs to.
pub struct Waits<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) map: &'a BlockMap,
    /// Recorded branches and streams, where there are some: what they do not show is found in the code.
    recorded: Option<Flows<'a>>,
    interrupts: Interrupts<'a>,
    origins: Cow<'a, Origins>,
}

impl<'a> Waits<'a> {
    /// By what was recorded, or by the code where nothing was.
    pub fn new(snapshot: &'a Snapshot, map: &'a BlockMap, counts: &'a BlockCounts) -> Self {
        match &counts.waited {
            Some(waited) => Self::by_code(snapshot, map, Cow::Borrowed(&waited.origins)),
            None => Self {
                recorded: Some(Flows::new(map, counts)),
                ..Self::by_code(snapshot, map, Cow::Owned(Origins::known(map)))
            },
        }
    }

    pub(super) fn by_code(snapshot: &'a Snapshot, map: &'a BlockMap, origins: Cow<'a, Origins>) -> Self {
        Self {
            snapshot,
            map,
            recorded: None,
            interrupts: Interrupts::new(Code::new(snapshot, map)),
            origins,
        }
    }

    /// The instructions that a sample of this event and process image at an instruction belongs to, each with its share.
    pub fn of(&self, event: EventIdx, process: ProcessIdx, (text, at): Place) -> Vec<(Place, f64)> {
        let here = || vec![((text, at), 1.0)];
        let Some(blocks) = self.map.text(text) else {
            return here();
        };
        let event = self.snapshot.run.events.get(event.0 as usize);
        let is_precise = event.is_some_and(|event| 0 < event.precise);
        if is_precise || is_string(self.map, blocks, at) {
            return here();
        }
        let start = blocks.block(blocks.block_of(at)).start;
        let found = match (at.checked_sub(1).filter(|_| start < at), &self.recorded) {
            (Some(above), _) => vec![((text, above), 1.0)],
            (None, Some(flows)) => recorded(flows, blocks, (text, at)),
            (None, None) => self.origins.ways_in.of((text, at)).to_vec(),
        };
        match event.map(|event| event.unit) {
            _ if found.is_empty() => here(),
            Some(EventUnit::Nanoseconds) => {
                let with_held_back = |it| self.with_held_back(process, it);
                found.into_iter().flat_map(with_held_back).collect()
            }
            // The interrupt of a counter is not held back (an NMI).
            _ => found,
        }
    }

    /// The instructions with interrupts off that the share of an instruction belongs to, or itself.
    fn with_held_back(&self, process: ProcessIdx, (at, share): (Place, f64)) -> Vec<(Place, f64)> {
        match self.held_back(process, at) {
            HeldBack::Within(spent) => spent.into_iter().map(|(at, part)| (at, part * share)).collect(),
            HeldBack::Not | HeldBack::Unknown => vec![(at, share)],
        }
    }

    fn held_back(&self, process: ProcessIdx, at: Place) -> HeldBack {
        let of_call = self.origins.system_calls.of(&self.interrupts, process, at);
        of_call.map_or_else(
            || self.interrupts.held_back(at, &self.origins.times),
            HeldBack::Within,
        )
    }

    /// Whether time at an instruction passed with interrupts off before it, where the code does not show it.
    pub(super) fn is_held_back(&self, process: ProcessIdx, at: Place) -> bool {
        self.interrupts.turned_on(at).is_some() && matches!(self.held_back(process, at), HeldBack::Unknown)
    }
}

/// The ends of the blocks that led to the start of one, each with its share of the executions.
fn recorded(flows: &Flows<'_>, blocks: &TextBlocks, (text, at): Place) -> Vec<(Place, f64)> {
    let branches = flows.branches_to(text, &(at..at.saturating_add(1)));
    let mut from: Vec<(Place, f64)> = branches
        .iter()
        .map(|branch| (branch.from, branch.executions))
        .collect();
    let block = blocks.block_of(at);
    if let Some((before, block)) = at.checked_sub(1).zip(block.checked_sub(1)) {
        from.push(((text, before), flows.crossing(text, block).executions));
    }
    shares(from)
}
