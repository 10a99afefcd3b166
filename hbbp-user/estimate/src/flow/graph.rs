//! The control-flow graph of what was recorded: streams lead from where they start to a branch, branches to their targets.
//!
//! It is the Markov chain that branch stacks are pieces of.

use hashbrown::HashMap;

use super::super::sources::stream::Stream;
use super::super::sources::streams::Amounts;
use crate::EventAssignment;
use crate::sums::{add, over};
use hbbp_code::blocks::BlockMap;
use hbbp_code::locate::{Located, Location, TextIdx};
use hbbp_model::snapshot::ProcessIdx;

/// An instruction of a process image.
pub(crate) type Node = (TextIdx, u32, ProcessIdx);

/// An edge, with its occurrences as they count ([`Amounts`]), or another amount.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) amount: f64,
}

/// The graph. Starts and branches are numbered from 0 on, along the code.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowGraph {
    /// For each stream, in their order: from its start to the branch that ended it.
    pub(crate) streams: Vec<Edge>,
    /// Recorded targets: from branches to starts.
    pub(crate) branches: Vec<Edge>,
    /// Streams that begin at each start.
    pub(crate) inflow: Vec<f64>,
    /// Those of them that no recorded branch led to, such as the kernel's entries from user code.
    pub(crate) external: Vec<f64>,
    /// Stacks that each branch was the oldest of.
    pub(crate) oldest: Vec<f64>,
    /// Stacks that each branch was the newest of, or that lost the stream after it.
    pub(crate) newest: Vec<f64>,
    /// For each branch, the variance of its occurrences, relative to that of occurrences of weight 1.
    pub(crate) dispersion: Vec<f64>,
    /// The same of the streams from each start.
    pub(crate) of_starts: Vec<f64>,
    /// Where streams start, by number.
    pub(crate) starts: Vec<Node>,
    /// The branches that end streams, by number.
    pub(crate) sources: Vec<Node>,
}

impl FlowGraph {
    /// The graph of these streams and what they count, and of the branches of the events that they are from.
    pub(crate) fn new(
        located: &Located,
        map: &BlockMap,
        assignment: &EventAssignment,
        streams: &[Stream],
        amounts: &Amounts,
    ) -> Self {
        let (mut starts, mut sources) = (Numbers::default(), Numbers::default());
        let edges = streams
            .iter()
            .zip(&amounts.of_streams)
            .map(|(stream, amount)| Edge {
                from: starts.number((stream.text, stream.first, stream.process)),
                to: sources.number((stream.text, stream.source, stream.process)),
                amount: *amount,
            });
        let edges: Vec<Edge> = edges.collect();
        let mut of_starts = Dispersions::new(starts.in_order.len());
        for (edge, stream) in edges.iter().zip(streams) {
            of_starts.add(edge.from, edge.amount, over(edge.amount, stream.hits as f64));
        }
        let mut of_sources = Dispersions::new(sources.in_order.len());
        let mut branches = Vec::new();
        let mut oldest = vec![0.0; sources.in_order.len()];
        let mut newest = oldest.clone();
        for branch in assignment.branches(located) {
            let source = instruction_at(map, branch.from);
            let Some(from) = source.and_then(|(text, at)| sources.find(text, at, branch.process)) else {
                continue;
            };
            add(&mut oldest, from, amounts.of(branch.oldest_weight));
            let amount = amounts.of(branch.weight);
            of_sources.add(from, amount, over(amount, branch.hits as f64));
            if branch.to.is_none() {
                add(&mut newest, from, amount);
            }
            let target = branch.to.and_then(|target| instruction_at(map, target));
            if let Some(to) = target.and_then(|(text, at)| starts.find(text, at, branch.process)) {
                branches.push(Edge { from, to, amount });
            }
        }
        Self {
            oldest,
            newest,
            dispersion: of_sources.ratios(),
            of_starts: of_starts.ratios(),
            ..Self::of(edges, branches, starts.in_order, sources.in_order)
        }
    }

    /// How often each stream ran, as recorded.
    pub(crate) fn runs(&self) -> impl Iterator<Item = f64> {
        self.streams.iter().map(|stream| stream.amount)
    }

    /// The same graph with other amounts of streams and branches.
    pub(crate) fn with(
        &self,
        streams: impl Iterator<Item = f64>,
        branches: impl Iterator<Item = f64>,
    ) -> Self {
        let edge = |(edge, amount): (&Edge, f64)| Edge { amount, ..*edge };
        let streams = self.streams.iter().zip(streams).map(edge).collect();
        let branches = self.branches.iter().zip(branches).map(edge).collect();
        Self {
            oldest: self.oldest.clone(),
            newest: self.newest.clone(),
            dispersion: self.dispersion.clone(),
            of_starts: self.of_starts.clone(),
            ..Self::of(streams, branches, self.starts.clone(), self.sources.clone())
        }
    }

