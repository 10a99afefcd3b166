//! The graph of all process images together: when a stack is read hangs on the code, not on the process that runs it.
//!
//! A program that many processes run, such as a compiler, is there once. So its flow is known better, and memory does not grow
//! with the number of processes.

use hashbrown::HashMap;

use super::super::graph::{Edge, FlowGraph, Node};
use crate::sums::{add, at, over};
use hbbp_model::snapshot::ProcessIdx;

/// A graph, and where the edges of that which it was made of are.
pub(super) struct Together {
    pub(super) graph: FlowGraph,
    /// By stream and by branch of the graph apart, the edge that has it.
    streams: Vec<usize>,
    branches: Vec<usize>,
}

/// Numbers of nodes without their processes.
struct Numbers {
    of: Vec<usize>,
    nodes: Vec<Node>,
}

impl Numbers {
    fn new(nodes: &[Node]) -> Self {
        let mut known: HashMap<Node, usize> = HashMap::new();
        let mut in_order = Vec::new();
        let number = |(text, instruction, _): &Node| {
            let node = (*text, *instruction, ProcessIdx::OTHERS);
            *known.entry(node).or_insert_with(|| {
                in_order.push(node);
                in_order.len() - 1
            })
        };
        let of = nodes.iter().map(number).collect();
        Self { of, nodes: in_order }
    }

    fn at(&self, node: usize) -> usize {
        self.of.get(node).copied().unwrap_or_default()
    }

    /// The sums of what is known of the nodes apart.
    fn sums(&self, apart: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.nodes.len()];
        for (node, amount) in self.of.iter().zip(apart) {
            add(&mut sums, *node, *amount);
        }
        sums
    }
}

/// Edges between the same nodes as one, and which each is in.
fn joined(edges: &[Edge], from: &Numbers, to: &Numbers) -> (Vec<Edge>, Vec<usize>) {
    let mut known: HashMap<(usize, usize), usize> = HashMap::new();
    let mut together: Vec<Edge> = Vec::new();
    let mut join = |edge: &Edge| {
        let (from, to) = (from.at(edge.from), to.at(edge.to));
        let number = *known.entry((from, to)).or_insert_with(|| {
            together.push(Edge {
                from,
                to,
                amount: 0.0,
            });
            together.len() - 1
        });
        if let Some(edge_of_all) = together.get_mut(number) {
            edge_of_all.amount += edge.amount;
        }
        number
    };
    let numbers = edges.iter().map(&mut join).collect();
    (together, numbers)
}

impl Together {
    pub(super) fn new(apart: &FlowGraph) -> Self {
        let (starts, sources) = (Numbers::new(&apart.starts), Numbers::new(&apart.sources));
        let (edges, streams) = joined(&apart.streams, &starts, &sources);
        let (taken, branches) = joined(&apart.branches, &sources, &starts);
        let (oldest, newest) = (sources.sums(&apart.oldest), sources.sums(&apart.newest));
        let graph = FlowGraph {
            oldest,
            newest,
            ..FlowGraph::of(edges, taken, starts.nodes, sources.nodes)
        };
        Self {
            graph,
            streams,
            branches,
        }
    }

    /// What is known of each stream of the graph apart, by the streams of this one.
    pub(super) fn of_streams(&self, apart: &[f64]) -> Vec<f64> {
        let mut of = vec![0.0; self.graph.streams.len()];
        for (number, value) in self.streams.iter().zip(apart) {
            if let Some(of) = of.get_mut(*number) {
                *of = *value;
            }
        }
        of
    }

    /// The graph apart with amounts that are changed as they are in `weighed`, which was made of this one.
    pub(super) fn apart(&self, apart: &FlowGraph, weighed: &FlowGraph) -> FlowGraph {
        let times = |after: &[Edge], before: &[Edge]| -> Vec<f64> {
            let both = after.iter().zip(before);
            both.map(|(after, before)| over(after.amount, before.amount))
                .collect()
        };
        let streams = times(&weighed.streams, &self.graph.streams);
        let branches = times(&weighed.branches, &self.graph.branches);
        let amounts = |edges: &[Edge], numbers: &[usize], times: &[f64]| -> Vec<f64> {
            let edges = edges.iter().zip(numbers);
            edges
                .map(|(edge, number)| edge.amount * at(times, *number))
                .collect()
        };
        let streams = amounts(&apart.streams, &self.streams, &streams);
        let branches = amounts(&apart.branches, &self.branches, &branches);
        apart.with(streams.into_iter(), branches.into_iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_code::locate::TextIdx;

    #[test]
    fn two_processes_of_one_program_are_one() {
        let node = |at, process| (TextIdx(0), at, ProcessIdx(process));
        let edge = |from, to, amount| Edge { from, to, amount };
        let starts = vec![node(0, 1), node(0, 2), node(8, 2)];
        let sources = vec![node(4, 1), node(4, 2), node(9, 2)];
        let streams = vec![edge(0, 0, 3.0), edge(1, 1, 5.0), edge(2, 2, 2.0)];
        let taken = vec![edge(0, 0, 1.0), edge(1, 1, 4.0), edge(1, 2, 2.0)];
        let mut apart = FlowGraph::of(streams, taken, starts, sources);
        apart.newest = vec![1.0, 1.0, 3.0];
        let together = Together::new(&apart);
        let amounts =
            |edges: &[Edge]| -> Vec<_> { edges.iter().map(|it| (it.from, it.to, it.amount)).collect() };
        assert_eq!(amounts(&together.graph.streams), [(0, 0, 8.0), (1, 1, 2.0)]);
        assert_eq!(amounts(&together.graph.branches), [(0, 0, 5.0), (0, 1, 2.0)]);
        assert_eq!(together.graph.newest, [2.0, 3.0]);
        assert_eq!(together.of_streams(&[7.0, 7.0, 9.0]), [7.0, 9.0]);
        let weighed = together
            .graph
            .with([4.0, 6.0].into_iter(), [10.0, 2.0].into_iter());
        let apart = together.apart(&apart, &weighed);
        assert_eq!(amounts(&apart.streams), [(0, 0, 1.5), (1, 1, 2.5), (2, 2, 6.0)]);
        assert_eq!(amounts(&apart.branches), [(0, 0, 2.0), (1, 1, 8.0), (1, 2, 2.0)]);
    }
}
