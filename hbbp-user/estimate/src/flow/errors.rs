//! How wrong streams and their successions can be: by chance, and by the bias of the oldest slots.

use super::graph::FlowGraph;
use super::least_squares::Equation;
use crate::sums::at;

/// Fewest streams that a variance is taken for: no inflow is known to less than half a stream.
pub(super) const FEWEST: f64 = 0.5;

/// How wrong streams and their successions can be.
///
/// By chance, and by the bias: a share of the streams of each start is of stacks that were taken at the wrong moment
/// ([`super::excess`]). Of what is measured that is this share; of a succession with probability p, whose odds can be off by
/// this share, it is p (1-p) times as much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Errors<'a> {
    /// Streams of a stack: together they tell as much as one alone.
    pub(crate) streams_per_stack: f64,
    /// By start; nothing is off where there is none.
    pub(crate) excess: &'a [f64],
    /// By start, the variance of its streams over that of as many that count one each; 1 where there is none.
    pub(crate) dispersion: &'a [f64],
}

impl Errors<'_> {
    /// Inflow is what was measured.
    pub(super) fn measured(self, graph: &FlowGraph, inflow: &[f64]) -> Vec<Equation> {
        let equation = |((start, measured), inflow): ((usize, &f64), &f64)| {
            let bias = at(self.excess, start) * inflow;
            Equation {
                terms: vec![(start, 1.0)],
                value: *measured,
                weight: 1.0 / (self.of_stacks(start) * inflow.max(FEWEST) + bias * bias),
            }
        };
        let measured = graph.inflow.iter().enumerate().zip(inflow);
        measured.map(equation).collect()
    }

    /// The dispersion of a start.
    pub(super) fn of_start(self, start: usize) -> f64 {
        self.dispersion.get(start).copied().unwrap_or(1.0)
    }

    /// The variance of the inflow of a start, over it: the streams of a stack tell as much as one.
    pub(super) fn of_stacks(self, start: usize) -> f64 {
        self.streams_per_stack.max(1.0) * self.of_start(start)
    }

    /// Variance of how often one way of several was taken, with this share of the choices: as that of a Poisson count, since the ways of a
    /// choice together add up to it. `start` is the one that it leads from or to.
    pub(super) fn of_way(self, start: usize, share: f64, often: f64) -> f64 {
        let variance = self.of_start(start) * often;
        let bias = at(self.excess, start) * variance * (1.0 - share);
        variance + bias * bias
    }
}

/// Stacks of 15 streams without a bias.
#[cfg(test)]
pub(super) const FAIR: Errors<'_> = Errors {
    streams_per_stack: 15.0,
    excess: &[],
    dispersion: &[],
};
