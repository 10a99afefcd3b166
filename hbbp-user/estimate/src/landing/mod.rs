//! Executions from eventing IPs alone, where there are no branch stacks: samples are traced back to what triggered them.
//!
//! ```text
//! samples by instruction, text
//!    |
//!  hottest  those in the hottest text
//!    |  Hits
//!  code     the static control flow graph: what can have run before a block
//!    |  Code
//!  times    what kinds of instructions take, and the skid, from how samples lie within blocks
//!    |  Model
//!  skid     what retired before each block, and so which samples its executions leave where
//!    |  terms
//!  flows    how often each block ran: conserved, and such that the samples are explained
//!    |
//!  processes  what each process image has of them
//!    |
//! executions by block
//! ```
//!
//! Times and skid depend a little on the flows, and the flows on both, so they are fitted in turn.

mod blocks;
mod code;
mod flows;
mod hottest;
mod processes;
#[cfg(test)]
mod simple_loops;
mod skid;
mod times;
mod ways;

use super::sources::Counted;
use super::sources::ebs::by_instruction;
use super::stages::{Stage, Stages};
use super::timing::{Model, SKIDS};
use super::{EventAssignment, Unit};
use crate::sums::{at, over};
use code::Code;
use flows::Prior;
use hbbp_code::blocks::BlockMap;
use hbbp_code::locate::Located;
use hbbp_model::snapshot::Snapshot;
use hottest::hottest;
use processes::shared;
use skid::Histories;
use times::Fit;

/// See [`Prior`].
const PRIOR: Prior = Prior {
    conserved: 0.03,
    model: 0.05,
    taken: (0.4, 1.5),
    elsewhere: (0.1, 1.5),
    damping: 0.05,
};

/// Steps of the flows before there is a model.
const STEPS_BEFORE: usize = 3;

/// Times and flows are fitted in turn as often as this.
const ROUNDS: usize = 2;

/// Steps of the flows in a round.
const STEPS: usize = 2;

/// Blocks that are looked back over when a model is chosen, before each step, and when a parameter moves.
const BLOCKS: (usize, usize, usize) = (8, 2, 2);

/// Bytes of text that a model is fitted to: the hottest functions, a thousand or so, in a few seconds.
const FITTED: usize = 128 << 10;

/// Bytes of text that samples are traced back in, the hottest: for the 2,700 texts of a run of gcc this takes 270 MB of memory, and
/// anybody may run more code.
const TRACED: usize = 2 << 20;

/// How often each parameter of the model is moved in a round.
const MOVES: usize = 3;

/// Expected samples of a block from which on its deviation tells how far the model is off (Cochran's rule).
const ENOUGH: f64 = 5.0;

/// Models whose dispersions differ by less explain the samples alike. On the emulated machine they differed by 0.003 at most where
/// both had the same skid, else by 0.08 at least (gcc, forks, modules, perl, heapsort; 6.12, ivb).
const ALIKE: f64 = 0.01;

/// What was found of the skid of samples that were traced back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Skid {
    /// Least and longest skid, in the time of a plain instruction.
    pub cycles: (f64, f64),
    /// Variance of the samples of a block over that of chance, at least 1.
    pub(crate) dispersion: f64,
    /// Instructions that all samples represent: as many as before they were traced back.
    pub all: f64,
    /// The share of the samples that count where they landed, as they are in more code than is traced.
    pub landed: f64,
}

/// How far figures are off besides chance, as a share: a standard deviation. With 0.04, 93 to 98 % of the
/// mnemonics on the emulated machine are within two standard errors (kernel-tests/results/without-stacks.txt, at the end).
const MODEL_ERROR: f64 = 0.04;

impl Skid {
    /// Variance of a number of instructions besides that of chance. What one part has too much, another one lacks.
    pub(super) fn variance(&self, instructions: f64) -> f64 {
        let others = (1.0 - over(instructions, self.all)).clamp(0.0, 1.0);
        (MODEL_ERROR * instructions * others).powi(2)
    }

    /// Standard error of the count of a block with these expected samples.
    pub(super) fn std_error(&self, hits: f64, count: f64) -> f64 {
        let of_model = (MODEL_ERROR * count).powi(2);
        (of_model + self.dispersion * count * over(count, hits)).sqrt()
    }
}

/// Traces samples back along the code where their number says how often instructions were executed, and there are no stacks. Some
/// text must be small enough to fit a model to. Other samples stay. `samples` are those of the events that serve; the result is
/// sorted as they are, and its hits are expected samples.
pub(super) fn traced(
    snapshot: &Snapshot,
    map: &BlockMap,
    located: &Located,
    assignment: &EventAssignment,
    samples: Vec<Counted>,
    stages: Stages,
) -> (Vec<Counted>, Option<Skid>) {
    let is_due = assignment.unit == Unit::Executions && assignment.lbr.is_empty() && !samples.is_empty();
    if !is_due || !stages.run(Stage::Landing) {
        return (samples, None);
    }
    let (hits, weight) = samples
        .iter()
        .fold((0.0, 0.0), |(hits, weight), c| (hits + c.hits, weight + c.weight));
    let by_instruction = by_instruction(map, located, assignment, over(hits, weight));
    let all: f64 = by_instruction.values().sum();
    let by_instruction = hottest(snapshot, map, &by_instruction, TRACED);
    let traced: f64 = by_instruction.values().sum();
    let fitted_to = hottest(snapshot, map, &by_instruction, FITTED);
    if fitted_to.is_empty() {
        return (samples, None);
    }
    let mut code = Code::new(snapshot, map, &fitted_to);
    let Some(mut found) = fitted(&code) else {
        return (samples, None);
    };
    if fitted_to.len() < by_instruction.len() {
        code = Code::new(snapshot, map, &by_instruction);
        found = with_model(&code, found.model);
    }
    let Fitted { model, x, dispersion } = found;
    let skid = Skid {
        cycles: model.skid,
        dispersion: dispersion.max(1.0),
        all: weight,
        landed: 1.0 - over(traced, all),
    };
    (shared(&code, &x, over(weight, hits), samples), Some(skid))
}

