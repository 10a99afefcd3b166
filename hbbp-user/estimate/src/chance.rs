//! What of the estimate is left to chance: stacks drawn anew, the phases of the run, and what a balance took out.

use super::basis::Basis;
use super::error::{Dispersion, Moved, Replicate, Strata, of_blocks, replicates};
use super::sampling::Sampling;
use super::sources::Observed;
use super::stages::Stage;
use super::weighed::Weighed;

/// What errors by chance follow from.
#[derive(Clone, Debug, PartialEq)]
pub struct Chance {
    /// Bootstrap replicates of stacks, for the errors of what is computed from the streams.
    pub replicates: Vec<Replicate>,
    /// The phases of the run.
    pub(crate) strata: Strata,
    /// Where stacks do not count alike, how much counts vary beside those of stacks that do.
    pub(crate) dispersion: Dispersion,
    /// As many stacks would tell as much without a balance, where it took out chance alone; else as many as there were.
    pub(crate) effective_stacks: f64,
}

impl Chance {
    /// Of these streams and samples.
    pub(super) fn new(
        basis: Basis<'_>,
        weighed: &Weighed,
        dispersion: Dispersion,
        observed: Observed<'_>,
        sampling: Sampling,
    ) -> Self {
        let Weighed {
            streams,
            graph,
            phases,
            ..
        } = weighed;
        let Observed {
            seen,
            samples,
            kernel,
            ..
        } = observed;
        let Sampling {
            n_stacks, n_samples, ..
        } = sampling;
        let draw = || replicates(streams, graph, seen, kernel, phases, sampling.streams_per_stack);
        let replicates = basis.runs(Stage::Bootstrap).then(draw).unwrap_or_default();
        let strata = Strata::new(phases, graph, seen, samples, n_samples, &replicates);
        let worth = |moved: &Moved| {
            moved.effective_stacks(basis.map, seen, &replicates, &strata, &dispersion, n_stacks)
        };
        Self {
            effective_stacks: weighed.moved.as_ref().map_or(n_stacks, worth),
            replicates,
            strata,
            dispersion,
        }
    }

    /// For each block, the relative standard error of its count by streams ([`of_blocks`]).
    pub(super) fn of_blocks(&self) -> Vec<Option<f64>> {
        of_blocks(
            &self.replicates,
            &self.strata,
            &self.dispersion,
            self.effective_stacks,
        )
    }
}
