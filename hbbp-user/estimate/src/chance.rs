//! What of the estimate is left to chance: stacks drawn anew, the phases of the run, and what a balance took out.

use super::error::{self, Dispersion, Moved, Replicate, Strata};
use super::sources::{Counted, SeenBlocks};
use super::stages::{Stage, Stages};
use super::weighed::Weighed;
use hbbp_code::blocks::BlockMap;

/// What errors by chance follow from.
pub(super) struct Chance {
    pub(super) replicates: Vec<Replicate>,
    pub(super) strata: Strata,
    pub(super) dispersion: Dispersion,
    /// As many stacks as would tell as much without a balance.
    pub(super) effective_stacks: f64,
}

impl Chance {
    /// Of these streams, in stacks of `depth`, and samples.
    pub(super) fn new(
        map: &BlockMap,
        (weighed, dispersion): (&Weighed, Dispersion),
        (seen, samples): (&SeenBlocks, &[Counted]),
        (n_stacks, depth, n_samples): (f64, f64, f64),
        stages: Stages,
    ) -> Self {
        let Weighed {
            streams,
            graph,
            phases,
            ..
        } = weighed;
        let draw = || error::replicates(streams, graph, seen, phases, depth);
        let replicates = stages.run(Stage::Bootstrap).then(draw).unwrap_or_default();
        let strata = Strata::new(phases, graph, seen, samples, n_samples, &replicates);
        let worth = |moved: &Moved| {
            let drawn = (replicates.as_slice(), &strata);
            moved.effective_stacks((map, seen), drawn, (&dispersion, n_stacks))
        };
        Self {
            effective_stacks: weighed.moved.as_ref().map_or(n_stacks, worth),
            replicates,
            strata,
            dispersion,
        }
    }

    /// For each block, the relative standard error of its count by streams ([`error::of_blocks`]).
    pub(super) fn of_blocks(&self) -> Vec<Option<f64>> {
        error::of_blocks(
            &self.replicates,
            &self.strata,
            &self.dispersion,
            self.effective_stacks,
        )
    }
}
