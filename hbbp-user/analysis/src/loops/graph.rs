//! A directed graph of numbered nodes, with the edges of each node side by side.

/// The graph; every edge once.
#[derive(Clone, Debug, Default)]
pub(super) struct Digraph {
    successors: Adjacent,
    predecessors: Adjacent,
}

/// The other ends of the edges of each node.
#[derive(Clone, Debug, Default)]
struct Adjacent {
    /// Where the ends of each node begin, and where the last ones end.
    from: Vec<usize>,
    ends: Vec<usize>,
}

impl Digraph {
    /// The graph of `n` nodes with these edges; edges of other nodes are left out.
    pub(super) fn new(n: usize, edges: &[(usize, usize)]) -> Self {
        let inside = edges.iter().filter(|(from, to)| *from < n && *to < n);
        let mut edges: Vec<(usize, usize)> = inside.copied().collect();
        edges.sort_unstable();
        edges.dedup();
        let successors = Adjacent::new(n, &edges);
        let mut reversed: Vec<(usize, usize)> = edges.into_iter().map(|(from, to)| (to, from)).collect();
        reversed.sort_unstable();
        Self {
            successors,
            predecessors: Adjacent::new(n, &reversed),
        }
    }

    /// Number of nodes.
    pub(super) fn len(&self) -> usize {
        self.successors.from.len().saturating_sub(1)
    }

    /// Where the edges from a node lead to, rising.
    pub(super) fn successors(&self, node: usize) -> &[usize] {
        self.successors.of(node)
    }

    /// Where the edges to a node come from, rising.
    pub(super) fn predecessors(&self, node: usize) -> &[usize] {
        self.predecessors.of(node)
    }

    /// All edges, by their first end.
    pub(super) fn edges(&self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.len()).flat_map(|from| self.successors(from).iter().map(move |to| (from, *to)))
    }

    /// The sets of nodes that reach each other, each sorted: those of several nodes, and nodes with an edge to themselves
    /// (Tarjan, Depth-First Search and Linear Graph Algorithms, 1972).
    pub(super) fn cycles(&self) -> Vec<Vec<usize>> {
        let mut search = Components {
            graph: self,
            numbers: vec![0; self.len()],
            low: vec![0; self.len()],
            pending: Vec::new(),
            is_pending: vec![false; self.len()],
            n_numbered: 0,
            found: Vec::new(),
        };
        for node in 0..self.len() {
            search.visit(node);
        }
        search.found
    }
}

impl Adjacent {
    fn new(n: usize, sorted: &[(usize, usize)]) -> Self {
        let from = (0..=n).map(|node| sorted.partition_point(|(from, _)| *from < node));
        Self {
            from: from.collect(),
            ends: sorted.iter().map(|(_, to)| *to).collect(),
        }
    }

    fn of(&self, node: usize) -> &[usize] {
        let range = self
            .from
            .get(node)
            .zip(self.from.get(node.wrapping_add(1)))
            .map(|(from, to)| *from..*to);
        range.and_then(|range| self.ends.get(range)).unwrap_or(&[])
    }
}

/// A search for strongly connected components.
struct Components<'a> {
    graph: &'a Digraph,
    /// In the order of discovery, from 1 on; 0 before.
    numbers: Vec<usize>,
    /// The least number that is reached by the edges of a tree and one more.
    low: Vec<usize>,
    pending: Vec<usize>,
    is_pending: Vec<bool>,
    n_numbered: usize,
    found: Vec<Vec<usize>>,
}

