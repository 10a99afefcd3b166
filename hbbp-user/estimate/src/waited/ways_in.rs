//! What can have run before a block, as the code alone tells: without branch stacks nothing else does.
//!
//! The ways into a block are the block above, direct branches and calls to it, and after a direct call the returns of its
//! callee. A single way was taken each time. Several divide the samples by the time of their last instructions, which is that of
//! the instruction times how often the way was taken ([`Executions`]). If nothing tells how often, or control came by an indirect
//! branch or call, the predecessor is not known.
//!
//! The time of a division is known less well than that of an addition. So what the samples are more or fewer than expected belongs to
//! each way in proportion to its time and the variance of that time: a calibration estimator (Deville and Särndal, 1992, Journal of
//! the American Statistical Association 87, equation 2.3).

use std::collections::{BTreeMap, HashMap};

use super::code::{Code, Place};
use super::executions::Executions;
use crate::sources::ebs::Hits;
use hbbp_code::blocks::BlockMap;
use hbbp_model::snapshot::Snapshot;

/// Ways into a block that divide its samples: those with the most time.
const MOST_WAYS: usize = 16;

/// The predecessors of all blocks whose first instruction was sampled.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WaysIn {
    of: BTreeMap<Place, Vec<(Place, f64)>>,
}

impl WaysIn {
    /// Of blocks with these samples.
    pub(crate) fn new(snapshot: &Snapshot, map: &BlockMap, hits: &Hits) -> Self {
        let code = Code::new(snapshot, map, hits);
        let mut search = Search {
            code: &code,
            executions: Executions::new(&code, hits),
            returns: HashMap::new(),
        };
        let starts = hits.iter().filter(|(at, _)| code.begins_block(**at));
        let of = starts.map(|(at, samples)| (*at, search.predecessors(*at, *samples)));
        Self {
            of: of.filter(|(_, from)| !from.is_empty()).collect(),
        }
    }

    /// The predecessors of the block that begins here, each with its share; none where they are not known.
    pub(crate) fn of(&self, at: Place) -> &[(Place, f64)] {
        self.of.get(&at).map_or(&[], Vec::as_slice)
    }
}

/// Finds predecessors.
struct Search<'a> {
    code: &'a Code<'a>,
    executions: Executions<'a>,
    /// The heaviest returns of each callee, with their executions.
    returns: HashMap<Place, Vec<(Place, f64)>>,
}

impl Search<'_> {
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
            let (time, off) = self.executions.known_time(way);
            Expected {
                way,
                time: executions * time,
                variance: off.ln().powi(2),
            }
        });
        calibrated(&heaviest(expected.collect(), |way| way.time), samples)
    }

    /// The returns behind which a call comes back, with their executions. Together they are as many as those of the call.
    fn returns_to(&mut self, call: Place) -> Vec<(Place, f64)> {
        let Some(callee) = self.code.target(call) else {
            return Vec::new();
        };
        let (code, executions) = (self.code, &mut self.executions);
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

/// What is expected of a way.
struct Expected {
    way: Place,
    /// Samples.
    time: f64,
    /// Of the logarithm of the time.
    variance: f64,
}

/// The shares of ways, whose samples are as many as there were.
fn calibrated(ways: &[Expected], samples: f64) -> Vec<(Place, f64)> {
    let all: f64 = ways.iter().map(|way| way.time).sum();
    let variable: f64 = ways.iter().map(|way| way.time * way.variance).sum();
    if all <= 0.0 || variable <= 0.0 {
        return Vec::new();
    }
    let factor = (samples - all) / variable;
    let amount = |way: &Expected| way.time * (1.0 + way.variance * factor).max(0.0);
    shares(ways.iter().map(|way| (way.way, amount(way))).collect())
}

/// The heaviest of these, by a weight.
fn heaviest<T>(mut of: Vec<T>, weight: impl Fn(&T) -> f64) -> Vec<T> {
    of.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    of.truncate(MOST_WAYS);
    of
}

/// Weights as shares of their sum, without those that have none.
pub(super) fn shares(mut weights: Vec<(Place, f64)>) -> Vec<(Place, f64)> {
    weights.retain(|(_, weight)| 0.0 < *weight);
    let all: f64 = weights.iter().map(|(_, weight)| weight).sum();
    weights.iter_mut().for_each(|(_, weight)| *weight /= all);
    weights
}