/// What was fitted to samples.
struct Fitted {
    model: Model,
    /// The unknowns.
    x: Vec<f64>,
    /// Variance of the samples of a block over that of chance.
    dispersion: f64,
}

/// Begins with short skids and with long ones: within short blocks both look alike, and the flows tell. Where they do not, the short
/// ones are the simpler explanation.
fn fitted(code: &Code) -> Option<Fitted> {
    let x = without_skid(code);
    let fits = SKIDS
        .iter()
        .filter_map(|skids| fitted_from(code, skids, x.clone()));
    fits.reduce(
        |shorter, longer| match shorter.dispersion - longer.dispersion < ALIKE {
            true => shorter,
            false => longer,
        },
    )
}

/// Flows that explain the samples as if these had no skid, to begin with.
fn without_skid(code: &Code) -> Vec<f64> {
    let own = |(n, node): (usize, &code::Node)| vec![(n, node.length())];
    let terms: Vec<Vec<(usize, f64)>> = code.nodes.iter().enumerate().map(own).collect();
    let mut x = flows::first(code);
    for _ in 0..STEPS_BEFORE {
        flows::step(code, &terms, &PRIOR, &mut x);
    }
    x
}

fn fitted_from(code: &Code, skids: &[(f64, f64)], mut x: Vec<f64>) -> Option<Fitted> {
    let numbered = code.nodes.iter().enumerate();
    let sampled: Vec<usize> = numbered
        .filter(|(_, node)| 0.0 < node.hits())
        .map(|(n, _)| n)
        .collect();
    let sampled = sampled.as_slice();
    let (at_first, _, at_move) = BLOCKS;
    let (mut model, mut histories) = Fit { code, x: &x, sampled }.begin(skids, at_first)?;
    let mut dispersion = 0.0;
    for _ in 0..ROUNDS {
        (model, histories) = Fit { code, x: &x, sampled }.refine((model, histories), at_move, MOVES);
        dispersion = explain(code, &model, &mut histories, &mut x);
    }
    Some(Fitted { model, x, dispersion })
}

/// Flows by a model that was fitted to a part of the code.
fn with_model(code: &Code, model: Model) -> Fitted {
    let mut x = without_skid(code);
    let mut histories = Histories::new(code, &model, &x);
    let (at_first, ..) = BLOCKS;
    for _ in 0..at_first {
        histories.carry(code, &model, &x);
    }
    let dispersion = explain(code, &model, &mut histories, &mut x);
    Fitted { model, x, dispersion }
}

/// Changes flows so that they explain the samples. Returns the dispersion that is left.
fn explain(code: &Code, model: &Model, histories: &mut Histories, x: &mut [f64]) -> f64 {
    let (_, at_step, _) = BLOCKS;
    let mut terms = Vec::new();
    for _ in 0..STEPS {
        for _ in 0..at_step {
            histories.carry(code, model, x);
        }
        terms = (0..code.nodes.len())
            .map(|n| histories.terms(code, model, n))
            .collect();
        flows::step(code, &terms, &PRIOR, x);
    }
    dispersion(code, &terms, x)
}

/// The mean square of the deviations of samples over their variance by chance.
fn dispersion(code: &Code, terms: &[Vec<(usize, f64)>], x: &[f64]) -> f64 {
    let (mut squares, mut n) = (0.0, 0.0);
    for (node, terms) in code.nodes.iter().zip(terms) {
        let expected: f64 = terms.iter().map(|(n, factor)| factor * at(x, *n)).sum();
        if ENOUGH <= expected {
            let off = node.hits() - expected;
            squares += off * off / expected;
            n += 1.0;
        }
    }
    over(squares, n)
}

#[cfg(test)]
mod tests {
    use super::simple_loops::{Looped, looped, off};
    use super::*;

    #[test]
    fn samples_go_back_to_what_triggered_them() {
        // A skid longer than a round blurs it.
        for (longest, bound) in [(8, 0.03), (30, 0.06)] {
            let looped = looped(1..=longest);
            let Fitted { model, x, .. } = fitted(&looped.code).unwrap();
            let nodes = &looped.code.nodes;
            let before = off(&looped, &|n| nodes[n].hits());
            let after = off(&looped, &|n| x[n] * nodes[n].length());
            assert!(0.1 < before, "{before}");
            assert!(after < bound, "{after} of {longest}: {model:?}");
        }
    }

    #[test]
    fn without_skid_samples_stay() {
        let Looped {
            mut code, triggered, ..
        } = looped(1..=8);
        for (node, triggered) in code.nodes.iter_mut().zip(&triggered) {
            let each = triggered / node.length();
            node.samples.fill(each);
        }
        let Fitted { x, dispersion, .. } = fitted(&code).unwrap();
        for ((node, x), triggered) in code.nodes.iter().zip(&x).zip(&triggered) {
            let share = x * node.length() / triggered;
            assert!((share - 1.0).abs() < 0.02, "{share}");
        }
        assert!(dispersion < 1.5, "{dispersion}");
    }
}
