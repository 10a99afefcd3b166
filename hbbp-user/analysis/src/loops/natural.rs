//! Natural loops of a flow graph, nested, and the regions that are no loops of this kind.
//!
//! A back edge leads to a node that dominates its source. Its loop is that node, the header, with all nodes that reach
//! the source without passing the header. Loops with different headers are nested or have nothing in common. Loops that
//! share a header are control paths of one loop, or they are nested. OptiWISE (section IV.E, algorithm 2) decides by
//! the counts of their back edges. An inner loop is a subset of others, and its back edge was taken at least T times as
//! often as those of all its supersets together. The outermost is peeled off until none is left.
//!
//! Without its back edges a reducible graph has no cycles (Hecht and Ullman, Characterizations of Reducible Flow Graphs,
//! 1974); the cycles that are left are irreducible regions, which are entered at several nodes.

use std::collections::BTreeMap;

use super::dominators::Dominators;
use super::graph::Digraph;

/// T of the paper: "We choose T = 3 based on qualitative experience in our case studies".
const T: f64 = 3.0;

/// Back edges of one header that are distinguished. The dispatch of an interpreter has some hundreds; beyond, all of them make
/// one loop.
const MOST_TOLD_APART: usize = 512;

/// Steps that the search of a profile may take: nodes of loops, those of inner loops once for each level, and comparisons of
/// loops of one header. That is four for each block of a million; code of other users can nest so deeply that it takes the
/// square, and then each step costs some hundred bytes.
pub(super) const MOST_STEPS: usize = 1 << 22;

/// A natural loop.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NaturalLoop {
    /// The node that is passed in each iteration.
    pub(super) header: usize,
    /// All nodes, with those of inner loops; sorted.
    pub(super) nodes: Vec<usize>,
    /// The sources of its back edges, without those of loops that it shares its header with; sorted.
    pub(super) tails: Vec<usize>,
    /// Loops of the same header that it lies in.
    pub(super) level: usize,
    /// The innermost loop that it lies in, as an index.
    pub(super) parent: Option<usize>,
}

/// What was found in a graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Found {
    /// Outer loops come before inner ones.
    pub(super) loops: Vec<NaturalLoop>,
    /// Regions of several nodes that are entered at more than one.
    pub(super) irreducible: Vec<Vec<usize>>,
    /// Headers whose loops were not walked.
    pub(super) left_out: usize,
}

/// The level of each back edge, by its tail and header, among the loops of that header.
pub(super) type Levels = BTreeMap<(usize, usize), usize>;

/// The levels of all back edges.
pub(super) fn levels(loops: &[NaturalLoop]) -> Levels {
    let of = |it: &NaturalLoop| {
        let (header, level) = (it.header, it.level);
        it.tails
            .clone()
            .into_iter()
            .map(move |tail| ((tail, header), level))
    };
    loops.iter().flat_map(of).collect()
}

/// Finds the loops of a graph, in at most `steps`, of which those that were not taken are left; `ran` says how often an edge
/// was followed. Every node must be reached from a root.
pub(super) fn natural_loops(
    graph: &Digraph,
    roots: &[usize],
    steps: &mut usize,
    ran: &impl Fn(usize, usize) -> f64,
) -> Found {
    let dominators = Dominators::new(graph, roots);
    let (back, others): (Vec<_>, Vec<_>) = graph
        .edges()
        .partition(|(from, to)| dominators.dominates(*to, *from));
    let mut tails: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (tail, header) in back {
        tails.entry(header).or_default().push(tail);
    }
    let mut found = Found {
        irreducible: Digraph::new(graph.len(), &others).cycles(),
        ..Found::default()
    };
    let mut walk = Walk {
        graph,
        left: *steps,
        seen: vec![0; graph.len()],
        round: 0,
    };
    for (header, tails) in tails {
        match of_header(&mut walk, header, &tails, ran) {
            Some(loops) => found.loops.extend(loops),
            None => found.left_out += 1,
        }
    }
    *steps = walk.left;
    found.nest(graph.len());
    found
}

