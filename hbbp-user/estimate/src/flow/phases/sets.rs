//! Sets of code that is stayed in: the nodes of the graph, merged as long as one is left within less than a period.
//!
//! A profile has millions of edges, and most nodes have two or three. So a node's edges stay in one array for all of them until it is
//! merged; only sets of several nodes sum theirs in tables.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::super::graph::FlowGraph;
use crate::sums::{add, at};

/// Edges from which on a set keeps them in order: fewer are looked through as fast.
const MANY: usize = 16;

/// The nodes of the graph, starts before branches, merged to sets.
pub(super) struct Sets<'a> {
    graph: &'a FlowGraph,
    /// What each node has edges to, before it is merged: there are as many edges as streams, and most nodes have few.
    recorded: Incidence,
    /// The set that a set was merged into, or itself.
    into: Vec<u32>,
    /// Streams that begin in a set.
    mass: Vec<f64>,
    /// For sets of several nodes, the edges to other sets in both directions.
    edges: Vec<Option<Box<Sums>>>,
    /// The same of sets that have had many, the largest first; entries that `edges` does not agree with are old.
    largest: HashMap<usize, BinaryHeap<(u64, Reverse<u32>)>>,
    /// The sum of the edges.
    crossings: Vec<f64>,
}

/// What leads to each of some sets. Without a seed: sets are left as often as their edges add up to in the order of the table, and a
/// profile has one report.
type Sums = HashMap<u32, f64, FixedState>;

impl<'a> Sets<'a> {
    pub(super) fn new(graph: &'a FlowGraph) -> Self {
        let n = graph.starts.len() + graph.sources.len();
        let mut mass = graph.inflow.clone();
        mass.resize(n, 0.0);
        let mut crossings = vec![0.0; n];
        for (a, b, times) in all_edges(graph) {
            add(&mut crossings, a, times);
            add(&mut crossings, b, times);
        }
        Self {
            graph,
            recorded: Incidence::new(graph, n),
            into: (0..).take(n).collect(),
            mass,
            edges: vec![None; n],
            largest: HashMap::new(),
            crossings,
        }
    }

    fn add_edge(&mut self, a: u32, b: u32, times: f64) {
        for (here, there) in [(a as usize, b), (b as usize, a)] {
            if let Some(edges) = self.edges_of(here) {
                let sum = edges.entry(there).or_default();
                *sum += times;
                let sum = *sum;
                if let Some(largest) = self.largest.get_mut(&here) {
                    largest.push((sum.to_bits(), Reverse(there)));
                }
            }
            add(&mut self.crossings, here, times);
        }
    }

    fn edges_of(&mut self, set: usize) -> Option<&mut Sums> {
        self.edges.get_mut(set)?.as_deref_mut()
    }

    /// The set that a node belongs to. Halves the path to it: the sets with the most edges need not be the largest ones.
    pub(super) fn root(&mut self, mut node: usize) -> usize {
        while let Some(&into) = self.into.get(node)
            && into as usize != node
        {
            let next = self.into.get(into as usize).copied().unwrap_or(into);
            if let Some(skipped) = self.into.get_mut(node) {
                *skipped = next;
            }
            node = next as usize;
        }
        node
    }

    /// Taken branches from entering a set to leaving it. What enters also leaves, so that half of the edges are exits.
    /// One more is taken to be unseen: that nothing was seen to leave shows no more than that few stacks were there.
    pub(super) fn stay(&self, set: usize) -> f64 {
        at(&self.mass, set) / (at(&self.crossings, set) / 2.0 + 1.0)
    }

    /// Merges, beginning with the shortest stay, until every set is stayed in for a period.
    pub(super) fn merge(&mut self, period: f64) {
        let key = |stay: f64, set| Reverse((stay.to_bits(), set));
        // What is stayed in for a period, or not left at all, has no part in it until others join it.
        let short = (0..self.into.len())
            .filter(|set| !self.recorded.of(*set).is_empty())
            .map(|set| (self.stay(set), set))
            .filter(|(stay, _)| *stay < period);
        let mut shortest: BinaryHeap<_> = short.map(|(stay, set)| key(stay, set)).collect();
        while let Some(Reverse((bits, set))) = shortest.pop() {
            // An older entry of a set that has changed since.
            if self.root(set) != set || self.stay(set).to_bits() != bits {
                continue;
            }
            self.see_edges(set);
            let Some(other) = self.neighbour(set) else {
                continue;
            };
            let Some(merged) = self.join(set, other) else {
                continue;
            };
            let stay = self.stay(merged);
            if stay < period {
                shortest.push(key(stay, merged));
            }
            // Its neighbours are left as often as before, only for another set.
        }
    }

    /// Sums the recorded edges of a node that is merged with nothing yet, by the sets that they lead to now.
    fn see_edges(&mut self, set: usize) {
        if self.edges_of(set).is_some() {
            return;
        }
        let n = self.recorded.of(set).len();
        let mut edges = Sums::with_capacity_and_hasher(n, FixedState::default());
        for n in 0..n {
            let edge = self.recorded.of(set).get(n);
            if let Some((a, b, times)) = edge.and_then(|edge| edge_of(self.graph, *edge)) {
                let other = self.root(if a == set { b } else { a });
                if let Ok(other) = u32::try_from(other) {
                    *edges.entry(other).or_default() += times;
                }
            }
        }
        if let Some(kept) = self.edges.get_mut(set) {
            *kept = Some(Box::new(edges));
        }
    }

