//! Branch stacks drawn anew from what was recorded, to see how much the streams of one stack have in common.
//!
//! A snapshot holds how often each stream and each branch was seen, not which of them shared a stack.
//! But it holds how they follow each other: a stream ends at a branch, the branch goes to one of its recorded targets,
//! and there the next stream begins. Walks on this graph are stacks as the hardware could have recorded them. A count
//! differs as much from walk to walk as from stack to stack. This is a parametric bootstrap with a Markov chain as the
//! model (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section 6.5).
//!
//! Not every edge is recorded: a system call does not appear as a branch from user code to the kernel. A walk that comes to
//! such an end goes on where streams begin that no recorded branch led to. Anywhere else it would hardly ever be found
//! after that end, and stacks of a load that makes many system calls would differ more than real ones do.
//!
//! The chain does not know how many rounds of a loop are done; that matters little within one stack.

use std::ops::Range;

use super::super::flow::graph::{Edge, FlowGraph};
use super::super::flow::phases::Phases;
use super::super::sources::stream::Stream;
use super::super::sources::{KernelProcesses, SeenBlocks};
use hbbp_model::snapshot::ProcessIdx;

/// Stacks to draw. A variance from n stacks that show the count is known to sqrt(2/n) of itself: 4096 leave 2 % for a
/// count that every stack shows, and 14 % for one that one stack in 40 shows; its root is known twice as well.
const N_REPLICATES: usize = 4096;

/// Most blocks that the replicates execute together. The usual ones execute 0.2 to 0.4 million; one stream through untaken
/// jumps executes up to 64 Ki, and then fewer replicates have to do.
const MAX_EXECUTED: usize = 4 << 20;

/// A bootstrap replicate of a branch stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replicate {
    /// The phase of the run that it is from, by its oldest stream.
    pub phase: usize,
    /// What it executed; the runs of one process image do not overlap.
    pub runs: Vec<BlockRun>,
}

/// Neighbouring blocks that one replicate executed equally often.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockRun {
    /// Indices in [`super::super::BlockCounts::blocks`].
    pub blocks: Range<usize>,
    /// The process image.
    pub process: ProcessIdx,
    /// How often; a part of a block is a part of an execution.
    pub times: f64,
}

/// Draws stacks of `depth` streams. None where no branch counts say how the streams follow each other.
pub(crate) fn replicates(
    streams: &[Stream],
    graph: &FlowGraph,
    seen: &SeenBlocks,
    kernel: &KernelProcesses,
    phases: &Phases,
    depth: f64,
) -> Vec<Replicate> {
    if graph.branches.is_empty() {
        return Vec::new();
    }
    let chain = Chain::new(graph);
    let mut random = SplitMix(0);
    let walk = |n| {
        // The first streams are spread evenly over all, which leaves less to chance than drawing them.
        let first = (n as f64 + 0.5) / N_REPLICATES as f64;
        chain.walk(first, depth, &mut random)
    };
    let walks: Vec<Vec<usize>> = (0..N_REPLICATES).map(walk).collect();
    let executed = walks.iter().flatten().filter_map(|n| seen.executed.get(*n));
    let executed = executed.map(|executed| executed.blocks().len());
    let step = executed.fold(0, usize::saturating_add).div_ceil(MAX_EXECUTED);
    let replicate = |(n, walk): (usize, &Vec<usize>)| {
        let oldest = walk.first().and_then(|oldest| graph.streams.get(*oldest));
        Replicate {
            phase: oldest.map_or(phases.none(), |oldest| phases.of(oldest.from)),
            runs: runs(walk, streams, seen, kernel, (n as f64 * GOLDEN).fract()),
        }
    };
    // One in `step`: they stay spread evenly.
    walks
        .iter()
        .enumerate()
        .step_by(step.max(1))
        .map(replicate)
        .collect()
}

