//! Loops of drawn graphs against their definition, and of the paper's figures.

use super::super::graph::tests::drawn;
use super::*;
use proptest::prelude::*;

/// A to F of figure 6 as 0 to 5: all five back edges lead to A.
const FIGURE_6: [(usize, usize, f64); 11] = [
    (0, 1, 1.0),
    (1, 0, 1000.0),
    (1, 2, 1.0),
    (1, 4, 1.0),
    (2, 0, 5.0),
    (2, 3, 1.0),
    (3, 0, 5.0),
    (4, 0, 100.0),
    (4, 5, 1.0),
    (5, 0, 5.0),
    (5, 6, 1.0),
];

fn loops(n: usize, edges: &[(usize, usize, f64)]) -> Found {
    let ends: Vec<(usize, usize)> = edges.iter().map(|(from, to, _)| (*from, *to)).collect();
    let ran = |from, to| {
        let edge = edges.iter().find(|(a, b, _)| (*a, *b) == (from, to));
        edge.map_or(0.0, |(.., ran)| *ran)
    };
    natural_loops(&Digraph::new(n, &ends), &[0], &mut MOST_STEPS.clone(), &ran)
}

#[test]
fn loops_of_one_header_are_those_of_the_papers_figure_6() {
    let found = loops(7, &FIGURE_6);
    let nodes: Vec<&[usize]> = found.loops.iter().map(|it| it.nodes.as_slice()).collect();
    // Z, Y and X.
    assert_eq!(nodes, [&[0, 1, 2, 3, 4, 5][..], &[0, 1, 4], &[0, 1]]);
    let tails: Vec<&[usize]> = found.loops.iter().map(|it| it.tails.as_slice()).collect();
    assert_eq!(tails, [&[2, 3, 5][..], &[4], &[1]]);
    let parents: Vec<Option<usize>> = found.loops.iter().map(|it| it.parent).collect();
    assert_eq!(parents, [None, Some(0), Some(1)]);
    assert_eq!(
        found.loops.iter().map(|it| it.level).collect::<Vec<_>>(),
        [0, 1, 2]
    );
}

/// A back edge that was taken less than three times as often is a path of the same loop.
#[test]
fn rare_back_edge_is_a_path_of_the_same_loop() {
    // Two back edges to 1, from 1 itself and from 2.
    let with = |own| {
        loops(
            4,
            &[(0, 1, 1.0), (1, 1, own), (1, 2, 9.0), (2, 1, 8.0), (2, 3, 1.0)],
        )
    };
    assert_eq!(with(23.9).loops.len(), 1);
    assert_eq!(with(24.0).loops.len(), 2);
    assert_eq!(
        with(0.0).loops.len(),
        1,
        "what never ran is not a loop of its own"
    );
}

#[test]
fn loops_that_take_too_many_steps_are_left_out() {
    // Each node goes back to the first: as many loops of one header as nodes, and then one in the other.
    let edges: Vec<(usize, usize)> = (1..40).flat_map(|n| [(n - 1, n), (n, 0), (n, n - 1)]).collect();
    let graph = Digraph::new(40, &edges);
    let with = |mut steps: usize| {
        let found = natural_loops(&graph, &[0], &mut steps, &|_, _| 1.0);
        (found.loops.len(), found.left_out, steps)
    };
    let (loops, left_out, left) = with(MOST_STEPS);
    assert_eq!((loops, left_out), (39, 0));
    assert_eq!(with(MOST_STEPS - left), (39, 0, 0));
    let (loops, left_out, _) = with(60);
    assert!(loops < 39 && loops + left_out == 39, "{loops} {left_out}");
}

#[test]
fn a_cycle_with_two_entries_is_irreducible() {
    let found = loops(
        4,
        &[(0, 1, 1.0), (0, 2, 1.0), (1, 2, 5.0), (2, 1, 5.0), (2, 3, 1.0)],
    );
    assert_eq!((found.loops.len(), found.irreducible), (0, vec![vec![1, 2]]));
}

/// The natural loop of a back edge, by its definition.
fn body(graph: &Digraph, tail: usize, header: usize) -> Vec<usize> {
    let reaches = |node: usize| {
        let mut seen = vec![false; graph.len()];
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            if node != header && !std::mem::replace(&mut seen[node], true) {
                open.extend(graph.successors(node));
            }
        }
        seen[tail]
    };
    let inside = |node: &usize| *node == header || reaches(*node);
    (0..graph.len()).filter(inside).collect()
}

fn reachable(graph: &Digraph, roots: &[usize]) -> Vec<bool> {
    let mut seen = vec![false; graph.len()];
    let mut open = roots.to_vec();
    while let Some(node) = open.pop() {
        if !std::mem::replace(&mut seen[node], true) {
            open.extend(graph.successors(node));
        }
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn loops_are_those_of_the_definition_and_nested(
        (graph, roots) in drawn(1..12),
        ran in prop::collection::vec(0u32..100, 144),
    ) {
        let ran = |from: usize, to: usize| f64::from(ran[from * 12 + to]);
        // As the definition has it, of the part that is reached.
        let alive = reachable(&graph, &roots);
        let edges: Vec<_> = graph.edges().filter(|(from, _)| alive[*from]).collect();
        let graph = Digraph::new(graph.len(), &edges);
        let found = natural_loops(&graph, &roots, &mut MOST_STEPS.clone(), &ran);
        let dominators = Dominators::new(&graph, &roots);
        let back: Vec<_> = graph.edges().filter(|(from, to)| dominators.dominates(*to, *from)).collect();
        // Each back edge is in one loop, which has all nodes of its natural loop.
        for (tail, header) in &back {
            let own = found.loops.iter().filter(|it| it.header == *header && it.tails.contains(tail));
            let own: Vec<&NaturalLoop> = own.collect();
            prop_assert_eq!(own.len(), 1);
            prop_assert!(body(&graph, *tail, *header).iter().all(|node| own[0].nodes.contains(node)));
        }
        for it in &found.loops {
            let mut nodes: Vec<usize> =
                it.tails.iter().flat_map(|tail| body(&graph, *tail, it.header)).collect();
            nodes.sort_unstable();
            nodes.dedup();
            prop_assert_eq!(&nodes, &it.nodes);
            // The parent is the smallest other loop that holds it.
            let holds = |other: &&NaturalLoop| {
                let whole = it.nodes.iter().all(|node| other.nodes.contains(node));
                whole && (other.nodes.len() > it.nodes.len() || other.header == it.header && other.level < it.level)
            };
            let smallest = found.loops.iter().filter(holds).map(|other| other.nodes.len()).min();
            prop_assert_eq!(it.parent.map(|parent| found.loops[parent].nodes.len()), smallest);
        }
        for (n, a) in found.loops.iter().enumerate() {
            prop_assert!(a.parent.is_none_or(|parent| parent < n));
            for b in &found.loops {
                let common = a.nodes.iter().filter(|node| b.nodes.contains(node)).count();
                prop_assert!(common == 0 || common == a.nodes.len().min(b.nodes.len()));
            }
        }
        // What still goes round without the back edges is irreducible.
        let left: Vec<_> = graph.edges().filter(|edge| !back.contains(edge)).collect();
        prop_assert_eq!(found.irreducible, Digraph::new(graph.len(), &left).cycles());
    }
}
