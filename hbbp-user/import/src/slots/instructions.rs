//! The instructions around each branch, where time triggered stacks and their records do not hold it.

use super::class::{Class, PRIOR_STREAMS, STEPS};
use super::neighbours::Pairs;
use super::times::{Row, time};
use hbbp_model::kinds::{Kinds, N_KINDS};

/// Branches of which instructions are kept.
const CAPACITY: usize = 1 << 20;

/// By the number of a branch.
#[derive(Debug, Default)]
pub(super) struct Instructions {
    of: Vec<OfBranch>,
}

/// Sums over streams and stacks.
#[derive(Clone, Debug, Default)]
struct OfBranch {
    /// Of streams after it, in older slots, as [`super::class::Costs::passed`].
    behind: Kinds,
    n_behind: f64,
    /// Of all streams in stacks that it triggered.
    inside: Kinds,
    n_inside: f64,
    /// Those of its stacks whose sample is in the code after their newest branch. Others were taken at another moment
    /// than they show: they represent the time around, not that of the stream after their trigger.
    confirmed: f64,
}

/// A sum of streams divided by their number.
fn mean(sum: &Kinds, n: f64) -> Kinds {
    sum.map(|sum| sum / n)
}

/// Adds the instructions of streams.
fn add(sum: &mut Kinds, kinds: &Kinds, times: f64) {
    for (sum, n) in sum.iter_mut().zip(kinds) {
        *sum += n * times;
    }
}

impl Instructions {
    fn of(&mut self, branch: u32) -> Option<&mut OfBranch> {
        let at = usize::try_from(branch).ok().filter(|at| *at < CAPACITY)?;
        if self.of.len() <= at {
            self.of.resize_with(at + 1, OfBranch::default);
        }
        self.of.get_mut(at)
    }

    /// Adds stacks of a trigger.
    pub(super) fn triggered(&mut self, trigger: u32, is_confirmed: bool, times: f64) {
        if let Some(of) = self.of(trigger).filter(|_| is_confirmed) {
            of.confirmed += times;
        }
    }

    /// Adds a stream in stacks of a trigger, and after a branch.
    pub(super) fn add(&mut self, trigger: u32, behind: Option<u32>, kinds: &Kinds, times: f64) {
        if let Some(of) = self.of(trigger) {
            add(&mut of.inside, kinds, times);
            of.n_inside += times;
        }
        if let Some(of) = behind.and_then(|behind| self.of(behind)) {
            add(&mut of.behind, kinds, times);
            of.n_behind += times;
        }
    }

    /// The events of which the text of most streams is known.
    pub(super) fn known_events(&self, classes: &[Class]) -> Vec<u32> {
        let mut known: Vec<(u32, f64, f64)> = Vec::new();
        for (class, of) in classes.iter().zip(&self.of) {
            let at = known.iter().position(|(event, ..)| *event == class.event);
            let at = at.unwrap_or_else(|| {
                known.push((class.event, 0.0, 0.0));
                known.len() - 1
            });
            if let Some((_, with_text, all)) = known.get_mut(at) {
                *with_text += of.n_inside;
                *all += class.costs.n_in_stacks;
            }
        }
        let known = known
            .into_iter()
            .filter(|(_, with_text, all)| 0.0 < *with_text && *all <= 2.0 * with_text);
        known.map(|(event, ..)| event).collect()
    }

    /// By branch: which part of the stacks around it is confirmed.
    pub(super) fn confirmed(&self, classes: &[Class], pairs: &Pairs) -> Vec<f64> {
        let part = |(at, class): (usize, &Class)| {
            let confirmed = self.of.get(at).map_or(0.0, |of| of.confirmed);
            if 0.0 < class.triggered {
                confirmed / class.triggered
            } else {
                0.0
            }
        };
        let parts: Vec<f64> = classes.iter().enumerate().map(part).collect();
        pairs.means(&parts, STEPS)
    }

    /// The instructions of an average stream.
    fn average(&self) -> Kinds {
        let (mut sum, mut n) = ([0.0; N_KINDS], 0.0);
        for of in &self.of {
            add(&mut sum, &of.inside, 1.0);
            n += of.n_inside;
        }
        mean(&sum, f64::max(n, 1.0))
    }

    /// By branch: the time of a stream in the stacks that it triggered.
    pub(super) fn inside(&self, times: &Kinds, n: usize) -> Vec<f64> {
        let average = time(times, &self.average());
        let of = |at: usize| match self.of.get(at) {
            Some(of) if 0.0 < of.n_inside => time(times, &of.inside) / of.n_inside,
            _ => average,
        };
        (0..n).map(of).collect()
    }

    /// Weights to begin with: a confirmed stack represents the time of the stream after its trigger, another one that
    /// of a stream around it.
    pub(super) fn weights(&self, times: &Kinds, confirmed: &[f64]) -> Vec<f64> {
        let average = time(times, &self.average());
        let inside = self.inside(times, confirmed.len());
        let weight = |((at, confirmed), inside): ((usize, &f64), f64)| {
            let (sum, n) = self
                .of
                .get(at)
                .map_or((0.0, 0.0), |of| (time(times, &of.behind), of.n_behind));
            let behind = (sum + PRIOR_STREAMS * average) / (n + PRIOR_STREAMS);
            confirmed / behind + (1.0 - confirmed) / inside
        };
        confirmed.iter().enumerate().zip(inside).map(weight).collect()
    }

    /// What the times of instructions are fitted to, where `weights` gives the weight of stacks for their triggers.
    pub(super) fn rows(&self, pairs: &Pairs, weights: &[f64], confirmed: &[f64]) -> Vec<Row> {
        let average = self.average();
        let mut around = vec![[0.0; N_KINDS]; weights.len()];
        for kind in 0..N_KINDS {
            let of = |at: usize| match self.of.get(at) {
                Some(of) if 0.0 < of.n_inside => of.inside[kind] / of.n_inside,
                _ => average[kind],
            };
            let weighed: Vec<f64> = weights
                .iter()
                .enumerate()
                .map(|(at, weight)| weight * of(at))
                .collect();
            let means = pairs.in_older_slots(&pairs.means(&weighed, STEPS));
            for (around, mean) in around.iter_mut().zip(means) {
                around[kind] = mean;
            }
        }
        let confirmed = pairs.in_older_slots(confirmed);
        let shares = pairs.shares(weights);
        let of = self
            .of
            .iter()
            .zip(&pairs.seen)
            .zip(shares)
            .zip(around)
            .zip(confirmed);
        let rows = of.filter(|((((of, seen), _), _), _)| 0.0 < of.n_behind && 0.0 < **seen);
        rows.map(|((((of, seen), share), around), confirmed)| Row {
            triggered: of.confirmed,
            expected: share * confirmed,
            seen: *seen,
            behind: mean(&of.behind, of.n_behind),
            around,
        })
        .collect()
    }
}