/// Multiples of the golden ratio are spread evenly modulo 1 (Knuth, The Art of Computer Programming, vol. 3, 6.4).
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// What the streams of a walk executed together, each block once for each process image. A stack is of one process: that of
/// the user code in it, or else a process image that is drawn once, at a `fraction` of all. So the kernel's streams are
/// those of this process.
fn runs(
    walk: &[usize],
    streams: &[Stream],
    seen: &SeenBlocks,
    kernel: &KernelProcesses,
    fraction: f64,
) -> Vec<BlockRun> {
    /// What rounding leaves of a part of a block.
    const NONE: f64 = 1e-9;

    let processes = walk
        .iter()
        .filter_map(|n| streams.get(*n))
        .map(|stream| stream.process);
    let own = { processes }.find(|process| *process != ProcessIdx::KERNEL);
    let mut changes: Vec<(ProcessIdx, usize, f64)> = Vec::new();
    for n in walk {
        if let (Some(stream), Some(executed)) = (streams.get(*n), seen.executed.get(*n)) {
            for (piece, part) in seen.pieces(*executed) {
                for (blocks, process) in kernel.drawn(stream, piece, own, fraction) {
                    changes.push((process, blocks.start, part));
                    changes.push((process, blocks.end, -part));
                }
            }
        }
    }
    changes.sort_by_key(|(process, block, _)| (*process, *block));
    let mut runs = Vec::new();
    let (mut times, mut since) = (0.0, 0);
    for (process, block, change) in changes {
        if NONE < times && since < block {
            runs.push(BlockRun {
                blocks: since..block,
                process,
                times,
            });
        }
        times += change;
        since = block;
    }
    runs
}

/// How streams follow each other.
struct Chain {
    /// By start: the streams.
    streams: Choices,
    /// By branch: the starts that it led to.
    targets: Choices,
    /// Starts that no recorded branch led to, all under 0.
    external: Choices,
    /// The branch that each stream ends at.
    ends: Vec<usize>,
}

impl Chain {
    fn new(graph: &FlowGraph) -> Self {
        let numbered = graph.streams.iter().zip(0..);
        let streams = numbered.map(|(edge, n)| Edge { to: n, ..*edge });
        let external = graph.external.iter().zip(0..);
        let external = external.map(|(&amount, to)| Edge { from: 0, to, amount });
        Self {
            streams: Choices::new(streams),
            targets: Choices::new(graph.branches.iter().copied()),
            external: Choices::new(external),
            ends: graph.streams.iter().map(|stream| stream.to).collect(),
        }
    }

    /// The streams of one stack, from the oldest on; the first one by its share of all streams.
    fn walk(&self, first: f64, depth: f64, random: &mut SplitMix) -> Vec<usize> {
        let mut walk = Vec::new();
        let mut next = self.streams.at(first);
        while (walk.len() as f64) < depth {
            // Where the walk leaves what was recorded, the stack goes on somewhere else.
            let Some(stream) = next.or_else(|| self.streams.at(random.fraction())) else {
                break;
            };
            walk.push(stream);
            next = self.ends.get(stream).and_then(|end| {
                let target = self.targets.after(*end, random.fraction());
                let start = target.or_else(|| self.external.at(random.fraction()))?;
                self.streams.after(start, random.fraction())
            });
        }
        walk
    }
}

/// What can come next, and how often it did.
struct Choices {
    /// Edges with some amount, sorted by where they come from.
    edges: Vec<Edge>,
    /// Where those of each node begin, and after the last one their end.
    first: Vec<usize>,
    /// The amounts of all edges before this one, and at the end of all.
    before: Vec<f64>,
}

impl Choices {
    fn new(edges: impl Iterator<Item = Edge>) -> Self {
        let mut edges: Vec<Edge> = edges.filter(|edge| 0.0 < edge.amount).collect();
        edges.sort_by_key(|edge| (edge.from, edge.to));
        let mut sum = 0.0;
        let mut before = vec![sum];
        before.extend(edges.iter().map(|edge| {
            sum += edge.amount;
            sum
        }));
        let n_nodes = edges.last().map_or(0, |edge| edge.from + 1);
        let mut first = Vec::with_capacity(n_nodes + 1);
        for (at, edge) in edges.iter().enumerate() {
            // Nodes without edges in between begin where this one does.
            first.resize(edge.from + 1, at);
        }
        first.resize(n_nodes + 1, edges.len());
        Self { edges, first, before }
    }

    /// The choice at a fraction, from 0 to 1, of all amounts.
    fn at(&self, fraction: f64) -> Option<usize> {
        self.within(0..self.edges.len(), fraction)
    }

    /// The choice at a fraction, from 0 to 1, of the amounts after one node.
    fn after(&self, node: usize, fraction: f64) -> Option<usize> {
        let (from, end) = (*self.first.get(node)?, *self.first.get(node + 1)?);
        self.within(from..end, fraction).filter(|_| from < end)
    }

