//! What the two methods count: EBS samples and the streams of branch stacks, by block.

pub(super) mod ebs;
pub(super) mod lbr;
pub(super) mod oldest_slot;
pub(super) mod processes;
pub(super) mod streams;

use std::ops::Range;

use streams::Stream;

use crate::addr::Ring;
use crate::blocks::{BlockId, BlockMap};
use crate::locate::TextIdx;
use crate::snapshot::{ProcessIdx, Snapshot};

/// Counts of one method in one block by one process image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counted {
    pub(super) block: BlockId,
    pub(super) process: ProcessIdx,
    /// Samples, or streams.
    pub(super) hits: f64,
    /// In the unit of the estimate.
    pub(super) weight: f64,
}

/// Sums counts of the same block and process; the result is sorted by (block, process).
pub(super) fn summed(counts: Vec<Counted>) -> Vec<Counted> {
    let add = |kept: &mut Counted, next: &Counted| {
        kept.hits += next.hits;
        kept.weight += next.weight;
    };
    merged(counts, |c| (c.block, c.process), add)
}

/// Adds up what has the same key; the result is sorted by key.
/// The sort is stable, so that sums of fractions are always made in the same order.
pub(super) fn merged<T, K: Ord>(mut all: Vec<T>, key: impl Fn(&T) -> K, add: impl Fn(&mut T, &T)) -> Vec<T> {
    all.sort_by_key(&key);
    all.dedup_by(|next, kept| {
        let is_same = key(next) == key(kept);
        if is_same {
            add(kept, next);
        }
        is_same
    });
    all
}

/// What a method has in all: whether in each ring, and what one of its hits weighs.
#[derive(Default)]
pub(super) struct Supply {
    kernel: bool,
    user: bool,
    hits: f64,
    weight: f64,
}

impl Supply {
    pub(super) fn of(counts: &[Counted], ring: impl Fn(BlockId) -> Ring) -> Self {
        let mut supply = Self::default();
        for counted in counts {
            match ring(counted.block) {
                Ring::Kernel => supply.kernel = true,
                Ring::User => supply.user = true,
            }
            supply.hits += counted.hits;
            supply.weight += counted.weight;
        }
        supply
    }

    pub(super) const fn serves(&self, ring: Ring) -> bool {
        match ring {
            Ring::Kernel => self.kernel,
            Ring::User => self.user,
        }
    }

    /// The hits that a weight stands for.
    pub(super) fn hits_of(&self, weight: f64) -> f64 {
        over(weight * self.hits, self.weight)
    }
}

/// A quotient, 0 where there is nothing to divide by.
pub(super) fn over(amount: f64, n: f64) -> f64 {
    if 0.0 < n { amount / n } else { 0.0 }
}

/// The ring of a text range, by its module.
pub fn ring(snapshot: &Snapshot, map: &BlockMap, text: TextIdx) -> Ring {
    let module = map
        .text(text)
        .and_then(|t| snapshot.modules.get(t.module.0 as usize));
    if module.is_some_and(|m| m.kind.is_kernel()) {
        Ring::Kernel
    } else {
        Ring::User
    }
}

/// Every block that a method saw, numbered from 0 in the order of their ids.
///
/// A stream runs through neighbouring blocks of one text, all of which are here: it is a range of numbers.
#[derive(Debug, Default)]
pub(super) struct SeenBlocks {
    pub(super) ids: Vec<BlockId>,
    /// The number of instructions of each block.
    pub(super) lengths: Vec<u32>,
    /// By stream, what it executed.
    pub(super) executed: Vec<Executed>,
}

/// The blocks that a stream executed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Executed {
    /// Their numbers.
    pub(super) blocks: Range<usize>,
    /// The part of the first block before the stream.
    head: f64,
    /// The part of the last block after it, which an interrupt cut off.
    tail: f64,
}

impl SeenBlocks {
    pub(super) fn new(map: &BlockMap, ebs: &[Counted], lbr: &[Counted], streams: &[Stream]) -> Self {
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
    pub(super) fn number(&self, block: BlockId) -> Option<usize> {
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
        let part = |of: Range<u32>, block: u32| {
            let length = text.block(block).len().max(1);
            of.len() as f64 / length as f64
        };
        Some(Executed {
            blocks: low..high.saturating_add(1),
            head: part(text.block(from).start..stream.first, from),
            tail: part(stream.end..text.block(to).end, to),
        })
    }
}

impl Executed {
    /// Ranges of blocks, with the part of each of their blocks that was executed.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (Range<usize>, f64)> + use<> {
        let Range { start, end } = self.blocks;
        let (after, before) = (start.saturating_add(1), end.saturating_sub(1));
        let (head, tail) = (self.head, self.tail);
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
