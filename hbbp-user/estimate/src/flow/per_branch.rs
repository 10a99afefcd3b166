//! How long streams are in the mean, as an equation of how often each ran: all together have as many instructions as were counted.
//!
//! ```text
//! sum over streams of runs * (instructions - counted per branch * counted branches) = 0 +- off
//! ```
//!
//! It has no scale, as the flow of a balance has none: what it tells is how much of it is of long streams and how much of short ones.

use super::graph::FlowGraph;
use super::least_squares::Equation;
use crate::near::ends_near;
use crate::sources::stream::Stream;
use crate::sums::over;
use crate::totals::Totals;
use hbbp_code::blocks::BlockMap;

/// Each stream beside what was counted of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct PerBranch {
    /// By stream: its instructions beyond those that its counted branch represents.
    beyond: Vec<f64>,
    /// By stream: instructions that its counted branch represents.
    due: Vec<f64>,
    /// Relative standard error of what was counted.
    off: f64,
    /// Relative standard deviation that chance leaves of the same sum over the recorded streams.
    by_chance: f64,
}

/// How far streams were from what was counted, before they were tied to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Untied {
    /// Instructions of streams for each taken branch over those that were counted, less 1.
    pub per_branch: f64,
    /// What chance and the counts explain of that: a standard deviation.
    pub error: f64,
    /// Taken branches according to the stacks, divided by the counted ones, minus 1.
    pub taken: f64,
}

impl PerBranch {
    /// For the streams of a graph. The `streams_per_stack` streams of one stack count as one observation.
    pub(crate) fn new(
        totals: Totals,
        streams: &[Stream],
        map: &BlockMap,
        graph: &FlowGraph,
        streams_per_stack: f64,
    ) -> Self {
        let (mut beyond, mut due) = (
            Vec::with_capacity(streams.len()),
            Vec::with_capacity(streams.len()),
        );
        let (mut squares, mut all) = (0.0, 0.0);
        for (stream, edge) in streams.iter().zip(&graph.streams) {
            let is_counted = !totals.near_only || ends_near(stream, map);
            let counted = if is_counted { totals.per_branch } else { 0.0 };
            let more = f64::from(stream.end.saturating_sub(stream.first)) - counted;
            beyond.push(more);
            due.push(counted);
            squares += edge.amount * more * more;
            all += edge.amount * counted;
        }
        Self {
            beyond,
            due,
            off: totals.off,
            by_chance: over((streams_per_stack.max(1.0) * squares).sqrt(), all),
        }
    }

    /// Instructions of all streams that ran this often over those that were counted, less 1.
    pub(crate) fn residual(&self, runs: impl Iterator<Item = f64>) -> f64 {
        let (mut beyond, mut due) = (0.0, 0.0);
        for ((of_beyond, of_due), runs) in self.beyond.iter().zip(&self.due).zip(runs) {
            beyond += of_beyond * runs;
            due += of_due * runs;
        }
        over(beyond, due)
    }

    /// What of the residual of recorded streams chance and the counts explain: a standard deviation.
    pub(crate) fn error(&self) -> f64 {
        self.off.hypot(self.by_chance)
    }

    /// How far the streams of a graph are from what was counted.
    pub(crate) fn untied(&self, totals: Totals, streams: &[Stream], graph: &FlowGraph) -> Untied {
        let taken: f64 = streams.iter().map(|stream| stream.weight).sum();
        Untied {
            per_branch: self.residual(graph.runs()),
            error: self.error(),
            taken: taken / totals.taken - 1.0,
        }
    }

    /// The equation of the streams, with the variance that it has where they ran this often.
    pub(super) fn equation(&self, runs: &[f64]) -> Option<Equation> {
        let due: f64 = self.due.iter().zip(runs).map(|(due, runs)| due * runs).sum();
        let off = self.off * due;
        (0.0 < off).then(|| Equation {
            terms: self.beyond.iter().copied().enumerate().collect(),
            value: 0.0,
            weight: 1.0 / (off * off),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::flow::graph::tests::graph;
    use hbbp_code::blocks::blocks;
    use hbbp_code::locate::{Located, TextIdx};
    use hbbp_model::snapshot::{ProcessIdx, Snapshot};

    /// Of streams of this many instructions.
    pub(crate) fn per_branch(lengths: &[f64], counted: f64) -> PerBranch {
        PerBranch {
            beyond: lengths.iter().map(|length| length - counted).collect(),
            due: vec![counted; lengths.len()],
            off: 0.001,
            by_chance: 0.0,
        }
    }

    fn stream(first: u32, end: u32) -> Stream {
        Stream {
            text: TextIdx(0),
            process: ProcessIdx(0),
            first,
            end,
            source: end - 1,
            hits: 1,
            weight: 1.0,
        }
    }

    #[test]
    fn streams_are_as_long_as_was_counted() {
        // Two streams from one start, of 2 and 10 instructions, and one of 5 from another.
        let graph = graph(&[(0, 0, 30.0), (0, 1, 10.0), (1, 2, 60.0)], &[]);
        let streams = [stream(0, 2), stream(0, 10), stream(20, 25)];
        let map = blocks(&Snapshot::default(), &Located::default());
        let totals = Totals {
            taken: 1e6,
            per_branch: 5.0,
            off: 0.001,
            near_only: false,
        };
        let found = PerBranch::new(totals, &streams, &map, &graph, 15.0);
        assert_eq!(found.beyond, [-3.0, 5.0, 0.0]);
        assert_eq!(found.due, [5.0; 3]);
        assert!((found.residual(graph.runs()) + 40.0 / 500.0).abs() < 1e-12);
        let variance: f64 = 15.0 * (30.0 * 9.0 + 10.0 * 25.0);
        assert!((found.error() - 0.001f64.hypot(variance.sqrt() / 500.0)).abs() < 1e-12);
        let runs: Vec<f64> = graph.runs().collect();
        let equation = found.equation(&runs).unwrap();
        assert_eq!((equation.terms[0], equation.value), ((0, -3.0), 0.0));
        assert!((equation.weight - 4.0).abs() < 1e-9);
        // No counted branch ends these streams, so all their instructions are extra. Without any counted branch there is no
        // estimate.
        let near = Totals {
            near_only: true,
            ..totals
        };
        let none = PerBranch::new(near, &streams, &map, &graph, 15.0);
        assert_eq!((none.beyond[2], none.residual(graph.runs())), (5.0, 0.0));
        assert!(none.equation(&runs).is_none());
    }
}
