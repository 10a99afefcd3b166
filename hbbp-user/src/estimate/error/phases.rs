//! Phases of a run: code that the processor stays in for longer than a sampling period.
//!
//! Samples at a fixed period are a systematic sample, not one drawn by chance: a phase that lasts for a thousand periods
//! has a thousand samples, one more or one less, however often the run is repeated. What differs by chance is only what
//! the samples show within a phase. In terms of survey sampling, phases are strata with proportional allocation, whose
//! variance is the one within them (Cochran, Sampling Techniques, 1977, sections 5.6 and 8.3).
//!
//! How long the processor stays is read from the recorded streams and branches. They are a graph
//! ([`super::super::flow::graph`]); a set of its nodes that is entered and left rarely against how often it runs is stayed in for long.
//! Sets are made by merging: as long as one is left within less than a period, it joins the one that it is left for most.
//!
//! What lies between the phases is not quite without chance. Where the lengths of stay are exponential with mean T, a
//! sample every P has of the variance between phases the part coth(x) - 1/x with x = P / 2T: the sum over the samples of
//! the correlation exp(-t/T), less its integral. That is 1/6 where T = P, a half where T is a quarter of P, nearly all
//! where T is a stack, and nothing where T is long.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashMap;

use super::super::flow::graph::{FlowGraph, add, at};

/// Edges from which on a set keeps them in order: fewer are looked through as fast.
const MANY: usize = 16;

/// Which phase each start belongs to, and how much of the variance between phases is left to chance.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::estimate) struct Phases {
    /// The one of each start of the graph.
    of: Vec<usize>,
    chance: Vec<f64>,
}

impl Phases {
    /// Finds the phases of a run with `period` taken branches between two stacks or samples: these must come more than once
    /// in each.
    pub(in crate::estimate) fn find(graph: &FlowGraph, period: f64) -> Self {
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
    pub(in crate::estimate) fn of(&self, start: usize) -> usize {
        self.of.get(start).copied().unwrap_or(self.none())
    }

    /// The number that stands for no phase, one more than there are.
    pub(in crate::estimate) const fn none(&self) -> usize {
        self.chance.len()
    }

    /// The part of the variance between phases that each of them has by chance, from 0 to 1.
    pub(in crate::estimate) fn chances(&self) -> &[f64] {
        &self.chance
    }
}

/// The nodes of the graph, starts before branches, merged to sets.
struct Sets {
    /// The set that a set was merged into, or itself.
    into: Vec<usize>,
    /// Streams that begin in a set.
    mass: Vec<f64>,
    /// Edges between a set and others, in both directions together.
    edges: Vec<HashMap<usize, f64>>,
    /// The same of sets that have had many, the largest first; entries that `edges` does not agree with are old.
    largest: HashMap<usize, BinaryHeap<(u64, Reverse<usize>)>>,
    /// The sum of the edges.
    crossings: Vec<f64>,
}

impl Sets {
    fn new(graph: &FlowGraph) -> Self {
        let n_starts = graph.starts.len();
        let n = n_starts + graph.sources.len();
        let mut mass = graph.inflow.clone();
        mass.resize(n, 0.0);
        let mut sets = Self {
            into: (0..n).collect(),
            mass,
            edges: vec![HashMap::new(); n],
            largest: HashMap::new(),
            crossings: vec![0.0; n],
        };
        for stream in &graph.streams {
            sets.add_edge(stream.from, n_starts + stream.to, stream.amount);
        }
        for branch in &graph.branches {
            sets.add_edge(n_starts + branch.from, branch.to, branch.amount);
        }
        sets
    }

    fn add_edge(&mut self, a: usize, b: usize, times: f64) {
        for (here, there) in [(a, b), (b, a)] {
            if let Some(edges) = self.edges.get_mut(here) {
                let sum = edges.entry(there).or_default();
                *sum += times;
                if let Some(largest) = self.largest.get_mut(&here) {
                    largest.push((sum.to_bits(), Reverse(there)));
                }
            }
            add(&mut self.crossings, here, times);
        }
    }

    /// The set that a node belongs to. Halves the path to it: the sets with the most edges need not be the largest ones.
    fn root(&mut self, mut node: usize) -> usize {
        while let Some(&into) = self.into.get(node)
            && into != node
        {
            let next = self.into.get(into).copied().unwrap_or(into);
            if let Some(skipped) = self.into.get_mut(node) {
                *skipped = next;
            }
            node = next;
        }
        node
    }

    /// Taken branches from entering a set to leaving it. What enters also leaves, so that half of the edges are exits.
    /// One more is taken to be unseen: that nothing was seen to leave shows no more than that few stacks were there.
    fn stay(&self, set: usize) -> f64 {
        at(&self.mass, set) / (at(&self.crossings, set) / 2.0 + 1.0)
    }

    /// Merges, beginning with the shortest stay, until every set is stayed in for a period.
    fn merge(&mut self, period: f64) {
        let key = |stay: f64, set| Reverse((stay.to_bits(), set));
        // What is stayed in for a period, or not left at all, has no part in it until others join it.
        let short = (0..self.into.len())
            .filter(|set| self.edges.get(*set).is_some_and(|edges| !edges.is_empty()))
            .map(|set| (self.stay(set), set))
            .filter(|(stay, _)| *stay < period);
        let mut shortest: BinaryHeap<_> = short.map(|(stay, set)| key(stay, set)).collect();
        while let Some(Reverse((bits, set))) = shortest.pop() {
            // An older entry of a set that has changed since.
            if self.root(set) != set || self.stay(set).to_bits() != bits {
                continue;
            }
            let Some(other) = self.neighbour(set) else {
                continue;
            };
            let merged = self.join(set, other);
            let stay = self.stay(merged);
            if stay < period {
                shortest.push(key(stay, merged));
            }
            // Its neighbours are left as often as before, only for another set.
        }
    }