/// The loops of one header, the outermost first; `None` if that takes too many steps.
fn of_header(
    walk: &mut Walk<'_>,
    header: usize,
    tails: &[usize],
    ran: &impl Fn(usize, usize) -> f64,
) -> Option<Vec<NaturalLoop>> {
    let whole = |nodes| NaturalLoop {
        header,
        nodes,
        tails: tails.to_vec(),
        level: 0,
        parent: None,
    };
    if tails.len() == 1 || MOST_TOLD_APART < tails.len() {
        return Some(vec![whole(walk.body(header, tails)?)]);
    }
    let single = |tail: &usize| {
        let nodes = walk.body(header, &[*tail])?;
        Some(Single {
            tail: *tail,
            nodes,
            ran: ran(*tail, header),
        })
    };
    let singles: Option<Vec<Single>> = tails.iter().map(single).collect();
    let mut loops = Vec::new();
    let mut left = singles?;
    while !left.is_empty() {
        walk.left = walk.left.checked_sub(left.len() * left.len())?;
        let (inner, current): (Vec<Single>, Vec<Single>) = {
            let is_inner: Vec<bool> = left.iter().map(|it| it.is_nested_in(&left)).collect();
            let mut is_inner = is_inner.into_iter();
            left.into_iter().partition(|_| is_inner.next().unwrap_or(false))
        };
        left = inner;
        let mut nodes: Vec<usize> = current.iter().flat_map(|it| it.nodes.iter().copied()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        loops.push(NaturalLoop {
            header,
            nodes,
            tails: current.iter().map(|it| it.tail).collect(),
            level: loops.len(),
            parent: None,
        });
    }
    Some(loops)
}

/// The loop of one back edge.
struct Single {
    tail: usize,
    nodes: Vec<usize>,
    /// How often the edge was followed.
    ran: f64,
}

impl Single {
    /// Whether it is a loop within others of the same header.
    fn is_nested_in(&self, others: &[Self]) -> bool {
        let supersets = others.iter().filter(|other| self.is_proper_subset_of(other));
        let (n, ran) = supersets.fold((0, 0.0), |(n, ran), other| (n + 1, ran + other.ran));
        0 < n && 0.0 < self.ran && T * ran <= self.ran
    }

    /// A loop has all nodes that reach one of its nodes without passing the header: it holds another loop if it holds the
    /// source of its back edge.
    fn is_proper_subset_of(&self, other: &Self) -> bool {
        let holds = |it: &Self, tail| it.nodes.binary_search(&tail).is_ok();
        holds(other, self.tail) && !holds(self, other.tail)
    }
}

/// Walks against the edges.
struct Walk<'a> {
    graph: &'a Digraph,
    /// Steps that may still be taken.
    left: usize,
    /// The last round that each node was met in.
    seen: Vec<u32>,
    round: u32,
}

impl Walk<'_> {
    /// The header and the nodes that reach one of the tails without passing it, sorted.
    fn body(&mut self, header: usize, tails: &[usize]) -> Option<Vec<usize>> {
        self.round = self.round.checked_add(1)?;
        let mut nodes = Vec::new();
        let mut open = Vec::new();
        self.meet(header);
        nodes.push(header);
        for tail in tails {
            if self.meet(*tail) {
                open.push(*tail);
            }
        }
        while let Some(node) = open.pop() {
            self.left = self.left.checked_sub(1)?;
            nodes.push(node);
            let graph = self.graph;
            for before in graph.predecessors(node) {
                if self.meet(*before) {
                    open.push(*before);
                }
            }
        }
        nodes.sort_unstable();
        Some(nodes)
    }

    /// Whether a node is met for the first time in this round.
    fn meet(&mut self, node: usize) -> bool {
        let round = self.round;
        let seen = self.seen.get_mut(node).filter(|seen| **seen != round);
        seen.map(|seen| *seen = round).is_some()
    }
}

impl Found {
    /// Puts outer loops before inner ones, and says which lies in which.
    fn nest(&mut self, n_nodes: usize) {
        self.loops
            .sort_by_key(|it| (std::cmp::Reverse(it.nodes.len()), it.header, it.level));
        let mut innermost: Vec<Option<usize>> = vec![None; n_nodes];
        for (n, it) in self.loops.iter_mut().enumerate() {
            it.parent = innermost.get(it.header).copied().flatten();
            for node in &it.nodes {
                if let Some(slot) = innermost.get_mut(*node) {
                    *slot = Some(n);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
