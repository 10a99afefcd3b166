//! The times of kinds of instructions and the skid, from how samples lie within blocks.
//!
//! All instructions of a block run equally often, so that the samples on each of them show what it and those before it take.
//! The parameters are those that make the places of the samples most likely, in view of what manuals know of the times.

use super::code::Code;
use super::skid::{Histories, LONGEST, Model};
use crate::kinds::{KNOWN_TIMES, N_KINDS, kind};

/// The share of the samples of a block that may lie anywhere in it: interrupts, and code that the model does not know.
const ANYWHERE: f64 = 0.01;

/// Skids to begin with, in cycles: those of precise events, and those of interrupts that come late.
pub(super) const SKIDS: [&[(f64, f64)]; 2] = [
    &[(-1.0, 0.0), (0.0, 2.0), (0.0, 4.0), (0.0, 8.0), (0.0, 16.0)],
    &[
        (0.0, 32.0),
        (4.0, 16.0),
        (8.0, 32.0),
        (16.0, 48.0),
        (16.0, 80.0),
        (32.0, 100.0),
    ],
];

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
    /// The logarithm of the likelihood of a model, which is to be as large as possible, and what has retired by it.
    fn of(&self, model: &Model, from: &Histories, blocks: usize) -> (f64, Histories) {
        let mut histories = from.with(self.code, model, self.x);
        for _ in 0..blocks {
            histories.carry(self.code, model, self.x);
        }
        let mut sum = 0.0;
        for (time, (known, off)) in model.times.iter().zip(KNOWN_TIMES) {
            let deviation = (time / known).ln() / off.ln();
            sum -= deviation * deviation / 2.0;
        }
        let nodes = self
            .sampled
            .iter()
            .filter_map(|n| Some((*n, self.code.nodes.get(*n)?)));
        for (n, node) in nodes.filter(|(_, node)| 1 < node.kinds.len()) {
            let landed = histories.landed(model, n, node);
            let all: f64 = landed.iter().sum();
            let anywhere = ANYWHERE / node.length();
            for (landed, hits) in landed.iter().zip(&node.samples) {
                if 0.0 < *hits && 0.0 < all {
                    sum += hits * ((1.0 - ANYWHERE) * landed / all + anywhere).ln();
                }
            }
        }
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

    /// Steps along each parameter as long as the fit gets better, in turn and each time by smaller steps.
    pub(super) fn refine(&self, (mut model, histories): Fitted, blocks: usize, rounds: usize) -> Fitted {
        let (mut best, mut histories) = self.of(&model, &histories, blocks);
        let mut steps = [0.35; N_KINDS + 2];
        for _ in 0..rounds {
            for (parameter, step) in steps.iter_mut().enumerate() {
                let mut is_better = false;
                for by in [*step, -*step] {
                    while let Some(next) = moved(&model, parameter, by) {
                        let (fit, with) = self.of(&next, &histories, blocks);
                        if fit <= best {
                            break;
                        }
                        (best, model, histories, is_better) = (fit, next, with, true);
                    }
                    if is_better {
                        break;
                    }
                }
                if !is_better {
                    *step /= 2.5;
                }
            }
        }
        (model, histories)
    }
}

/// A model with a parameter that is larger by a part, or smaller: the time of a kind, the least skid, the longest. `None` where
/// that is not to be. Times are in those of plain instructions, and that of a taken branch is in no skid.
fn moved(model: &Model, parameter: usize, by: f64) -> Option<Model> {
    let mut model = *model;
    let (low, high) = model.skid;
    match parameter {
        kind::PLAIN | kind::TAKEN => return None,
        N_KINDS => model.skid.0 = low + by * (high - low) / 2.0,
        parameter if N_KINDS < parameter => model.skid.1 = high * (by / 2.0).exp(),
        parameter => *model.times.get_mut(parameter)? *= by.exp(),
    }
    let (low, high) = model.skid;
    (-1.0 <= low && low + 0.5 < high && high <= LONGEST).then_some(model)
}