    /// The set that this one is left for most.
    fn neighbour(&mut self, set: usize) -> Option<usize> {
        let edges = self.edges.get(set)?;
        let ranked = || {
            edges
                .iter()
                .map(|(other, times)| (times.to_bits(), Reverse(*other)))
        };
        if edges.len() < MANY {
            return ranked().max().map(|(_, Reverse(other))| other);
        }
        let largest = self.largest.entry(set).or_insert_with(|| ranked().collect());
        while let Some((bits, Reverse(other))) = largest.peek() {
            if edges.get(other).is_some_and(|times| times.to_bits() == *bits) {
                return Some(*other);
            }
            largest.pop();
        }
        None
    }

    /// Makes two sets one, which keeps the number of the one with more edges.
    fn join(&mut self, a: usize, b: usize) -> usize {
        let n_edges = |set: usize| self.edges.get(set).map_or(0, HashMap::len);
        let (kept, gone) = if n_edges(a) < n_edges(b) { (b, a) } else { (a, b) };
        if let Some(into) = self.into.get_mut(gone) {
            *into = kept;
        }
        let mass = self.mass.get_mut(gone).map(std::mem::take).unwrap_or(0.0);
        add(&mut self.mass, kept, mass);
        self.largest.remove(&gone);
        let edges = self.edges.get_mut(gone).map(std::mem::take).unwrap_or_default();
        for (other, times) in edges {
            if let Some(edges) = self.edges.get_mut(other) {
                edges.remove(&gone);
            }
            add(&mut self.crossings, other, -times);
            if other != kept {
                self.add_edge(kept, other, times);
            }
        }
        kept
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
    use crate::estimate::flow::graph::tests::graph;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

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

    /// The same by looking through everything each time: the set of each node.
    fn looked_through(graph: &FlowGraph, period: f64) -> Vec<usize> {
        let n_starts = graph.starts.len();
        let mut sets: Vec<usize> = (0..n_starts + graph.sources.len()).collect();
        loop {
            let mut edges = vec![BTreeMap::<usize, f64>::new(); sets.len()];
            let streams = graph
                .streams
                .iter()
                .map(|it| (it.from, n_starts + it.to, it.amount));
            let branches = graph
                .branches
                .iter()
                .map(|it| (n_starts + it.from, it.to, it.amount));
            for (a, b, times) in streams.chain(branches) {
                let (a, b) = (sets[a], sets[b]);
                if a != b {
                    *edges[a].entry(b).or_default() += times;
                    *edges[b].entry(a).or_default() += times;
                }
            }
            let stay = |set: usize| {
                let mass = (0..n_starts).filter(|start| sets[*start] == set);
                // From 0.0: the sum of nothing is -0.0.
                let mass = mass.fold(0.0, |sum, start| sum + graph.inflow[start]);
                mass / (edges[set].values().sum::<f64>() / 2.0 + 1.0)
            };
            let left = (0..sets.len()).filter(|set| !edges[*set].is_empty());
            let short = left.map(|set| (stay(set).to_bits(), set));
            let Some((_, set)) = short.filter(|(stay, _)| f64::from_bits(*stay) < period).min() else {
                return sets;
            };
            let most = edges[set]
                .iter()
                .map(|(other, times)| (times.to_bits(), Reverse(*other)));
            let Some((_, Reverse(other))) = most.max() else {
                unreachable!("it has edges");
            };
            let (kept, gone) = match edges[set].len() < edges[other].len() {
                true => (other, set),
                false => (set, other),
            };
            sets.iter_mut()
                .filter(|it| **it == gone)
                .for_each(|it| *it = kept);
        }
    }

    proptest! {
        /// Some graphs have nodes with more than [`MANY`] edges. Amounts are whole, so that sums are exact in any order.
        #[test]
        fn sets_are_those_that_looking_through_everything_gives(
            streams in prop::collection::vec((0usize..30, 0usize..30, 1u32..40), 1..60),
            branches in prop::collection::vec((0usize..30, 0usize..30, 1u32..40), 0..60),
            hub in prop::collection::vec(1u32..40, 0..30),
            period in 1.0f64..60.0,
        ) {
            let whole = |&(from, to, n): &(usize, usize, u32)| (from, to, f64::from(n));
            let streams: Vec<_> = streams.iter().map(whole).collect();
            let from_hub = hub.iter().enumerate().map(|(to, n)| (0, to, f64::from(*n)));
            let branches: Vec<_> = branches.iter().map(whole).chain(from_hub).collect();
            let n = streams.iter().map(|it| it.0.max(it.1)).max().unwrap_or(0);
            let branches: Vec<_> = branches.into_iter().filter(|it| it.0 <= n && it.1 <= n).collect();
            let graph = graph(&streams, &branches);
            let mut sets = Sets::new(&graph);
            sets.merge(period);
            let found: Vec<usize> = (0..sets.into.len()).map(|node| sets.root(node)).collect();
            prop_assert_eq!(found, looked_through(&graph, period));
        }
    }

    #[test]
    fn a_short_stay_is_all_chance() {
        assert!((part_by_chance(1.0, 1.0) - 0.164).abs() < 1e-3);
        assert!(0.99 < part_by_chance(1000.0, 1.0));
        assert_eq!(part_by_chance(1.0, f64::INFINITY), 0.0);
    }
}
