//! Phases of a run: code that the processor stays in for longer than a sampling period.
//!
//! Samples at a fixed period are a systematic sample, not one drawn by chance: a phase that lasts for a thousand periods
//! has a thousand samples, one more or one less, however often the run is repeated. What differs by chance is only what
//! the samples show within a phase. In terms of survey sampling, phases are strata with proportional allocation, whose
//! variance is the one within them (Cochran, Sampling Techniques, 1977, sections 5.6 and 8.3).
//!
//! How long the processor stays is read from the recorded streams and branches. They are a graph
//! ([`super::graph`]); a set of its nodes that is entered and left rarely against how often it runs is stayed in for long.
//! Sets are made by merging: as long as one is left within less than a period, it joins the one that it is left for most.
//!
//! What lies between the phases is not quite without chance. Where the lengths of stay are exponential with mean T, a
//! sample every P has of the variance between phases the part coth(x) - 1/x with x = P / 2T: the sum over the samples of
//! the correlation exp(-t/T), less its integral. That is 1/6 where T = P, a half where T is a quarter of P, nearly all
//! where T is a stack, and nothing where T is long.

mod sets;

use hashbrown::HashMap;

use super::graph::FlowGraph;
use sets::Sets;

/// Which phase each start belongs to, and how much of the variance between phases is left to chance.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Phases {
    /// The one of each start of the graph.
    of: Vec<usize>,
    chance: Vec<f64>,
}

impl Phases {
    /// Finds the phases of a run with `period` taken branches between two stacks or samples: these must come more than once
    /// in each.
    pub(crate) fn find(graph: &FlowGraph, period: f64) -> Self {
        let mut sets = Sets::new(graph);
        sets.merge(period);
        let mut numbers: HashMap<usize, usize> = HashMap::new();
        let mut phases = Self::default();
        for start in 0..graph.starts.len() {
            let set = sets.root(start);
            let phase = *numbers.entry(set).or_insert_with(|| {
                phases.chance.push(part_by_chance(period, sets.stay(set)));
                phases.chance.len() - 1
            });
            phases.of.push(phase);
        }
        phases
    }

    /// Number of the phase of a start of the graph.
    pub(crate) fn of(&self, start: usize) -> usize {
        self.of.get(start).copied().unwrap_or(self.none())
    }

    /// The number that means no phase: one more than there are phases.
    pub(crate) const fn none(&self) -> usize {
        self.chance.len()
    }

    /// The part of the variance between phases that each of them has by chance, from 0 to 1.
    pub(crate) fn chances(&self) -> &[f64] {
        &self.chance
    }
}

/// coth(x) - 1/x for x = period / (2 * stay); near 0 its series begins with x/3.
fn part_by_chance(period: f64, stay: f64) -> f64 {
    let x = period / (2.0 * stay);
    if x < 1e-3 {
        x / 3.0
    } else {
        1.0 / x.tanh() - 1.0 / x
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::graph::tests::graph;

    /// Two loops of two blocks each, and how often one is left for the other.
    fn loops(exits: f64) -> Phases {
        let streams = [0, 1, 2, 3].map(|n| (n, n, 5000.0));
        let branches = [
            (0, 1, 5000.0),
            (1, 0, 5000.0 - exits),
            (1, 2, exits),
            (2, 3, 5000.0),
            (3, 2, 5000.0 - exits),
            (3, 0, exits),
        ];
        Phases::find(&graph(&streams, &branches), 100.0)
    }

    #[test]
    fn code_that_is_left_rarely_is_a_phase() {
        let of = |phases: &Phases| [0, 1, 2, 3].map(|start| phases.of(start));
        // A stay of 10 000 / (10 + 1) branches: nine periods.
        let slow = loops(10.0);
        assert_eq!(of(&slow), [0, 0, 1, 1]);
        let chance = slow.chances()[0];
        assert!((chance - 0.055 / 3.0).abs() < 1e-4, "{chance}");
        // A stay of 10 000 / (200 + 1) branches is half a period.
        assert_eq!(of(&loops(200.0)), [0; 4]);
        assert_eq!(loops(200.0).chances().len(), 1);
    }

    #[test]
    fn a_short_stay_is_all_chance() {
        assert!((part_by_chance(1.0, 1.0) - 0.164).abs() < 1e-3);
        assert!(0.99 < part_by_chance(1000.0, 1.0));
        assert_eq!(part_by_chance(1.0, f64::INFINITY), 0.0);
    }
}
