//! How far off streams can be, place by place.
//!
//! A stack that was taken at the wrong moment has a branch in its oldest slot that is found there out of proportion. What it
//! shows is what follows that branch, which is therefore shown too often; what as many stacks with other oldest branches
//! would have shown is shown too rarely. Both are followed along the recorded successions for as long as a stack goes on.
//! So a nest of loops around one such branch is suspect, and the rest of the run is less so.
//!
//! Where it ends is not by chance, either: a stack is taken some cycles after its event, more often before a long stream than
//! before a short one. In a loop with a fixed number of rounds that shifts what is at its other end. One of its streams is
//! then too often or too rarely another one. Nothing is known better than to that share.

use super::graph::FlowGraph;
use crate::sources::oldest_slot::chance;
use crate::sums::{add, at};

/// For each start, how many of its streams are in stacks that were taken at the wrong moment, or are missing for them, in
/// shares of its streams: the mean of both, so that over all starts it is the excess of the oldest slots. Stacks hold `depth`
/// streams, and a branch is in the oldest slot in a `share` of its occurrences.
pub(crate) fn excess(graph: &FlowGraph, share: f64, depth: f64) -> Vec<f64> {
    let mut left = vec![0.0; graph.sources.len()];
    for branch in &graph.branches {
        add(&mut left, branch.from, branch.amount);
    }
    let off = |((oldest, left), dispersion): ((&f64, &f64), &f64)| {
        let expected = (left + oldest) * share;
        let beyond_chance = (oldest - expected).abs() - chance(expected, *dispersion);
        (beyond_chance.max(0.0)).copysign(oldest - expected)
    };
    let off: Vec<f64> = graph
        .oldest
        .iter()
        .zip(&left)
        .zip(&graph.dispersion)
        .map(off)
        .collect();
    let too_often = followed(graph, &left, off.iter().map(|off| off.max(0.0)).collect(), depth);
    let too_seldom = followed(
        graph,
        &left,
        off.iter().map(|off| (-off).max(0.0)).collect(),
        depth,
    );
    let one_stream = 1.0 / depth.max(1.0);
    let of_start = |((often, seldom), inflow): ((&f64, &f64), &f64)| match 0.0 < *inflow {
        true => ((often + seldom) / (2.0 * inflow)).max(one_stream),
        false => one_stream,
    };
    let both = too_often.iter().zip(&too_seldom);
    both.zip(&graph.inflow).map(of_start).collect()
}

/// How often each start comes in the `depth` streams after these branches; `left` is how often each was recorded.
fn followed(graph: &FlowGraph, left: &[f64], mut leaves: Vec<f64>, depth: f64) -> Vec<f64> {
    let mut all = vec![0.0; graph.inflow.len()];
    let mut steps = 0.0;
    while steps < depth && leaves.iter().any(|amount| 0.0 < *amount) {
        let mut here = vec![0.0; all.len()];
        for branch in &graph.branches {
            let share = branch.amount / at(left, branch.from);
            add(&mut here, branch.to, share * at(&leaves, branch.from));
        }
        leaves.fill(0.0);
        for stream in &graph.streams {
            let share = stream.amount / at(&graph.inflow, stream.from);
            add(&mut leaves, stream.to, share * at(&here, stream.from));
        }
        all.iter_mut().zip(&here).for_each(|(all, here)| *all += here);
        steps += 1.0;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::graph::tests::graph;
    use super::*;

    /// Two rings of ten starts each, with a branch from each to the next; each starts a thousand streams.
    fn rings(oldest: impl Fn(usize) -> f64) -> Vec<f64> {
        let streams: Vec<_> = (0..20).map(|n| (n, n, 1000.0)).collect();
        let next = |n: usize| n / 10 * 10 + (n + 1) % 10;
        let branches: Vec<_> = (0..20).map(|n| (n, next(n), 1000.0)).collect();
        let mut graph = graph(&streams, &branches);
        graph.oldest = (0..20).map(oldest).collect();
        excess(&graph, 0.2, 4.0)
    }

    #[test]
    fn only_what_is_near_a_branch_in_the_oldest_slot_is_suspect() {
        // Stacks of five entries, four streams each: nothing is known better than to one of them.
        let is_least = |excess: &f64| (excess - 0.25).abs() < 1e-9;
        assert!(rings(|_| 250.0).iter().all(is_least));
        // In the first ring, branch 1 is the oldest of four in ten stacks instead of one in ten.
        let found = rings(|n| match n {
            1 => 1000.0,
            0..10 => 250.0 * 6.0 / 9.0,
            _ => 250.0,
        });
        let (near, others) = (&found[2..6], [&found[..2], &found[6..]].concat());
        assert!(
            near.iter().all(|excess| 0.35 < *excess && *excess < 0.45),
            "{found:?}"
        );
        assert!(others.iter().all(is_least), "{found:?}");
    }
}
