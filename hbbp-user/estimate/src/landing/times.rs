//! The times of kinds of instructions and the skid ([`Model`]), from how samples lie within the blocks of the static control flow graph.

use super::super::timing::{LONGEST, Model, likelihood_within};
use super::code::Code;
use super::skid::Histories;

/// What the fit is made of.
#[derive(Clone, Copy)]
pub(super) struct Fit<'a> {
    pub(super) code: &'a Code,
    /// The flows.
    pub(super) x: &'a [f64],
    /// Nodes with samples.
    pub(super) sampled: &'a [usize],
}

/// A model with what it makes of the flows.
pub(super) type Fitted = (Model, Histories);

impl Fit<'_> {
    /// The log-likelihood of a model, to be maximised, and what has retired according to the model.
    fn of(&self, model: &Model, from: &Histories, blocks: usize) -> (f64, Histories) {
        let mut histories = from.with(self.code, model, self.x);
        for _ in 0..blocks {
            histories.carry(self.code, model, self.x);
        }
        let nodes = self
            .sampled
            .iter()
            .filter_map(|n| Some((*n, self.code.nodes.get(*n)?)));
        let of_nodes = nodes
            .filter(|(_, node)| 1 < node.kinds.len())
            .map(|(n, node)| likelihood_within(&histories.landed(model, n, node), &node.samples));
        let sum = model.likelihood() + of_nodes.sum::<f64>();
        (sum, histories)
    }

    /// The best of some skids.
    pub(super) fn begin(&self, skids: &[(f64, f64)], blocks: usize) -> Option<Fitted> {
        let of = |(low, high): &(f64, f64)| {
            let model = Model::with_skid(*low, *high);
            let (fit, histories) = self.of(&model, &Histories::new(self.code, &model, self.x), blocks);
            (fit, (model, histories))
        };
        let best = skids.iter().map(of).max_by(|(a, _), (b, _)| a.total_cmp(b));
        best.map(|(_, fitted)| fitted)
    }

    /// The model refined ([`Model::refined`]).
    pub(super) fn refine(&self, (model, histories): Fitted, blocks: usize, rounds: usize) -> Fitted {
        let of = |model: &Model, histories: &Histories| self.of(model, histories, blocks);
        let (model, histories, _) = model.refined(&histories, rounds, LONGEST, &[], of);
        (model, histories)
    }
}
