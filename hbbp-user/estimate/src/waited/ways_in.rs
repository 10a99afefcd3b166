//! What can have run before a block, as the code alone tells: without branch stacks nothing else does.
//!
//! The ways into a block are the block above, direct branches and calls to it, and after a direct call the returns of its
//! callee. A single way was taken each time. Several divide the samples by the time of their last instructions, which is that of
//! the instruction times how often the way was taken ([`Executions`]). If nothing tells how often, or control came by an indirect
//! branch or call, the predecessor is not known.

use std::collections::{BTreeMap, HashMap};

use super::code::{Code, Place};
use super::executions::Executions;
use super::shares::{Expected, calibrated};
use crate::sources::ebs::Hits;

/// Ways into a block that divide its samples: those with the most time.
const MOST_WAYS: usize = 16;

/// The predecessors of all blocks whose first instruction was sampled.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WaysIn {
    of: BTreeMap<Place, Vec<(Place, f64)>>,
}

impl WaysIn {
    /// Of blocks with these samples, and the samples for which no more work was left.
    pub(super) fn new(executions: &mut Executions<'_>, hits: &Hits) -> (Self, f64) {
        let code = executions.code;
        let mut search = Search {
            code,
            executions,
            returns: HashMap::new(),
        };
        let (mut of, mut unsearched) = (BTreeMap::new(), 0.0);
        for (at, samples) in hits.iter().filter(|(at, _)| code.begins_block(**at)) {
            let from = search.predecessors(*at, *samples);
            if search.executions.work_left == 0 {
                unsearched += samples;
            }
            if !from.is_empty() {
                of.insert(*at, from);
            }
        }
        (Self { of }, unsearched)
    }

    /// The predecessors of the block that begins here, each with its share; none where they are not known.
    pub(crate) fn of(&self, at: Place) -> &[(Place, f64)] {
        self.of.get(&at).map_or(&[], Vec::as_slice)
    }
}

/// Finds predecessors.
struct Search<'a, 'b> {
    code: &'a Code<'a>,
    executions: &'a mut Executions<'b>,
    /// The heaviest returns of each callee, with their executions.
    returns: HashMap<Place, Vec<(Place, f64)>>,
}

impl Search<'_, '_> {
    /// The predecessors of a block that begins here with these samples, each with its share.
    fn predecessors(&mut self, at: Place, samples: f64) -> Vec<(Place, f64)> {
        let ways = self.code.ways(at);
        let (mut from, mut is_open) = (Vec::new(), ways.is_open);
        for way in &ways.from {
            from.push((*way, self.executions.of_way(*way, at)));
        }
        if let Some(call) = self.code.call_before(at) {
            let returns = self.returns_to(call);
            is_open |= returns.is_empty();
            from.extend(returns);
        }
        if let ([(only, _)], false) = (from.as_slice(), is_open) {
            return vec![(*only, 1.0)];
        }
        let expected = from.into_iter().map(|(way, executions)| {
            let time = self.executions.time(way);
            Expected {
                way,
                time: executions * time.cycles,
                variance: time.variance,
            }
        });
        calibrated(&heaviest(expected.collect(), |way| way.time), samples)
    }

    /// The returns behind which a call comes back, with their executions. Together they are as many as those of the call.
    fn returns_to(&mut self, call: Place) -> Vec<(Place, f64)> {
        let Some(callee) = self.code.target(call) else {
            return Vec::new();
        };
        let (code, executions) = (self.code, &mut *self.executions);
        let returns = self.returns.entry(callee).or_insert_with(|| {
            let found = code.returns(callee, &mut executions.work_left);
            let with = found.into_iter().map(|way| (way, executions.of_end(way)));
            heaviest(with.collect(), |(_, executions)| *executions)
        });
        let all: f64 = returns.iter().map(|(_, executions)| executions).sum();
        let calls = self.executions.of_end(call);
        let share = |(way, n): &(Place, f64)| (*way, if 0.0 < all { calls * n / all } else { 0.0 });
        returns.iter().map(share).collect()
    }
}

/// The heaviest of these, by a weight.
fn heaviest<T>(mut of: Vec<T>, weight: impl Fn(&T) -> f64) -> Vec<T> {
    of.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    of.truncate(MOST_WAYS);
    of
}
