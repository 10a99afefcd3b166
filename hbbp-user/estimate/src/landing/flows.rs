//! How often blocks ran: flows that are conserved and explain the samples.
//!
//! Unknown is how often each block ran, each way out of a conditional branch was gone, and control came from elsewhere. What
//! runs into a block runs out of it, and the samples of a block are those that the flows make of it ([`super::skid`]), by chance
//! more or fewer. Where nothing tells, a branch goes either way. The unknowns are positive, so Newton's method runs on their
//! logarithms; the equations are linear then but for their scale, and solved as those of the balance are.

use super::super::flow::least_squares::{Equation, Solver};
use super::code::Code;
use crate::sums::at;

/// What is taken for known before the samples are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prior {
    /// What of a flow is lost or comes in on the way, by interrupts and branches that the code does not tell: a standard
    /// deviation, as a share.
    pub(super) conserved: f64,
    /// How far the expected samples of a block are off besides chance: a standard deviation, as a share.
    pub(super) model: f64,
    /// The share of conditional branches that are taken, and the standard deviation of its log odds.
    pub(super) taken: (f64, f64),
    /// The share of the calls of a function that come from elsewhere than its known callers, and the standard deviation of its
    /// logarithm.
    pub(super) elsewhere: (f64, f64),
    /// Inverse variance of the logarithm of each step.
    pub(super) damping: f64,
}

/// An unknown becomes no more than this number of times larger or smaller in a step.
const STEP: f64 = 4.0;

/// No unknown is smaller, in executions for each sample of an instruction.
const LEAST: f64 = 1e-12;

/// Flows to begin with: blocks have their own samples and half as many of their text.
pub(super) fn first(code: &Code) -> Vec<f64> {
    let mut x = vec![LEAST; code.places.len()];
    for text in code.nodes.chunk_by(|a, b| a.id.text == b.id.text) {
        let hits: f64 = text.iter().map(|node| node.hits()).sum();
        let length: f64 = text.iter().map(|node| node.length()).sum();
        let first = text
            .first()
            .and_then(|first| code.nodes.binary_search_by_key(&first.id, |node| node.id).ok());
        for (n, node) in (first.unwrap_or(code.nodes.len())..).zip(text) {
            if let Some(x) = x.get_mut(n) {
                *x = ((node.hits() / node.length() + 0.5 * hits / length) / 1.5).max(LEAST);
            }
        }
    }
    for conditional in &code.conditionals {
        let node = code.nodes.get(conditional.node);
        let to = |n: Option<usize>| n.map_or(0.0, |n| at(&x, n));
        let (taken, falls) = node.map_or((0.0, 0.0), |node| (to(node.target), to(node.next)));
        let share = (taken / (taken + falls).max(LEAST)).clamp(0.05, 0.95);
        let ran = at(&x, conditional.node);
        set(&mut x, conditional.taken, ran * share);
        set(&mut x, conditional.falls, ran * (1.0 - share));
    }
    for external in &code.external {
        let ran = at(&x, external.node);
        set(
            &mut x,
            external.unknown,
            if external.is_alone { ran } else { 0.2 * ran },
        );
    }
    let mut sums = vec![(0.0, 0.0); code.n_places];
    for (x, place) in x.iter().zip(&code.places) {
        if let Some((sum, n)) = sums.get_mut(*place) {
            *sum += x;
            *n += 1.0;
        }
    }
    let mean = |place: &usize| sums.get(*place).map_or(LEAST, |(sum, n)| sum / n);
    code.places.iter().map(mean).collect()
}

fn set(x: &mut [f64], n: usize, value: f64) {
    if let Some(x) = x.get_mut(n) {
        *x = value;
    }
}

/// One step. `terms` are the samples of each node as unknowns and what each of their executions adds.
pub(super) fn step(code: &Code, terms: &[Vec<(usize, f64)>], prior: &Prior, x: &mut [f64]) {
    let mut equations = Vec::with_capacity(2 * code.nodes.len() + x.len());
    for (node, terms) in code.nodes.iter().zip(terms) {
        let terms: Vec<(usize, f64)> = terms.iter().map(|(n, factor)| (*n, factor * at(x, *n))).collect();
        let expected: f64 = terms.iter().map(|(_, samples)| samples).sum();
        let off = prior.model * expected;
        equations.push(Equation {
            terms,
            value: node.hits() - expected,
            weight: 1.0 / (expected + off * off).max(LEAST),
        });
    }
    let conserved = 1.0 / (prior.conserved * prior.conserved);
    let mut sum = |node: usize, parts: &mut dyn Iterator<Item = usize>| {
        let mut terms: Vec<(usize, f64)> = parts.map(|part| (part, at(x, part))).collect();
        let all: f64 = terms.iter().map(|(_, part)| part).sum();
        let ran = at(x, node);
        let scale = ran.max(all);
        terms.push((node, -ran));
        terms.iter_mut().for_each(|(_, term)| *term /= scale);
        equations.push(Equation {
            terms,
            value: (ran - all) / scale,
            weight: conserved,
        });
    };
    for (n, ways) in code.ways.iter().enumerate().filter(|(_, ways)| 1 < ways.len()) {
        sum(n, &mut ways.iter().map(|way| way.unknown));
    }
    for of in &code.conditionals {
        sum(of.node, &mut [of.taken, of.falls].into_iter());
    }
    let mut ratio = |a: usize, b: usize, expected: f64, deviation: f64| {
        equations.push(Equation {
            terms: vec![(a, 1.0), (b, -1.0)],
            value: (expected * at(x, b) / at(x, a)).ln(),
            weight: 1.0 / (deviation * deviation),
        });
    };
    let (taken, odds) = prior.taken;
    for of in &code.conditionals {
        ratio(of.taken, of.falls, taken / (1.0 - taken), odds);
    }
    let (share, deviation) = prior.elsewhere;
    for external in code.external.iter().filter(|external| !external.is_alone) {
        ratio(external.unknown, external.node, share, deviation);
    }
    // Along the code, the factor of the equations is nearly whole.
    for (n, _) in equations.iter_mut().flat_map(|equation| &mut equation.terms) {
        *n = code.places.get(*n).copied().unwrap_or(*n);
    }
    equations.extend((0..code.n_places).map(|n| Equation {
        terms: vec![(n, 1.0)],
        value: 0.0,
        weight: prior.damping,
    }));
    let steps = Solver::default().solve(&equations, &vec![0.0; code.n_places]);
    for (x, place) in x.iter_mut().zip(&code.places) {
        let step = at(&steps, *place);
        *x = (*x * (1.0 + step).clamp(1.0 / STEP, STEP)).max(LEAST);
    }
}