    /// The part of the graph that these streams are, without what is known of oldest and newest branches.
    pub(crate) fn part(&self, streams: impl Iterator<Item = usize>) -> Self {
        let (mut starts, mut sources) = (Numbers::default(), Numbers::default());
        let edge = |stream: usize| {
            let edge = self.streams.get(stream)?;
            let (start, source) = (self.starts.get(edge.from)?, self.sources.get(edge.to)?);
            Some(Edge {
                from: starts.number(*start),
                to: sources.number(*source),
                amount: edge.amount,
            })
        };
        let edges = streams.filter_map(edge).collect();
        let branch = |edge: &Edge| {
            let (source, start) = (self.sources.get(edge.from)?, self.starts.get(edge.to)?);
            Some(Edge {
                from: *sources.numbers.get(source)?,
                to: *starts.numbers.get(start)?,
                amount: edge.amount,
            })
        };
        let branches = self.branches.iter().filter_map(branch).collect();
        Self::of(edges, branches, starts.in_order, sources.in_order)
    }

    /// The graph of these edges, without what is known of oldest and newest branches.
    pub(crate) fn of(streams: Vec<Edge>, branches: Vec<Edge>, starts: Vec<Node>, sources: Vec<Node>) -> Self {
        let mut inflow = vec![0.0; starts.len()];
        for stream in &streams {
            add(&mut inflow, stream.from, stream.amount);
        }
        let mut external = inflow.clone();
        for branch in &branches {
            add(&mut external, branch.to, -branch.amount);
        }
        for left in &mut external {
            *left = left.max(0.0);
        }
        Self {
            streams,
            branches,
            oldest: vec![0.0; sources.len()],
            newest: vec![0.0; sources.len()],
            dispersion: vec![1.0; sources.len()],
            of_starts: vec![1.0; starts.len()],
            inflow,
            external,
            starts,
            sources,
        }
    }
}

/// Sums of amounts, and of each times what an occurrence of it counts.
struct Dispersions {
    amounts: Vec<f64>,
    squares: Vec<f64>,
}

impl Dispersions {
    fn new(n: usize) -> Self {
        Self {
            amounts: vec![0.0; n],
            squares: vec![0.0; n],
        }
    }

    /// Adds an amount of occurrences that count `part` each.
    fn add(&mut self, n: usize, amount: f64, part: f64) {
        add(&mut self.amounts, n, amount);
        add(&mut self.squares, n, amount * part);
    }

    /// The variance of each sum over that of as many occurrences that count one each; 1 where there is none.
    fn ratios(&self) -> Vec<f64> {
        let ratio = |(squares, amount): (&f64, &f64)| match 0.0 < *amount {
            true => squares / amount,
            false => 1.0,
        };
        self.squares.iter().zip(&self.amounts).map(ratio).collect()
    }
}

fn instruction_at(map: &BlockMap, place: Location) -> Option<(TextIdx, u32)> {
    Some((place.text, map.text(place.text)?.find(place.addr).ok()?))
}

/// A number for each location, from 0 on.
#[derive(Default)]
struct Numbers {
    numbers: HashMap<Node, usize>,
    in_order: Vec<Node>,
}

impl Numbers {
    fn number(&mut self, location: Node) -> usize {
        *self.numbers.entry(location).or_insert_with(|| {
            self.in_order.push(location);
            self.in_order.len() - 1
        })
    }

    /// Kernel code is counted once for all processes.
    fn find(&self, text: TextIdx, instruction: u32, process: ProcessIdx) -> Option<usize> {
        let owners = [process, ProcessIdx::KERNEL];
        owners
            .iter()
            .find_map(|owner| self.numbers.get(&(text, instruction, *owner)).copied())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A graph of numbered starts and branches: from, to, occurrences.
    pub(crate) fn graph(streams: &[(usize, usize, f64)], branches: &[(usize, usize, f64)]) -> FlowGraph {
        let edges = |of: &[(usize, usize, f64)]| {
            let edge = |&(from, to, amount): &(usize, usize, f64)| Edge { from, to, amount };
            of.iter().map(edge).collect::<Vec<Edge>>()
        };
        let n = streams.iter().map(|(from, to, _)| from.max(to) + 1).max();
        let number = |n| u32::try_from(n).expect("few nodes");
        let nodes = (0..n.unwrap_or(0)).map(|n| (TextIdx(0), number(n), ProcessIdx(0)));
        let locations: Vec<Node> = nodes.collect();
        FlowGraph::of(edges(streams), edges(branches), locations.clone(), locations)
    }

    #[test]
    fn external_inflow_is_what_no_branch_explains() {
        let graph = graph(&[(0, 0, 10.0), (1, 1, 4.0)], &[(0, 0, 7.0), (1, 1, 5.0)]);
        assert_eq!(graph.inflow, [10.0, 4.0]);
        assert_eq!(graph.external, [3.0, 0.0]);
    }
}