    fn within(&self, range: Range<usize>, fraction: f64) -> Option<usize> {
        let (low, high) = (self.before.get(range.start)?, self.before.get(range.end)?);
        let wanted = low + fraction * (high - low);
        let sums = self.before.get(range.clone())?;
        let passed = sums.partition_point(|before| *before <= wanted);
        let chosen = range.start.saturating_add(passed.saturating_sub(1));
        self.edges.get(chosen).map(|edge| edge.to)
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014): numbers that are random enough and the same on every machine.
struct SplitMix(u64);

impl SplitMix {
    /// A number from 0 to below 1.
    fn fraction(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as f64 / 18_446_744_073_709_551_616.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::strata::Allocation;
    use super::super::{Spread, Strata};
    use super::*;
    use crate::flow::graph::tests::graph;
    use proptest::prelude::*;

    /// Relative variance of how often stream 0 is in a stack of 31.
    fn variance(graph: &FlowGraph) -> f64 {
        let chain = Chain::new(graph);
        let mut random = SplitMix(7);
        let mut spread = Spread::default();
        for n in 0..N_REPLICATES {
            let walk = chain.walk((n as f64 + 0.5) / N_REPLICATES as f64, 31.0, &mut random);
            assert_eq!(walk.len(), 31);
            let times = walk.iter().filter(|stream| **stream == 0).count();
            if 0 < times {
                spread.add(0, times as f64);
            }
        }
        let one_phase = Strata {
            stacks: Allocation::new(&[N_REPLICATES as f64], &[0.0]),
            ..Strata::default()
        };
        spread.relative_variance(&one_phase).unwrap()
    }

    #[test]
    fn streams_that_follow_themselves_fill_whole_stacks() {
        // Two loops of one block each: half of the stacks show the first one 31 times, half not at all.
        let streams = [(0, 0, 100.0), (1, 1, 100.0)];
        let loops = variance(&graph(&streams, &[(0, 0, 100.0), (1, 1, 100.0)]));
        assert!((loops - 1.0).abs() < 0.01, "{loops}");
        // After each block either follows: the 31 streams of a stack are independent, and so Var = (1 - p) / (31 p).
        let half = [(0, 0, 50.0), (0, 1, 50.0), (1, 0, 50.0), (1, 1, 50.0)];
        let mixed = variance(&graph(&streams, &half));
        assert!((mixed - 1.0 / 31.0).abs() < 0.004, "{mixed}");
        // They take turns: 15 or 16 of each are in every stack.
        let turns = variance(&graph(&streams, &[(0, 1, 100.0), (1, 0, 100.0)]));
        assert!(turns < 0.002, "{turns}");
    }

    #[test]
    fn an_unrecorded_edge_leads_to_external_inflow() {
        // A program calls the kernel (0 to 1), which is not recorded, and the kernel returns; beside them a loop.
        let streams = [(0, 0, 100.0), (1, 1, 100.0), (2, 2, 1000.0)];
        let found = variance(&graph(&streams, &[(1, 0, 100.0), (2, 2, 1000.0)]));
        // One stack in six is of both, with 15 or 16 of each: Var = (1 - p) / p.
        assert!((found - 5.0).abs() < 0.05, "{found}");
    }

    #[test]
    fn without_branches_nothing_is_drawn() {
        let graph = graph(&[(0, 0, 1.0)], &[]);
        let (seen, phases) = (SeenBlocks::default(), Phases::default());
        let kernel = KernelProcesses::default();
        assert_eq!(replicates(&[], &graph, &seen, &kernel, &phases, 31.0), []);
    }

    proptest! {
        #[test]
        fn choices_are_drawn_by_their_share(
            hits in prop::collection::vec(1u64..50, 1..20),
            fraction in 0.0f64..1.0,
        ) {
            let edge = |(hits, n): (&u64, usize)| Edge { from: n / 4, to: n, amount: *hits as f64 };
            let choices = Choices::new(hits.iter().zip(0..).map(edge));
            let drawn = choices.at(fraction).unwrap();
            let before: u64 = hits[..drawn].iter().sum();
            let wanted = fraction * hits.iter().sum::<u64>() as f64;
            prop_assert!(before as f64 <= wanted && wanted < (before + hits[drawn]) as f64 + 1e-9);
            let here = choices.after(0, fraction).unwrap();
            prop_assert!(here < 4);
            prop_assert_eq!(choices.after(99, fraction), None);
        }
    }
}
