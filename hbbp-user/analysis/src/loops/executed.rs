//! Executed instructions of what was called, by call and by region: OptiWISE's table of callees (Guo et al., CGO 2024, section
//! IV.D, algorithm 1), estimated.
//!
//! The paper counts below each call by instrumentation. Here the estimate says what each function executed, and call chains
//! say which part of its time each call has; its instructions are divided alike. So a function has one CPI, whoever calls it,
//! and a function without a sample in a chain is charged to no call.

use std::collections::BTreeMap;

use super::region::{Inclusive, Region};
use crate::callers::{At, Callers};
use crate::time::{Amount, cpi};
use hbbp_code::blocks::BlockMap;
use hbbp_estimate::Figure;

/// What functions executed, and their time in call chains.
pub(super) struct Executed<'a> {
    map: &'a BlockMap,
    /// Sorted by text and first block.
    functions: Vec<Function<'a>>,
    /// Samples in all.
    samples: f64,
    /// What of that is known.
    known: Known,
}

/// What is known next to the time of call chains.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Known {
    /// The amounts of functions are executions.
    pub(super) executions: bool,
    /// Call chains have the unit of all time.
    pub(super) same_time: bool,
}

struct Function<'a> {
    region: &'a Region,
    time: Amount,
}

/// Samples, and the functions that spent their time, by number.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Below {
    pub(super) time: Amount,
    functions: BTreeMap<usize, Amount>,
}

impl Below {
    /// Adds time that a function spent; `None` if that is not known, or its instructions are counted elsewhere.
    pub(super) fn add(&mut self, function: Option<usize>, amount: Amount) {
        self.time += amount;
        if let Some(function) = function {
            *self.functions.entry(function).or_default() += amount;
        }
    }
}

impl<'a> Executed<'a> {
    /// Of these functions and their amounts.
    pub(super) fn new(map: &'a BlockMap, functions: &'a [Region], callers: &Callers, known: Known) -> Self {
        let time = Amount::default();
        let mut functions: Vec<Function<'_>> =
            functions.iter().map(|region| Function { region, time }).collect();
        functions.sort_by_key(|it| (it.region.text, it.region.blocks.first().copied()));
        let mut executed = Self {
            map,
            functions,
            samples: callers.total.hits,
            known,
        };
        for charged in &callers.charged {
            let function = executed.find(charged.spender);
            if let Some(function) = function.and_then(|n| executed.functions.get_mut(n)) {
                function.time += charged.amount;
            }
        }
        executed
    }

    /// The number of the function that an instruction lies in.
    pub(super) fn find(&self, (text, instruction): At) -> Option<usize> {
        let block = self.map.text(text)?.block_of(instruction);
        let before =
            |it: &Function<'_>| (it.region.text, it.region.blocks.first().copied()) <= (text, Some(block));
        let n = self.functions.partition_point(before).checked_sub(1)?;
        let region = self.functions.get(n)?.region;
        (region.text == text && region.blocks.last().is_some_and(|last| block <= *last)).then_some(n)
    }

    /// Time and instructions below a call, or of a region that executed `own` itself.
    pub(super) fn inclusive(&self, below: &Below, own: Option<Figure>) -> Inclusive {
        let parts = below.functions.iter().filter_map(|(n, part)| {
            let function = self.functions.get(*n)?;
            let part = part.figure(function.time.hits);
            let all = Figure::new(function.time.units, 0.0);
            Some(product(function.region.amount, part.over(all)?))
        });
        let instructions = parts.fold(own.unwrap_or_default(), Figure::plus);
        let time = below.time.figure(self.samples);
        let instructions = self.known.executions.then_some(instructions);
        let divisor = instructions.filter(|_| self.known.same_time);
        Inclusive {
            time,
            instructions,
            cpi: divisor.and_then(|instructions| cpi(time, instructions)),
        }
    }
}

/// Of two independent figures, by the delta method.
fn product(a: Figure, b: Figure) -> Figure {
    let value = a.value * b.value;
    let errors = (a.std_error * b.value, a.value * b.std_error);
    Figure::new(value, errors.0 * errors.0 + errors.1 * errors.1)
}
