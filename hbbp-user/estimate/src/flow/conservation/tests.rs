//! Choices, their deviations and shares, and slack.

use super::super::errors::FAIR;
use super::super::graph::tests::graph;
use super::ways::Choice;
use super::*;

/// The first deviation among the unknowns: there are four starts before it.
const FIRST: usize = 4;

/// A start with two branches, to two starts that lead back; one of the branches was recorded with a third target, which is not known.
fn conservation(graph: &FlowGraph) -> Conservation<'_> {
    let share = |from, to, amount| Edge { from, to, amount };
    let targets = [
        share(0, 1, 0.5),
        share(0, 2, 0.3),
        share(1, 2, 1.0),
        share(2, 0, 1.0),
        share(3, 0, 1.0),
    ];
    let mut conservation = Conservation::new(graph, &targets, FAIR, FIRST);
    conservation.weigh(&graph.inflow);
    conservation
}

fn forked() -> FlowGraph {
    let streams = [(0, 0, 40.0), (0, 1, 60.0), (1, 2, 20.0), (2, 3, 70.0)];
    let mut graph = graph(&streams, &[]);
    graph.external.fill(0.0);
    graph
}

#[test]
fn a_choice_has_one_deviation_less_than_ways() {
    let graph = forked();
    let conservation = conservation(&graph);
    let choice = |free: &[usize], last: Option<usize>, first| Choice {
        free: free.to_vec(),
        last,
        is_complete: last.is_some(),
        first,
    };
    // The way that is taken more often follows from the other.
    assert_eq!(conservation.streams.choices, [choice(&[0], Some(1), FIRST)]);
    assert_eq!(conservation.branches.choices, [choice(&[1, 0], None, FIRST + 1)]);
    assert_eq!(conservation.n_deviations(), 3);
}

#[test]
fn deviations_of_a_choice_have_the_variances_of_draws() {
    let graph = forked();
    let mut equations = Vec::new();
    conservation(&graph).equations(&graph.inflow, &mut equations);
    // Of a hundred choices with 0.4 and 0.6 the variance is 24: one over the sum of what both ways know of it.
    let known: f64 = equations[..2]
        .iter()
        .map(|equation| equation.weight * equation.terms[0].1 * equation.terms[0].1)
        .sum();
    assert!((40.0 / known - 24.0).abs() < 1e-9, "{known}");
    // One way's deviation is missing from the other's target.
    let of_2 = &equations[equations.len() - 2];
    let moved: Vec<f64> = of_2
        .terms
        .iter()
        .filter(|(n, _)| *n == FIRST)
        .map(|term| term.1)
        .collect();
    let deviation = 40.0_f64.sqrt();
    assert_eq!(moved, [-0.3 * deviation, deviation]);
}

#[test]
fn shares_are_what_was_found_last() {
    let graph = forked();
    let mut conservation = conservation(&graph);
    // One deviation is for the rare target of the start, and two are for each target of its branch.
    conservation.found(&[0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 2.0]);
    let moved = 40.0_f64.sqrt();
    let shares = &conservation.streams.shares;
    assert!((shares[0] - (0.4 + moved / 100.0)).abs() < 1e-12 && (shares[0] + shares[1] - 1.0).abs() < 1e-12);
    // Forty choices: 20 and 12 of known targets, and 8 of others, which are fewer now than none.
    let (half, third) = (20.0 + 2.0 * 20.0_f64.sqrt(), 12.0 + 2.0 * 12.0_f64.sqrt());
    let shares = &conservation.branches.shares;
    assert!((shares[0] - half / (half + third)).abs() < 1e-12, "{shares:?}");
    assert!((shares[1] - third / (half + third)).abs() < 1e-12, "{shares:?}");
    // What was recorded draws them back.
    let mut equations = Vec::new();
    conservation.weigh(&graph.inflow);
    conservation.equations(&graph.inflow, &mut equations);
    assert!(
        equations[0].value < 0.0 && 0.0 < equations[1].value,
        "{equations:?}"
    );
}

#[test]
fn a_way_that_was_found_to_be_none_can_come_back() {
    let graph = forked();
    let mut conservation = conservation(&graph);
    for (deviation, expected) in [(-20.0, 0.0), (20.0, 20.0 * 0.5_f64.sqrt() / 100.0)] {
        conservation.weigh(&graph.inflow);
        conservation.found(&[0.0, 0.0, 0.0, 0.0, deviation, 0.0, 0.0]);
        let share = conservation.streams.shares[0];
        assert!((share - expected).abs() < 1e-12, "{share}");
    }
}

