//! Finds the instruction that a sample belongs to.

use hbbp_code::blocks::{BlockMap, Form, TextBlocks};
use hbbp_model::snapshot::{EventIdx, EventUnit, Snapshot};

use super::interrupts::Interrupts;
use super::ways_in::{Place, WaysIn, shares};
use crate::{BlockCounts, Flows};

/// Finds the instruction that each sample belongs to.
pub struct Waits<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) map: &'a BlockMap,
    before: Before<'a>,
    interrupts: Interrupts,
}

/// What tells the predecessors of a block.
enum Before<'a> {
    /// Recorded branches and streams.
    Recorded(Flows<'a>),
    /// The code.
    Code(&'a WaysIn),
}

impl<'a> Waits<'a> {
    /// By what was recorded, or by the code where nothing was.
    pub fn new(snapshot: &'a Snapshot, map: &'a BlockMap, counts: &'a BlockCounts) -> Self {
        let before = match &counts.waited {
            Some(waited) => Before::Code(&waited.ways_in),
            None => Before::Recorded(Flows::new(map, counts)),
        };
        Self {
            snapshot,
            map,
            before,
            interrupts: Interrupts::new(map),
        }
    }

    pub(super) fn by_code(snapshot: &'a Snapshot, map: &'a BlockMap, ways_in: &'a WaysIn) -> Self {
        Self {
            snapshot,
            map,
            before: Before::Code(ways_in),
            interrupts: Interrupts::new(map),
        }
    }

    /// The instructions that a sample of this event at an instruction belongs to, each with its share.
    pub fn of(&self, event: EventIdx, (text, at): Place) -> Vec<(Place, f64)> {
        let here = || vec![((text, at), 1.0)];
        let Some(blocks) = self.map.text(text) else {
            return here();
        };
        let event = self.snapshot.run.events.get(event.0 as usize);
        let is_precise = event.is_some_and(|event| 0 < event.precise);
        if is_precise || self.is_string(blocks, at) {
            return here();
        }
        let start = blocks.block(blocks.block_of(at)).start;
        let found = match (at.checked_sub(1).filter(|_| start < at), &self.before) {
            (Some(above), _) => vec![((text, above), 1.0)],
            (None, Before::Recorded(flows)) => recorded(flows, blocks, (text, at)),
            (None, Before::Code(ways_in)) => ways_in.of((text, at)).to_vec(),
        };
        match event.map(|event| event.unit) {
            _ if found.is_empty() => here(),
            Some(EventUnit::Nanoseconds) => {
                found.into_iter().flat_map(|it| self.with_held_back(it)).collect()
            }
            // The interrupt of a counter is not held back (an NMI).
            _ => found,
        }
    }

    /// The instructions with interrupts off that the share of an instruction belongs to, or itself.
    fn with_held_back(&self, ((text, at), share): (Place, f64)) -> Vec<(Place, f64)> {
        let found = self.map.text(text).and_then(|blocks| {
            let on = self.interrupts.turned_on(self.snapshot, blocks, at)?;
            self.interrupts.held_back(self.snapshot, blocks, on)
        });
        let spent = found.unwrap_or(at..=at);
        let share = share / spent.clone().count() as f64;
        spent.map(|at| ((text, at), share)).collect()
    }

    /// Whether time at an instruction passed with interrupts off before it, where the code does not show it.
    pub(super) fn is_held_back(&self, (text, at): Place) -> bool {
        let found = self.map.text(text).and_then(|blocks| {
            let on = self.interrupts.turned_on(self.snapshot, blocks, at)?;
            Some(self.interrupts.held_back(self.snapshot, blocks, on))
        });
        found.is_some_and(|shown| shown.is_none())
    }

    /// Whether an instruction repeats itself by a prefix.
    fn is_string(&self, blocks: &TextBlocks, at: u32) -> bool {
        let form = blocks.instruction(at).map(|instruction| instruction.form);
        let form = form.and_then(|form| self.map.forms.get(usize::from(form.0)));
        let decoded = form.and_then(Form::decoded);
        decoded.is_some_and(|it| it.is_string_instruction() && (it.has_rep_prefix() || it.has_repne_prefix()))
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
