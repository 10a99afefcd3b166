//! Dominators of a flow graph: a node dominates another if every path from a root to the other passes it.
//!
//! Lengauer and Tarjan, A Fast Algorithm for Finding Dominators in a Flowgraph (TOPLAS 1979), with path compression
//! alone: O(m log n) whatever the graph, as graphs come from programs of other users.

use super::graph::Digraph;

/// The dominator tree.
#[derive(Clone, Debug)]
pub(super) struct Dominators {
    /// For each node, when a walk of the tree enters and leaves it; `None` if it cannot be reached from a root.
    spans: Vec<Option<(usize, usize)>>,
}

impl Dominators {
    /// The dominators of a graph whose control flow begins at any of the roots.
    pub(super) fn new(graph: &Digraph, roots: &[usize]) -> Self {
        let order = Search::new(graph, roots);
        let idoms = order.immediate_dominators(graph, roots);
        Self {
            spans: spans(&order, &idoms, graph.len()),
        }
    }

    /// Whether every path to `node` passes `by`; a node dominates itself.
    pub(super) fn dominates(&self, by: usize, node: usize) -> bool {
        let span = |node: usize| self.spans.get(node).copied().flatten();
        match (span(by), span(node)) {
            (Some((enter, leave)), Some((inner, _))) => enter <= inner && inner < leave,
            _ => false,
        }
    }
}

/// A depth-first search from a node before all roots. Nodes are numbered in the order of their discovery, that node as 0.
struct Search {
    /// Node of each number; of number 0 one that does not exist.
    nodes: Vec<usize>,
    /// Number of each node; 0 if it was not reached.
    numbers: Vec<usize>,
    /// Number of the parent of each number.
    parents: Vec<usize>,
}

impl Search {
    fn new(graph: &Digraph, roots: &[usize]) -> Self {
        let mut search = Self {
            nodes: vec![usize::MAX],
            numbers: vec![0; graph.len()],
            parents: vec![0],
        };
        // Successors that are left, by depth; a depth-first tree needs them one at a time.
        let mut open: Vec<(usize, &[usize])> = Vec::new();
        for root in roots {
            search.discover(*root, 0).into_iter().for_each(|number| {
                open.push((number, graph.successors(*root)));
            });
            while let Some((number, left)) = open.last_mut() {
                let Some((next, others)) = left.split_first() else {
                    open.pop();
                    continue;
                };
                *left = others;
                let number = *number;
                if let Some(found) = search.discover(*next, number) {
                    open.push((found, graph.successors(*next)));
                }
            }
        }
        search
    }

    /// Numbers a node that was not reached before.
    fn discover(&mut self, node: usize, parent: usize) -> Option<usize> {
        let number = self.nodes.len();
        let slot = self.numbers.get_mut(node).filter(|slot| **slot == 0)?;
        *slot = number;
        self.nodes.push(node);
        self.parents.push(parent);
        Some(number)
    }

    /// The immediate dominator of each number, as a number; 0 for the roots and for what only several of them lead to.
    fn immediate_dominators(&self, graph: &Digraph, roots: &[usize]) -> Vec<usize> {
        let n = self.nodes.len();
        let mut is_root = vec![false; n];
        for root in roots.iter().filter_map(|root| self.numbers.get(*root)) {
            set(&mut is_root, *root, true);
        }
        let mut forest = Forest::new(n);
        let mut semi: Vec<usize> = (0..n).collect();
        let mut idom = vec![0; n];
        let mut buckets: Vec<Vec<usize>> = vec![Vec::new(); n];
        for number in (1..n).rev() {
            let predecessors = graph.predecessors(at(&self.nodes, number)).iter();
            let reached = predecessors.map(|node| at(&self.numbers, *node));
            let mut least = if at(&is_root, number) { 0 } else { number };
            for predecessor in reached.filter(|number| 0 < *number) {
                least = least.min(at(&semi, forest.eval(predecessor, &semi)));
            }
            set(&mut semi, number, least);
            if let Some(bucket) = buckets.get_mut(least) {
                bucket.push(number);
            }
            let parent = at(&self.parents, number);
            forest.link(parent, number);
            for inner in buckets.get_mut(parent).map(std::mem::take).unwrap_or_default() {
                let best = forest.eval(inner, &semi);
                let found = if at(&semi, best) < at(&semi, inner) {
                    best
                } else {
                    parent
                };
                set(&mut idom, inner, found);
            }
        }
        for number in 1..n {
            let found = at(&idom, number);
            if found != at(&semi, number) {
                let above = at(&idom, found);
                set(&mut idom, number, above);
            }
        }
        idom
    }
}