impl<'a> Components<'a> {
    fn visit(&mut self, root: usize) {
        let mut open: Vec<(usize, &'a [usize])> = Vec::new();
        open.extend(self.enter(root));
        while let Some((node, left)) = open.last_mut() {
            let node = *node;
            if let Some((next, others)) = left.split_first() {
                *left = others;
                match self.enter(*next) {
                    Some(entered) => open.push(entered),
                    None => self.reach(node, *next),
                }
                continue;
            }
            open.pop();
            if let Some((parent, _)) = open.last() {
                self.lower(*parent, self.low.get(node).copied());
            }
            self.leave(node);
        }
    }

    fn enter(&mut self, node: usize) -> Option<(usize, &'a [usize])> {
        let number = self.numbers.get_mut(node).filter(|number| **number == 0)?;
        self.n_numbered += 1;
        *number = self.n_numbered;
        if let (Some(low), Some(pending)) = (self.low.get_mut(node), self.is_pending.get_mut(node)) {
            (*low, *pending) = (self.n_numbered, true);
        }
        self.pending.push(node);
        Some((node, self.graph.successors(node)))
    }

    /// An edge leads to a node that was entered before.
    fn reach(&mut self, node: usize, next: usize) {
        if self.is_pending.get(next).copied().unwrap_or(false) {
            self.lower(node, self.numbers.get(next).copied());
        }
    }

    fn lower(&mut self, node: usize, to: Option<usize>) {
        if let Some((low, to)) = self.low.get_mut(node).zip(to) {
            *low = (*low).min(to);
        }
    }

    /// All edges of a node were followed: if they lead to none before it, what is pending since is a component.
    fn leave(&mut self, node: usize) {
        if self.low.get(node) != self.numbers.get(node) {
            return;
        }
        let first = self.pending.iter().rposition(|it| *it == node).unwrap_or(0);
        let mut component = self.pending.split_off(first);
        for node in &component {
            if let Some(pending) = self.is_pending.get_mut(*node) {
                *pending = false;
            }
        }
        let is_cycle = 1 < component.len() || self.graph.successors(node).contains(&node);
        if is_cycle {
            component.sort_unstable();
            self.found.push(component);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Graphs with this number of nodes, with one or two roots.
    pub(crate) fn drawn(n: std::ops::Range<usize>) -> impl Strategy<Value = (Digraph, Vec<usize>)> {
        n.prop_flat_map(|n| {
            let edges = prop::collection::vec((0..n, 0..n), 0..3 * n);
            let roots = prop::collection::vec(0..n, 0..2);
            (edges, roots).prop_map(move |(edges, roots)| {
                let roots = [vec![0], roots].concat();
                (Digraph::new(n, &edges), roots)
            })
        })
    }

    fn leads(graph: &Digraph, from: usize, to: usize) -> bool {
        let mut seen = vec![false; graph.len()];
        let mut open = graph.successors(from).to_vec();
        while let Some(node) = open.pop() {
            if !std::mem::replace(&mut seen[node], true) {
                open.extend(graph.successors(node));
            }
        }
        seen[to]
    }

    #[test]
    fn edges_are_unique_and_sorted_by_node() {
        let graph = Digraph::new(3, &[(2, 0), (0, 1), (0, 2), (0, 1), (7, 0), (0, 7)]);
        assert_eq!(graph.successors(0), [1, 2]);
        assert_eq!(graph.predecessors(0), [2]);
        assert_eq!(graph.edges().collect::<Vec<_>>(), [(0, 1), (0, 2), (2, 0)]);
        assert_eq!((graph.len(), graph.successors(9)), (3, &[][..]));
    }

    proptest! {
        #[test]
        fn cycles_are_what_reaches_each_other((graph, _) in drawn(1..12)) {
            let cycles = graph.cycles();
            for a in 0..graph.len() {
                let own: Vec<&Vec<usize>> = cycles.iter().filter(|cycle| cycle.contains(&a)).collect();
                prop_assert_eq!(own.len(), usize::from(leads(&graph, a, a)));
                for b in 0..graph.len() {
                    let together = own.iter().any(|cycle| cycle.contains(&b));
                    prop_assert_eq!(together, leads(&graph, a, b) && leads(&graph, b, a));
                }
            }
        }
    }
}
