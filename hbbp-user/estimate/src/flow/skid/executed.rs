//! What streams execute of the blocks that have samples, what of it is their own, and where samples can skid from block to block.

use std::collections::BTreeMap;

use super::super::super::sources::{Counted, SeenBlocks, Supply};
use super::super::graph::{Edge, FlowGraph, Node};
use super::super::least_squares::LONG;
use crate::sums::{add, over};
use hbbp_code::blocks::{BlockId, BlockMap};
use hbbp_model::addr::Ring;

/// Streams from which on a block has no equation, however few starts they are from. Blocks of 38 loads have 70 at most.
const MANY: usize = 256;

/// Most pairs of a block and a stream that executes it: 64 MB. gcc has 117,000.
const EXECUTED: usize = 1 << 22;

/// For each block the streams that execute it, with the instructions of it that each executes. None for a block that streams from [`LONG`]
/// starts or more run through: its equation would tie too much; and none of the last blocks where there would be more than [`EXECUTED`].
pub(super) fn executed(graph: &FlowGraph, seen: &SeenBlocks) -> Vec<Vec<(usize, f64)>> {
    let mut ends: Vec<End> = Vec::new();
    for (number, (stream, executed)) in graph.streams.iter().zip(&seen.executed).enumerate() {
        for (blocks, part) in seen.pieces(*executed) {
            let numbers = [stream.from, number, blocks.start, blocks.end].map(u32::try_from);
            if let [Ok(start), Ok(stream), Ok(first), Ok(end)] = numbers {
                let of = |block, part| End {
                    block,
                    start,
                    stream,
                    part,
                };
                ends.extend([of(first, Some(part)), of(end, None)]);
            }
        }
    }
    // If a stream ends in one piece and continues in the next, its end comes first.
    ends.sort_by_key(|end| (end.block, end.part.is_some(), end.start, end.stream));
    let mut ends = ends.into_iter().peekable();
    let (mut running, mut n_streams): (BTreeMap<u32, BTreeMap<u32, f64>>, usize) = (BTreeMap::new(), 0);
    let mut n_executed = 0;
    let of_block = |(block, length): (usize, &u32)| {
        while let Some(end) = ends.next_if(|end| end.block as usize <= block) {
            let streams = running.entry(end.start).or_default();
            let n_before = streams.len();
            match end.part {
                Some(part) => streams.insert(end.stream, part),
                None => streams.remove(&end.stream),
            };
            n_streams = (n_streams + streams.len()).saturating_sub(n_before);
            if streams.is_empty() {
                running.remove(&end.start);
            }
        }
        let of_stream = |(stream, part): (&u32, &f64)| (*stream as usize, part * f64::from(*length));
        if running.len() < LONG && n_streams < MANY && n_executed + n_streams < EXECUTED {
            n_executed += n_streams;
            running.values().flatten().map(of_stream).collect()
        } else {
            Vec::new()
        }
    };
    seen.lengths.iter().enumerate().map(of_block).collect()
}

/// Where a stream begins to execute blocks, or has executed the last. There are several for each stream, so they are small.
struct End {
    block: u32,
    start: u32,
    stream: u32,
    /// The part of each block that it executes; `None` if it ends.
    part: Option<f64>,
}

/// What part of the streams through each block is its own, by how many there are of each.
///
/// A block that was seen once also represents others that were not seen at all, and whose samples are not counted here. So what is seen
/// rarely has fewer samples than its streams say: each block by the same part of one occurrence, which follows from how many were seen once
/// and how many twice (absolute discounting: Ney, Essen and Kneser, On the Estimation of Small Probabilities by Leaving-One-Out, IEEE
/// Transactions on Pattern Analysis and Machine Intelligence 17, 1995). In kernels that run a twentieth of their load, one sample
/// in seven is in a block that no stream shows.
pub(super) fn known(streams: &[f64]) -> Vec<f64> {
    let number_of = |times: f64| streams.iter().filter(|n| (*n - times).abs() < 0.5).count() as f64;
    let (once, twice) = (number_of(1.0), number_of(2.0));
    let others = over(once, once + 2.0 * twice);
    streams
        .iter()
        .map(|n| (1.0 - over(others, *n)).max(0.0))
        .collect()
}

