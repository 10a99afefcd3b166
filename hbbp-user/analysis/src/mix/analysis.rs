//! The analysis of a snapshot: everything that a report shows, as one pure function.

use super::keys::Keys;
use super::pivot::pivot;
use super::{Mix, Query};
use crate::time::Time;
use hbbp_code::blocks::{BlockMap, DecodedText, blocks};
use hbbp_code::locate::{Discard, Located, Tally, Unresolved, locate};
use hbbp_estimate::{BlockCounts, Method, Rule, estimate};
use hbbp_model::addr::{ImageAddr, Ring};
use hbbp_model::snapshot::{ModuleIdx, Snapshot, SourceLocations};

/// The analysis of a snapshot.
///
/// For each event, the samples of the snapshot are `resolved` plus `unresolved`, and its streams are `accepted` plus
/// `discarded`, in each ring, exactly.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// The instruction mix.
    pub mix: Mix,
    /// Samples on an instruction, by event. Those of the events of `counts.assignment.ebs` are the samples of the mix.
    pub resolved: Tally<()>,
    /// Unresolved samples, by event and reason.
    pub unresolved: Tally<Unresolved>,
    /// Accepted streams, by event.
    pub accepted: Tally<()>,
    /// Accepted streams that an interrupt or exception ended, before their last instruction was executed.
    pub interrupted: Tally<()>,
    /// Discarded streams, by event and reason.
    pub discarded: Tally<Discard>,
    /// Branches whose source cannot be located, by event and reason: they cannot flag a bias.
    pub lost_branches: Tally<Unresolved>,
    /// The contribution of each method to the mix, without those that contribute nothing.
    pub methods: Vec<MethodShare>,
    /// The blocks of the executed text.
    pub map: BlockMap,
    /// Executions of each block, with the chosen method and the reason.
    pub counts: BlockCounts,
}

/// The contribution of one method to a mix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MethodShare {
    /// The method.
    pub method: Method,
    /// Whether it counts streams that were balanced.
    pub balanced: bool,
    /// Number of blocks that it was chosen for.
    pub blocks: u64,
    /// Instructions of ring 0, in the unit of the mix.
    pub kernel: f64,
    /// Instructions of ring 3, in the unit of the mix.
    pub user: f64,
}

/// Computes the mix of a snapshot that a query asks for; the rule chooses a method for blocks that both methods have seen.
/// Dimensions that need source locations find none; [`Estimated`] takes them.
///
/// The snapshot must be consistent ([`Snapshot::check`]); inconsistent counts become unresolved.
pub fn analyse(snapshot: &Snapshot, query: &Query, rule: &Rule) -> Analysis {
    let estimated = Estimated::new(snapshot, rule);
    let mix = estimated.mix(query, &SourceLocations::new());
    estimated.analysis(mix)
}

/// A snapshot whose blocks were counted, and whose mix is still to be broken down.
pub struct Estimated<'a> {
    /// The snapshot.
    pub snapshot: &'a Snapshot,
    /// Its counts by location.
    pub located: Located,
    /// The blocks of its text.
    pub map: BlockMap,
    /// Executions of each block.
    pub counts: BlockCounts,
    /// Time by instruction, where it was sampled.
    pub time: Option<Time>,
}

impl<'a> Estimated<'a> {
    /// Counts the blocks of a snapshot.
    pub fn new(snapshot: &'a Snapshot, rule: &Rule) -> Self {
        let located = locate(snapshot);
        let map = blocks(snapshot, &located);
        Self::of(snapshot, located, map, rule)
    }

    /// Counts the blocks of the next snapshot of a run, whose text was mostly decoded before.
    pub fn next(snapshot: &'a Snapshot, rule: &Rule, decoded: &mut DecodedText) -> Self {
        let located = locate(snapshot);
        let map = decoded.blocks(snapshot, &located);
        Self::of(snapshot, located, map, rule)
    }

    fn of(snapshot: &'a Snapshot, mut located: Located, map: BlockMap, rule: &Rule) -> Self {
        let counts = estimate(snapshot, &mut located, &map, rule);
        let time = Time::new(snapshot, &located, &map, &counts);
        Self {
            snapshot,
            located,
            map,
            counts,
            time,
        }
    }

    /// Executions of each block.
    pub const fn counts(&self) -> &BlockCounts {
        &self.counts
    }

    /// Time, where it was sampled in addition to executions.
    pub(crate) const fn time(&self) -> Option<&Time> {
        self.time.as_ref()
    }

    /// The instructions that a mix by source lines needs the locations of.
    pub fn instructions(&self) -> impl Iterator<Item = (ModuleIdx, ImageAddr)> {
        self.counts.blocks.iter().flat_map(|block| {
            let text = self.map.text(block.block.text).into_iter();
            text.flat_map(|text| {
                let instructions = self.map.instructions(block.block).iter();
                instructions.map(|instruction| (text.module, text.addr(*instruction)))
            })
        })
    }

    /// Samples or branch stacks that the estimates rest on: the larger number, as each of them would hit executed code.
    pub fn samples(&self) -> f64 {
        let (Self { counts, .. }, mut in_mix) = (self, 0);
        for event in &counts.assignment.ebs {
            in_mix += counts.outcome.resolved.of_event(*event).total();
        }
        counts.sampling.n_stacks.max(in_mix as f64)
    }

    /// The mix that a query asks for. Where an instruction has no location, its function is used instead.
    pub fn mix(&self, query: &Query, locations: &SourceLocations) -> Mix {
        let asked = self.time.as_ref().filter(|_| query.asks_time());
        pivot(
            self.snapshot,
            &self.map,
            &self.counts,
            asked,
            query,
            Keys::new(self.snapshot, &self.map, query, locations),
        )
    }

    /// The whole analysis, with one of its mixes.
    pub fn analysis(self, mix: Mix) -> Analysis {
        let Self {
            located, map, counts, ..
        } = self;
        let mut unresolved = located.unresolved;
        unresolved.merge(&counts.outcome.unresolved);
        let mut discarded = located.discarded;
        discarded.merge(&counts.outcome.discarded);
        Analysis {
            mix,
            resolved: counts.outcome.resolved.clone(),
            unresolved,
            accepted: counts.outcome.accepted.clone(),
            interrupted: counts.outcome.interrupted.clone(),
            discarded,
            lost_branches: located.lost_branches,
            methods: shares(&counts),
            map,
            counts,
        }
    }
}

impl MethodShare {
    /// Instructions of both rings, in the unit of the mix.
    pub const fn instructions(&self) -> f64 {
        self.kernel + self.user
    }
}

fn shares(counts: &BlockCounts) -> Vec<MethodShare> {
    let share = |method| {
        let mut share = MethodShare {
            method,
            balanced: method == Method::Lbr && counts.biases.flow.is_some(),
            blocks: 0,
            kernel: 0.0,
            user: 0.0,
        };
        for block in counts.blocks.iter().filter(|b| b.method == method) {
            let amount = block.chosen().count * f64::from(block.instructions);
            if 0.0 < amount {
                share.blocks += 1;
            }
            match block.ring {
                Ring::Kernel => share.kernel += amount,
                Ring::User => share.user += amount,
            }
        }
        share
    };
    [Method::Ebs, Method::Lbr]
        .into_iter()
        .map(share)
        .filter(|share| 0 < share.blocks)
        .collect()
}

#[cfg(test)]
mod tests;