/// The forest of Lengauer and Tarjan: of each node, the one with the least semidominator on the path to its root.
struct Forest {
    ancestors: Vec<usize>,
    labels: Vec<usize>,
}

/// No ancestor yet.
const NONE: usize = usize::MAX;

impl Forest {
    fn new(n: usize) -> Self {
        Self {
            ancestors: vec![NONE; n],
            labels: (0..n).collect(),
        }
    }

    fn link(&mut self, parent: usize, node: usize) {
        set(&mut self.ancestors, node, parent);
    }

    fn eval(&mut self, node: usize, semi: &[usize]) -> usize {
        // The path to the child of the root of its tree, then compressed from there on down.
        let mut path = Vec::new();
        let mut here = node;
        while at(&self.ancestors, here) != NONE && at(&self.ancestors, at(&self.ancestors, here)) != NONE {
            path.push(here);
            here = at(&self.ancestors, here);
        }
        for node in path.into_iter().rev() {
            let ancestor = at(&self.ancestors, node);
            let (own, above) = (at(&self.labels, node), at(&self.labels, ancestor));
            if at(semi, above) < at(semi, own) {
                set(&mut self.labels, node, above);
            }
            let top = at(&self.ancestors, ancestor);
            set(&mut self.ancestors, node, top);
        }
        at(&self.labels, node)
    }
}

/// When a walk of the dominator tree enters and leaves each node.
fn spans(order: &Search, idoms: &[usize], n_nodes: usize) -> Vec<Option<(usize, usize)>> {
    // A dominator has a smaller number than what it dominates, so sizes add up from the last number to the first.
    // Positions are given from the first to the last.
    let n = idoms.len();
    let mut sizes = vec![1usize; n];
    for number in (1..n).rev() {
        let (size, above) = (at(&sizes, number), at(idoms, number));
        let sum = at(&sizes, above) + size;
        set(&mut sizes, above, sum);
    }
    let mut spans = vec![None; n_nodes];
    let mut free = vec![1usize; n];
    for number in 1..n {
        let (size, above) = (at(&sizes, number), at(idoms, number));
        let enter = at(&free, above);
        set(&mut free, above, enter + size);
        set(&mut free, number, enter + 1);
        set(&mut spans, at(&order.nodes, number), Some((enter, enter + size)));
    }
    spans
}

fn at<T: Copy + Default>(all: &[T], n: usize) -> T {
    all.get(n).copied().unwrap_or_default()
}

fn set<T>(all: &mut [T], n: usize, value: T) {
    if let Some(slot) = all.get_mut(n) {
        *slot = value;
    }
}

#[cfg(test)]
mod tests {
    use super::super::graph::tests::drawn;
    use super::*;
    use proptest::prelude::*;

    /// The nodes that the roots lead to without passing `without`.
    fn reached(graph: &Digraph, roots: &[usize], without: Option<usize>) -> Vec<bool> {
        let mut reached = vec![false; graph.len()];
        let mut open: Vec<usize> = roots
            .iter()
            .copied()
            .filter(|root| Some(*root) != without)
            .collect();
        while let Some(node) = open.pop() {
            if !std::mem::replace(&mut reached[node], true) {
                let next = graph.successors(node).iter().copied();
                open.extend(next.filter(|next| Some(*next) != without));
            }
        }
        reached
    }

    #[test]
    fn arms_of_a_branch_dominate_nothing_after_it() {
        let graph = Digraph::new(5, &[(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)]);
        let dominators = Dominators::new(&graph, &[0]);
        let of_4: Vec<usize> = (0..5).filter(|by| dominators.dominates(*by, 4)).collect();
        assert_eq!(of_4, [0, 3, 4]);
        let both = Dominators::new(&graph, &[0, 3]);
        assert!(!both.dominates(0, 4) && both.dominates(3, 4) && both.dominates(0, 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn a_node_dominates_what_cannot_be_reached_without_it(
            (graph, roots) in drawn(1..14),
        ) {
            let dominators = Dominators::new(&graph, &roots);
            let all = reached(&graph, &roots, None);
            for by in 0..graph.len() {
                let others = reached(&graph, &roots, Some(by));
                for node in 0..graph.len() {
                    let expected = all[by] && all[node] && (by == node || !others[node]);
                    prop_assert_eq!(dominators.dominates(by, node), expected, "{} by {}", node, by);
                }
            }
        }
    }
}