/// The same less what is of others.
pub(super) fn less(mut of_blocks: Vec<Vec<(usize, f64)>>, known: &[f64]) -> Vec<Vec<(usize, f64)>> {
    for (of_block, known) in of_blocks.iter_mut().zip(known) {
        of_block.iter_mut().for_each(|(_, n)| *n *= known);
    }
    of_blocks
}

/// The edges between different blocks: within streams, and by recorded branches.
pub(super) fn edges(map: &BlockMap, graph: &FlowGraph, seen: &SeenBlocks) -> Vec<Edge> {
    let mut onward = vec![0.0; seen.ids.len()];
    for (stream, executed) in graph.streams.iter().zip(&seen.executed) {
        let blocks = executed.blocks();
        if let Some(last) = blocks.end.checked_sub(1) {
            add(&mut onward, blocks.start, stream.amount);
            add(&mut onward, last, -stream.amount);
        }
    }
    let mut amounts: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    let mut streams = 0.0;
    for (block, change) in onward.iter().enumerate() {
        streams += change;
        if 0.0 < streams {
            amounts.insert((block, block.saturating_add(1)), streams);
        }
    }
    let block_of = |location: Option<&Node>| {
        let (text, instruction, _) = *location?;
        let block = map.text(text)?.block_of(instruction);
        seen.number(BlockId { text, block })
    };
    for branch in &graph.branches {
        if let Some(from) = block_of(graph.sources.get(branch.from))
            && let Some(to) = block_of(graph.starts.get(branch.to))
            && from != to
        {
            *amounts.entry((from, to)).or_default() += branch.amount;
        }
    }
    let edge = |((from, to), amount)| Edge { from, to, amount };
    amounts.into_iter().map(edge).collect()
}

/// The samples of each block by its number, in units of the mean weight where events differ in their periods.
pub(super) fn samples(
    seen: &SeenBlocks,
    ebs: &[Counted],
    ring: impl Fn(&BlockId) -> Ring,
) -> Vec<Option<f64>> {
    let supply = Supply::of(ebs, |id| ring(&id));
    let none = |id: &BlockId| supply.serves(ring(id)).then_some(0.0);
    let mut samples: Vec<Option<f64>> = seen.ids.iter().map(none).collect();
    for counted in ebs {
        let block = seen.number(counted.block);
        if let Some(Some(samples)) = block.and_then(|n| samples.get_mut(n)) {
            *samples += supply.hits_of(counted.weight);
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_code::locate::TextIdx;
    use hbbp_model::snapshot::ProcessIdx;

    #[test]
    fn a_ring_without_samples_says_nothing() {
        let id = |block| BlockId {
            text: TextIdx(0),
            block,
        };
        let seen = SeenBlocks {
            ids: vec![id(0), id(1), id(2)],
            ..SeenBlocks::default()
        };
        let ring = |block: &BlockId| {
            if block.block == 0 {
                Ring::Kernel
            } else {
                Ring::User
            }
        };
        let counted = |block, hits, period: f64| Counted {
            block: id(block),
            process: ProcessIdx(0),
            hits,
            weight: hits * period,
        };
        let found = samples(&seen, &[counted(1, 6.0, 10.0), counted(1, 4.0, 35.0)], ring);
        assert_eq!(found, [None, Some(10.0), Some(0.0)]);
        assert_eq!(samples(&seen, &[], ring), [None; 3]);
    }

    #[test]
    fn blocks_seen_once_stand_for_those_that_were_not() {
        // Sixty blocks were seen once or twice; half an occurrence of each belongs to unseen blocks.
        let streams = [vec![1.0; 40], vec![2.0; 20], vec![100.0, 0.3, 0.0]].concat();
        let known = known(&streams);
        assert_eq!([known[0], known[40], known[60]], [0.5, 0.75, 0.995]);
        assert_eq!(known[61..], [0.0, 1.0]);
        // What was seen often is not of others.
        assert_eq!(super::known(&[50.0, 3.0]), [1.0, 1.0]);
        let starts = vec![vec![(7, 10.0)], vec![(8, 4.0)]];
        assert_eq!(less(starts, &[0.5, 1.0]), [[(7, 5.0)], [(8, 4.0)]]);
    }
}
