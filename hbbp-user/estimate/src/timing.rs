//! What is assumed of a processor: the times of kinds of instructions, and the time from an overflow to its sample.
//!
//! An instruction that retires at a time triggers a sample. It is taken a skid later, on the instruction that is next to retire
//! then (papers: HBBP, section III.A; "Can We Trust Profiling Results?", ICS 2019, equation 1). All instructions of a block run equally
//! often, so that the samples on each of them show what it and those before it take. The parameters are those that make the places
//! of the samples within blocks most likely, in view of what manuals know of the times.

use std::cmp::Ordering;

use crate::sums::at;
use hbbp_model::kinds::{KNOWN_TIMES, Kinds, N_KINDS, kind};

/// The longest skid in cycles.
pub(super) const LONGEST: f64 = 120.0;

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

/// What is assumed of a processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Model {
    /// Cycles by kind of instruction.
    pub(super) times: Kinds,
    /// Least and longest skid in cycles; any between is as likely.
    pub(super) skid: (f64, f64),
}

impl Model {
    /// Times as manuals have them.
    pub(super) fn with_skid(low: f64, high: f64) -> Self {
        Self {
            times: KNOWN_TIMES.map(|(time, _)| time),
            skid: (low, high),
        }
    }

    /// What an instruction of a kind takes.
    pub(super) fn time(&self, kind: u8) -> f64 {
        at(&self.times, usize::from(kind))
    }

    /// The part of the samples that are taken before this time has passed.
    pub(super) fn taken(&self, time: f64) -> f64 {
        let (low, high) = self.skid;
        ((time - low) / (high - low)).clamp(0.0, 1.0)
    }

    /// The logarithm of how likely these times are, by manuals.
    pub(super) fn likelihood(&self) -> f64 {
        let of = |(time, (known, off)): (&f64, (f64, f64))| {
            let deviation = (time / known).ln() / off.ln();
            -deviation * deviation / 2.0
        };
        self.times.iter().zip(KNOWN_TIMES).map(of).sum()
    }

    /// Steps along each parameter as long as the model gets better, in turn and each time by smaller steps. `of` says how likely a model
    /// is, from what was computed for the last one; no skid is longer than `longest`, and no instruction is of the kinds that are `unused`.
    pub(super) fn refined<S>(
        self,
        state: &S,
        rounds: usize,
        longest: f64,
        unused: &[usize],
        mut of: impl FnMut(&Self, &S) -> (f64, S),
    ) -> (Self, S, f64) {
        let mut model = self;
        let (mut best, mut state) = of(&model, state);
        let mut steps = [0.35; N_KINDS + 2];
        for _ in 0..rounds {
            for (parameter, step) in steps.iter_mut().enumerate() {
                if unused.contains(&parameter) {
                    continue;
                }
                let mut is_better = false;
                for by in [*step, -*step] {
                    while let Some(next) = model.moved(parameter, by, longest) {
                        let (likelihood, with) = of(&next, &state);
                        // What cannot be compared is not better.
                        if likelihood.partial_cmp(&best) != Some(Ordering::Greater) {
                            break;
                        }
                        (best, model, state, is_better) = (likelihood, next, with, true);
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
        (model, state, best)
    }

    /// With a parameter that is larger by a part, or smaller: the time of a kind, the least skid, the longest. `None` if that is
    /// not to be. Times are in those of plain instructions, and that of a taken branch is in no skid.
    fn moved(mut self, parameter: usize, by: f64, longest: f64) -> Option<Self> {
        let (low, high) = self.skid;
        match parameter {
            kind::PLAIN | kind::TAKEN => return None,
            N_KINDS => self.skid.0 = low + by * (high - low) / 2.0,
            parameter if N_KINDS < parameter => self.skid.1 = high * (by / 2.0).exp(),
            parameter => *self.times.get_mut(parameter)? *= by.exp(),
        }
        let (low, high) = self.skid;
        (-1.0 <= low && low + 0.5 < high && high <= longest).then_some(self)
    }
}

/// The logarithm of how likely the samples on the instructions of a block are, by those that are expected.
pub(super) fn likelihood_within(expected: &[f64], samples: &[f64]) -> f64 {
    let all: f64 = expected.iter().sum();
    if all <= 0.0 {
        return 0.0;
    }
    let anywhere = ANYWHERE / expected.len() as f64;
    let sampled = expected
        .iter()
        .zip(samples)
        .filter(|(_, samples)| 0.0 < **samples);
    let of =
        |(expected, samples): (&f64, &f64)| samples * ((1.0 - ANYWHERE) * expected / all + anywhere).ln();
    sampled.map(of).sum()
}
