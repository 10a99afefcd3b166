//! The blocks that a method saw, numbered, and which of them each stream executed.

use std::ops::Range;

use super::counted::Counted;
use super::lbr;
use super::stream::Stream;
use hbbp_code::blocks::{BlockId, BlockMap};

/// Every block that a method saw, numbered from 0 in the order of their ids.
///
/// A stream runs through neighbouring blocks of one text, all of which are here: it is a range of numbers.
#[derive(Debug, Default)]
pub(crate) struct SeenBlocks {
    pub(crate) ids: Vec<BlockId>,
    /// The number of instructions of each block.
    pub(crate) lengths: Vec<u32>,
    /// By stream, what it executed.
    pub(crate) executed: Vec<Executed>,
}

/// The blocks that a stream executed. There are as many as streams, so each is small.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Executed {
    /// Number of the first block.
    pub(crate) first: u32,
    /// Number of the block after the last one.
    pub(crate) end: u32,
    /// Instructions of the first block before the stream.
    head: u32,
    /// Instructions of the last block after it, which an interrupt cut off.
    tail: u32,
}

impl SeenBlocks {
    /// Those of samples and of streams.
    pub(crate) fn of(map: &BlockMap, ebs: &[Counted], streams: &[Stream]) -> Self {
        let passed = lbr::by_block(map, &lbr::execution_counts(streams));
        Self::new(map, ebs, &passed, streams)
    }

    pub(crate) fn new(map: &BlockMap, ebs: &[Counted], lbr: &[Counted], streams: &[Stream]) -> Self {
        let mut ids: Vec<BlockId> = ebs.iter().chain(lbr).map(|counted| counted.block).collect();
        ids.sort_unstable();
        ids.dedup();
        let length = |id: &BlockId| {
            let range = map.text(id.text).map_or(0..0, |text| text.block(id.block));
            range.end.saturating_sub(range.start).max(1)
        };
        let lengths = ids.iter().map(length).collect();
        let mut seen = Self {
            ids,
            lengths,
            executed: Vec::new(),
        };
        let executed = |stream| seen.executed_by(map, stream).unwrap_or_default();
        seen.executed = streams.iter().map(executed).collect();
        seen
    }

    /// The number of a block.
    pub(crate) fn number(&self, block: BlockId) -> Option<usize> {
        self.ids.binary_search(&block).ok()
    }

    fn executed_by(&self, map: &BlockMap, stream: &Stream) -> Option<Executed> {
        let text = map.text(stream.text)?;
        let last = stream.end.checked_sub(1).filter(|last| stream.first <= *last)?;
        let id = |block| BlockId {
            text: stream.text,
            block,
        };
        let (from, to) = (text.block_of(stream.first), text.block_of(last));
        let (low, high) = (self.number(id(from))?, self.number(id(to))?);
        Some(Executed {
            first: u32::try_from(low).ok()?,
            end: u32::try_from(high).ok()?.saturating_add(1),
            head: stream.first.saturating_sub(text.block(from).start),
            tail: text.block(to).end.saturating_sub(stream.end),
        })
    }

    /// The streams, in the order of the first block that each executed.
    pub(crate) fn by_first_block(&self) -> Vec<u32> {
        let mut streams: Vec<u32> = (0..).zip(&self.executed).map(|(n, _)| n).collect();
        // They come by process within a text, so that this merges a few sorted runs.
        streams.sort_by_key(|n| self.executed.get(*n as usize).map(|executed| executed.first));
        streams
    }

    /// How often each block ran, by its number, where the streams count these amounts.
    pub(crate) fn executions(&self, amounts: impl Iterator<Item = f64>) -> Vec<f64> {
        let mut changes = vec![0.0; self.ids.len().saturating_add(1)];
        for (executed, amount) in self.executed.iter().zip(amounts) {
            for (blocks, part) in self.pieces(*executed) {
                for (block, change) in [(blocks.start, part), (blocks.end, -part)] {
                    if let Some(sum) = changes.get_mut(block) {
                        *sum += change * amount;
                    }
                }
            }
        }
        let mut sum = 0.0;
        for change in &mut changes {
            sum += *change;
            *change = sum;
        }
        changes.truncate(self.ids.len());
        changes
    }

    /// Ranges of the blocks that a stream executed, with the part of each of their blocks that was.
    pub(crate) fn pieces(&self, executed: Executed) -> impl Iterator<Item = (Range<usize>, f64)> + use<> {
        let Range { start, end } = executed.blocks();
        let (after, before) = (start.saturating_add(1), end.saturating_sub(1));
        let length = |block| f64::from(self.lengths.get(block).copied().unwrap_or(1));
        let head = f64::from(executed.head) / length(start);
        let tail = f64::from(executed.tail) / length(before);
        let pieces = if start == before {
            [(start..end, 1.0 - head - tail), (0..0, 0.0), (0..0, 0.0)]
        } else {
            let from = if 0.0 < head { after } else { start };
            let to = if 0.0 < tail { before } else { end };
            [(start..from, 1.0 - head), (from..to, 1.0), (to..end, 1.0 - tail)]
        };
        pieces.into_iter().filter(|(blocks, _)| !blocks.is_empty())
    }
}

impl Executed {
    /// The numbers of the blocks.
    pub(crate) const fn blocks(self) -> Range<usize> {
        self.first as usize..self.end as usize
    }
}
