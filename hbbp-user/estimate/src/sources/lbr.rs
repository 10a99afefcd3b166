//! Last branch records: paper section III.B.
//!
//! Every instruction between the ends of a stream ran once for each of its occurrences, with the weight
//! period / (N-1) of the stack that it was seen in.
//! The streams are summed as a difference array that holds only the positions where the sum changes:
//!
//! ```text
//! streams      [==========)           weight 2
//!                    [=========)      weight 1
//! differences  +2    +1   -2   -1
//! counts       [ 2  )[ 3 )[ 1 )
//! ```
//!
//! A block's count is the mean over its instructions, so that an interrupted stream counts for the part that ran.

use std::ops::Range;

use super::counted::{Counted, summed};
use super::stream::Stream;
use hbbp_code::blocks::{BlockId, BlockMap};
use hbbp_code::locate::TextIdx;
use hbbp_model::snapshot::ProcessIdx;

/// Neighbouring instructions that streams executed equally often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExecutionCounts {
    /// Their text.
    pub text: TextIdx,
    /// The process image that ran.
    pub process: ProcessIdx,
    /// Index of the first instruction.
    pub first: u32,
    /// Index after the last instruction.
    pub end: u32,
    /// Streams that executed them.
    pub hits: u64,
    /// The sum of their weights: estimated executions of each of the instructions.
    pub weight: f64,
}

/// Sums streams, sorted by (text, process), to execution counts, sorted by (text, process, first); these do not overlap.
pub fn execution_counts(streams: &[Stream]) -> Vec<ExecutionCounts> {
    let mut counts = Vec::new();
    for group in streams.chunk_by(|a, b| (a.text, a.process) == (b.text, b.process)) {
        let starts = group.iter().map(|s| (s.first, i128::from(s.hits), s.weight));
        let ends = group.iter().map(|s| (s.end, -i128::from(s.hits), -s.weight));
        let mut differences: Vec<(u32, i128, f64)> = starts.chain(ends).collect();
        differences.sort_by_key(|(at, ..)| *at);

        let (mut hits, mut weight) = (0i128, 0f64);
        let mut from = 0u32;
        for change in differences.chunk_by(|a, b| a.0 == b.0) {
            let Some(&(at, ..)) = change.first() else { continue };
            if let (Some(&Stream { text, process, .. }), Ok(passed @ 1..)) =
                (group.first(), u64::try_from(hits))
            {
                counts.push(ExecutionCounts {
                    text,
                    process,
                    first: from,
                    end: at,
                    hits: passed,
                    weight,
                });
            }
            hits += change.iter().map(|(_, hits, _)| hits).sum::<i128>();
            weight += change.iter().map(|(.., weight)| weight).sum::<f64>();
            // The hits are exact: where no stream is left, what is left of the weight is rounding.
            if hits == 0 {
                weight = 0.0;
            }
            from = at;
        }
    }
    counts
}

/// The executed blocks, sorted by (block, process); hits and weight are means over their instructions.
pub(crate) fn by_block(map: &BlockMap, counts: &[ExecutionCounts]) -> Vec<Counted> {
    let mut by_block = Vec::new();
    for count in counts {
        for (block, share) in shares(map, count.text, count.first..count.end) {
            by_block.push(Counted {
                block,
                process: count.process,
                hits: count.hits as f64 * share,
                weight: count.weight * share,
            });
        }
    }
    summed(by_block)
}

/// The blocks of a range of instructions, each with the share of its instructions that lies in the range.
fn shares(map: &BlockMap, text: TextIdx, range: Range<u32>) -> impl Iterator<Item = (BlockId, f64)> {
    let blocks = map.text(text);
    let mut from = range.start;
    let mut block = blocks.map_or(0, |blocks| blocks.block_of(from));
    std::iter::from_fn(move || {
        let whole = blocks?.block(block);
        let to = whole.end.min(range.end);
        if to <= from {
            return None;
        }
        let share = f64::from(to - from) / f64::from(whole.end - whole.start);
        let id = BlockId { text, block };
        from = to;
        block += 1;
        Some((id, share))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream(first: u32, end: u32, hits: u64, weight: f64) -> Stream {
        Stream {
            text: TextIdx(0),
            process: ProcessIdx(0),
            first,
            end,
            source: end,
            hits,
            weight,
        }
    }

    #[test]
    fn overlapping_streams_sum_to_the_picture_above() {
        let counts = execution_counts(&[stream(0, 11, 4, 2.0), stream(6, 16, 2, 1.0)]);
        let flat: Vec<_> = counts
            .iter()
            .map(|p| (p.first, p.end, p.hits, p.weight))
            .collect();
        assert_eq!(flat, [(0, 6, 4, 2.0), (6, 11, 6, 3.0), (11, 16, 2, 1.0)]);
    }

    #[test]
    fn an_empty_stream_executes_nothing() {
        assert_eq!(execution_counts(&[stream(3, 3, 1, 1.0)]), []);
    }

    #[test]
    fn rounding_errors_end_with_the_streams() {
        let counts = execution_counts(&[stream(0, 2, 1, 0.1), stream(1, 3, 1, 0.2), stream(5, 6, 1, 0.3)]);
        assert_eq!(counts.last().map(|p| p.weight), Some(0.3));
    }

    proptest! {
        #[test]
        fn differences_sum_to_what_counting_each_instruction_gives(
            drawn in prop::collection::vec((0u32..40, 0u32..12, 1u64..5), 0..30),
        ) {
            let streams: Vec<Stream> =
                drawn.iter().map(|&(first, len, hits)| stream(first, first + len, hits, hits as f64 / 31.0)).collect();
            let mut naive = [(0u64, 0f64); 64];
            for s in &streams {
                for i in s.first..s.end {
                    naive[i as usize].0 += s.hits;
                    naive[i as usize].1 += s.weight;
                }
            }
            let mut summed = [(0u64, 0f64); 64];
            for p in execution_counts(&streams) {
                for i in p.first..p.end {
                    prop_assert_eq!(summed[i as usize], (0, 0.0), "counts overlap");
                    summed[i as usize] = (p.hits, p.weight);
                }
            }
            for (a, b) in naive.iter().zip(&summed) {
                prop_assert_eq!(a.0, b.0);
                prop_assert!((a.1 - b.1).abs() < 1e-9);
            }
        }
    }
}