    /// The set that this one is left for most.
    fn neighbour(&mut self, set: usize) -> Option<usize> {
        let edges = self.edges.get(set)?.as_deref()?;
        let ranked = || {
            edges
                .iter()
                .map(|(other, times)| (times.to_bits(), Reverse(*other)))
        };
        if edges.len() < MANY {
            return ranked().max().map(|(_, Reverse(other))| other as usize);
        }
        let largest = self.largest.entry(set).or_insert_with(|| ranked().collect());
        while let Some((bits, Reverse(other))) = largest.peek() {
            if edges.get(other).is_some_and(|times| times.to_bits() == *bits) {
                return Some(*other as usize);
            }
            largest.pop();
        }
        None
    }

    /// Makes two sets one, which keeps the number of the one with more edges.
    fn join(&mut self, a: usize, b: usize) -> Option<usize> {
        self.see_edges(a);
        self.see_edges(b);
        let mut n_edges = |set: usize| self.edges_of(set).map_or(0, |edges| edges.len());
        let (kept, gone) = if n_edges(a) < n_edges(b) { (b, a) } else { (a, b) };
        let (kept_number, gone_number) = (u32::try_from(kept).ok()?, u32::try_from(gone).ok()?);
        *self.into.get_mut(gone)? = kept_number;
        let mass = self.mass.get_mut(gone).map(std::mem::take).unwrap_or(0.0);
        add(&mut self.mass, kept, mass);
        self.largest.remove(&gone);
        let edges = self
            .edges
            .get_mut(gone)
            .and_then(Option::take)
            .unwrap_or_default();
        for (other, times) in *edges {
            if let Some(edges) = self.edges_of(other as usize) {
                edges.remove(&gone_number);
            }
            add(&mut self.crossings, other as usize, -times);
            if other != kept_number {
                self.add_edge(kept_number, other, times);
            }
        }
        Some(kept)
    }
}

/// An edge by its number, streams before branches: the two nodes, and how often.
fn edge_of(graph: &FlowGraph, n: u32) -> Option<(usize, usize, f64)> {
    let n_starts = graph.starts.len();
    let n = n as usize;
    let stream = graph.streams.get(n);
    let stream = stream.map(|it| (it.from, n_starts + it.to, it.amount));
    stream.or_else(|| {
        let branch = graph.branches.get(n.checked_sub(graph.streams.len())?)?;
        Some((n_starts + branch.from, branch.to, branch.amount))
    })
}

/// All edges, by number.
fn all_edges(graph: &FlowGraph) -> impl Iterator<Item = (usize, usize, f64)> + '_ {
    (0..).map_while(|n| edge_of(graph, n))
}

/// The numbers of the edges of each node, one node after the other.
struct Incidence {
    /// Where those of each node end.
    ends: Vec<u32>,
    edges: Vec<u32>,
}

impl Incidence {
    /// The edges of the `n` nodes of a graph.
    fn new(graph: &FlowGraph, n: usize) -> Self {
        let mut ends = vec![0_u32; n];
        for (a, b, _) in all_edges(graph) {
            for node in [a, b] {
                if let Some(n) = ends.get_mut(node) {
                    *n += 1;
                }
            }
        }
        let mut all = 0;
        for end in &mut ends {
            // Where they begin; each edge that is put there moves it on.
            all += std::mem::replace(end, all);
        }
        let mut edges = vec![0; all as usize];
        for (n, (a, b, _)) in (0..).zip(all_edges(graph)) {
            for node in [a, b] {
                if let Some(next) = ends.get_mut(node) {
                    if let Some(edge) = edges.get_mut(*next as usize) {
                        *edge = n;
                    }
                    *next += 1;
                }
            }
        }
        Self { ends, edges }
    }

    fn of(&self, node: usize) -> &[u32] {
        let from = node.checked_sub(1).and_then(|before| self.ends.get(before));
        let to = self.ends.get(node).copied().unwrap_or(0);
        let range = from.copied().unwrap_or(0) as usize..to as usize;
        self.edges.get(range).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::graph::tests::graph;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

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

    /// Sums of tenths hang on their order, and which of two sets is stayed in longer hangs on the sums.
    #[test]
    fn sets_are_the_same_each_time() {
        let n = 200;
        let streams: Vec<_> = (0..n).map(|node| (node, node, 100.0)).collect();
        let edge = |k: usize| (k % n, (k * k + 7) % n, 0.1 * (k % 9 + 1) as f64);
        let graph = graph(&streams, &(0..20 * n).map(edge).collect::<Vec<_>>());
        let crossings = || {
            let mut sets = Sets::new(&graph);
            sets.merge(400.0);
            sets.crossings
        };
        let first = crossings();
        assert!((0..20).all(|_| crossings() == first));
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
}
