//! Executions of taken branches: what starts at a target, shared among the branches that led there as often as each was
//! recorded.

use std::collections::BTreeMap;

use super::graph::FlowGraph;
use crate::sources::stream::Stream;
use crate::sums::{add, at};
use hbbp_code::locate::TextIdx;

/// A taken branch between two instructions, over all process images.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TakenBranch {
    /// The text and the index of its target.
    pub to: (TextIdx, u32),
    /// The text and the index of the branch instruction; of an interrupt, of the instruction that did not run.
    pub from: (TextIdx, u32),
    /// Occurrences in branch stacks.
    pub hits: f64,
    /// Executions, in the unit of the estimate. Those to a target are at most what starts there; what they lack came from
    /// where no branch was recorded, as from another ring.
    pub executions: f64,
}

/// The branches of the graph with their executions by these streams, which are in its order.
pub(crate) fn taken_branches(graph: &FlowGraph, streams: &[Stream]) -> Vec<TakenBranch> {
    let mut executions = vec![0.0; graph.starts.len()];
    for (edge, stream) in graph.streams.iter().zip(streams) {
        add(&mut executions, edge.from, stream.weight);
    }
    // The newest entry of a stack has no stream after it, so a branch can be recorded more often than what follows.
    let mut recorded = vec![0.0; graph.starts.len()];
    for branch in &graph.branches {
        add(&mut recorded, branch.to, branch.amount);
    }
    let mut branches = BTreeMap::new();
    for branch in &graph.branches {
        let (Some(from), Some(to)) = (graph.sources.get(branch.from), graph.starts.get(branch.to)) else {
            continue;
        };
        let of_all = at(&recorded, branch.to).max(at(&graph.inflow, branch.to));
        let share = if 0.0 < of_all { branch.amount / of_all } else { 0.0 };
        let ends = ((to.0, to.1), (from.0, from.1));
        let sum: &mut (f64, f64) = branches.entry(ends).or_default();
        sum.0 += branch.amount;
        sum.1 += share * at(&executions, branch.to);
    }
    let branch = |((to, from), (hits, executions))| TakenBranch {
        to,
        from,
        hits,
        executions,
    };
    branches.into_iter().map(branch).collect()
}

#[cfg(test)]
mod tests {
    use super::super::graph::tests::graph;
    use super::*;
    use hbbp_model::snapshot::ProcessIdx;

    #[test]
    fn branches_share_what_starts_at_their_target() {
        // Four streams start at 0, five branches led there: one was the newest of its stack. Two start at 1, one branch is
        // known. All weigh ten.
        let mut graph = graph(
            &[(0, 0, 4.0), (1, 1, 2.0)],
            &[(0, 0, 3.0), (1, 0, 2.0), (0, 1, 1.0)],
        );
        for (n, node) in graph.starts.iter_mut().zip(&mut graph.sources).enumerate() {
            (node.0.1, node.1.1) = (n as u32, n as u32 + 10);
        }
        let stream = |weight| Stream {
            text: TextIdx(0),
            process: ProcessIdx(0),
            first: 0,
            end: 1,
            source: 0,
            hits: 1,
            weight,
        };
        let found = taken_branches(&graph, &[stream(40.0), stream(20.0)]);
        let found: Vec<_> = found
            .iter()
            .map(|it| (it.to.1, it.from.1, it.hits, it.executions))
            .collect();
        assert_eq!(
            found,
            [(0, 10, 3.0, 24.0), (0, 11, 2.0, 16.0), (1, 10, 1.0, 10.0)]
        );
    }
}