#[test]
fn sums_of_streams_have_their_deviations() {
    let graph = forked();
    let mut conservation = conservation(&graph);
    let moved = 40.0_f64.sqrt();
    assert_eq!(conservation.terms(&[(0, 2.0)]), [(0, 0.8), (FIRST, 2.0 * moved)]);
    assert_eq!(conservation.terms(&[(1, 2.0)]), [(0, 1.2), (FIRST, -2.0 * moved)]);
    // What both ways of a choice run through does not depend on it, and what is certain has no deviation.
    assert_eq!(
        conservation.terms(&[(2, 3.0), (0, 1.0), (1, 1.0)]),
        [(0, 1.0), (1, 3.0)]
    );
    conservation.found(&[0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
    let runs = conservation.runs(&[200.0, 5.0, 7.0, 0.0]);
    let expected = [80.0 + 2.0 * moved, 120.0 - 2.0 * moved, 5.0, 7.0];
    assert!(
        runs.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9),
        "{runs:?}"
    );
}

#[test]
fn where_there_are_many_ways_each_has_a_deviation() {
    let streams: Vec<_> = (0..300).map(|n| (0, n, 1.0)).collect();
    let graph = graph(&streams, &[]);
    let mut conservation = Conservation::new(&graph, &[], FAIR, 300);
    assert_eq!(conservation.n_deviations(), 300);
    // They run as often as their start has inflow, also where all deviations do not add up to nothing.
    conservation.weigh(&graph.inflow);
    conservation.found(&vec![-0.5; 600]);
    let runs: f64 = conservation.runs(&graph.inflow).iter().sum();
    assert!((runs - 300.0).abs() < 1e-9, "{runs}");
    let few = self::graph(&streams[..200], &[]);
    assert_eq!(Conservation::new(&few, &[], FAIR, 200).n_deviations(), 199);
}

#[test]
fn slack_is_a_part_of_the_flow() {
    let slack = |variance: f64, scale: f64| {
        let mut equation = Equation {
            terms: vec![(0, 1.0), (1, -3.0)],
            value: 0.0,
            weight: 1.0 / variance,
        };
        relative(&mut equation, &[10.0, 10.0]);
        let [(_, a), (_, b)] = equation.terms[..] else {
            panic!("{equation:?}")
        };
        10.0 * scale * (a + b) - equation.value
    };
    // 30 lead to where 10 run, which may be chance: to double both changes nothing.
    assert!((slack(400.0, 1.0) + 20.0).abs() < 1e-9 && (slack(400.0, 2.0) + 20.0).abs() < 1e-9);
    // Where it is not, what is lost is an amount but for a part.
    assert!((slack(4.0, 1.0) + 20.0).abs() < 1e-9 && (slack(4.0, 2.0) + 39.8).abs() < 1e-9);
    // Where next to nothing runs it is an amount.
    let mut none = Equation {
        terms: vec![(0, 1.0)],
        ..Equation::default()
    };
    relative(&mut none, &[0.4]);
    assert_eq!(none.terms, [(0, 1.0)]);
}

#[test]
fn terms_of_a_wide_choice_before_many_targets_are_bounded() {
    /// Ways of the choice, and targets of the branch that most streams end with.
    const WIDE: usize = 2 * LONG;

    let rare = (1..WIDE).map(|branch| (0, branch, 1.0));
    let often = (0, 0, WIDE as f64);
    let streams: Vec<_> = rare.chain([often]).collect();
    let back = (1..WIDE).map(|branch| (branch, 0, 1.0));
    let onward = (0..WIDE).map(|target| (0, target, 1.0));
    let branches: Vec<_> = back.chain(onward).collect();
    let graph = graph(&streams, &branches);
    let share = |from, to, amount| Edge { from, to, amount };
    let targets: Vec<Edge> = branches
        .iter()
        .map(|(from, to, amount)| share(*from, *to, if *from == 0 { amount / WIDE as f64 } else { 1.0 }))
        .collect();
    let mut conservation = Conservation::new(&graph, &targets, FAIR, graph.inflow.len());
    conservation.weigh(&graph.inflow);
    let mut equations = Vec::new();
    conservation.equations(&graph.inflow, &mut equations);
    let n_terms: usize = equations.iter().map(|equation| equation.terms.len()).sum();
    assert!(n_terms < 10 * WIDE, "{n_terms}");
}
