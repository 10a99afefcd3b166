//! Which process images are counted by themselves.
//!
//! Every process image has a count of its own for each block that it executed. One stream can run through 64 Ki blocks of
//! untaken jumps, so anybody who starts short processes could make these counts larger than any memory.
//! Beyond a bound, the images that executed the most blocks for each of their streams are counted together, as
//! [`ProcessIdx::OTHERS`]; nothing but their names is lost.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use hbbp_code::blocks::BlockMap;
use hbbp_code::locate::{Located, LocatedStream, TextIdx};
use hbbp_model::snapshot::ProcessIdx;

/// Most pairs of a block and a process image that executed it in a stream: 1 GB of memory in all that is made of them.
/// A profile holds four million streams at most, which are of two or three blocks as a rule.
const MAX_PAIRS: usize = 4 << 20;

/// The blocks of a stream, and how often it was seen.
struct Span {
    process: ProcessIdx,
    text: TextIdx,
    first: u32,
    last: u32,
    hits: u64,
}

/// What one process image executed in streams.
struct Image {
    process: ProcessIdx,
    n_blocks: usize,
    hits: u64,
}

/// Where not all process images can be told apart, the counts with some of them as one, and how many these are. The streams
/// are moved then.
pub(crate) fn with_others(located: &mut Located, map: &BlockMap) -> (Option<Located>, u64) {
    // Most profiles have few pairs, however often each is counted: their spans are not kept.
    let pairs = spans(located, map).map(|span| n_blocks(span.first, span.last));
    if pairs.fold(0, usize::saturating_add) <= MAX_PAIRS {
        return (None, 0);
    }
    let together = counted_together(spans(located, map).collect(), MAX_PAIRS);
    let renamed = |process| {
        if together.contains(&process) {
            ProcessIdx::OTHERS
        } else {
            process
        }
    };
    let others = (!together.is_empty()).then(|| located.by_processes(renamed));
    (others, together.len() as u64)
}

fn spans<'a>(located: &'a Located, map: &'a BlockMap) -> impl Iterator<Item = Span> + 'a {
    let span = move |stream: &LocatedStream| {
        let text = map.text(stream.start.text)?;
        let block = |addr| Some(text.block_of(text.find(addr).ok()?));
        Some(Span {
            process: stream.process,
            text: stream.start.text,
            first: block(stream.start.addr)?,
            last: block(stream.end)?,
            hits: stream.hits,
        })
    };
    located.streams.iter().filter_map(span)
}

/// The process images to count together, so that no more than `most` pairs are left. The kernel is never one of them.
fn counted_together(mut spans: Vec<Span>, most: usize) -> BTreeSet<ProcessIdx> {
    spans.sort_unstable_by_key(|span| (span.process, span.text, span.first, Reverse(span.last)));
    let mut images: Vec<Image> = spans.chunk_by(|a, b| a.process == b.process).map(image).collect();
    // Blocks for each stream, without a division.
    images.sort_by_cached_key(|image| {
        let scaled = ((image.n_blocks as u128) << 64) / u128::from(image.hits.max(1));
        (image.process != ProcessIdx::KERNEL, scaled, image.process)
    });
    let mut left = most;
    let is_too_much = |image: &&Image| {
        let fits = image.n_blocks <= left || image.process == ProcessIdx::KERNEL;
        left = left.saturating_sub(if fits { image.n_blocks } else { 0 });
        !fits
    };
    images
        .iter()
        .filter(is_too_much)
        .map(|image| image.process)
        .collect()
}

/// Counts each block of a process image once; its spans are sorted by their beginning.
fn image(spans: &[Span]) -> Image {
    let mut image = Image {
        process: spans.first().map_or(ProcessIdx::KERNEL, |span| span.process),
        n_blocks: 0,
        hits: 0,
    };
    // The text, and the block after the last one that was counted.
    let mut reached = None;
    for span in spans {
        let from = match reached {
            Some((text, next)) if text == span.text => span.first.max(next),
            _ => span.first,
        };
        image.n_blocks = image.n_blocks.saturating_add(n_blocks(from, span.last));
        image.hits = image.hits.saturating_add(span.hits);
        reached = Some((span.text, from.max(span.last.saturating_add(1))));
    }
    image
}

/// Blocks from one to another, both included.
fn n_blocks(first: u32, last: u32) -> usize {
    last.checked_sub(first).map_or(0, |n| n as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(process: u32, first: u32, last: u32, hits: u64) -> Span {
        Span {
            process: ProcessIdx(process),
            text: TextIdx(0),
            first,
            last,
            hits,
        }
    }

    /// Images that run through many blocks for each stream are counted together.
    #[test]
    fn images_with_many_blocks_per_stream_are_counted_together() {
        let all = || {
            let kernel_and_busy = [
                span(0, 0, 9_999, 1),
                span(1, 0, 99, 5_000),
                span(1, 50, 149, 5_000),
            ];
            let sleds = (2..12).map(|n| span(n, 0, 999, 1));
            let usual = (12..20).map(|n| span(n, 0, 1, 31));
            kernel_and_busy.into_iter().chain(sleds).chain(usual).collect()
        };
        let together = |most| counted_together(all(), most);
        assert!(together(100_000).is_empty());
        // The kernel has 10 000 blocks, process 1 has 150, and eight have two each; three of a thousand still fit.
        let expected: Vec<ProcessIdx> = (5..12).map(ProcessIdx).collect();
        assert_eq!(Vec::from_iter(together(13_200)), expected);
        // The sum of what fits is exact: overlapping streams count once.
        assert_eq!(together(10_000 + 150 + 16).len(), 10);
        assert_eq!(together(10_000 + 150 + 15).len(), 11);
    }
}
