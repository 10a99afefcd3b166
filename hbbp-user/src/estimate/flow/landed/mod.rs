//! Where EBS samples land, by the times of instructions: what a stream leaves in each block that it executes.
//!
//! A sample is taken some cycles after its trigger, so that a block has the samples of what retired that long before it. That follows
//! from the recorded flow and from what instructions take ([`passing`]), and what they take and how long a skid is from how samples lie
//! within blocks ([`fit`]). So a block's samples say how often it ran, where without times they say so of regions alone
//! ([`super::skid`]). On the emulated machine that leaves a quarter or less of the skid to chance, as a standard deviation
//! (kernel-tests/results/landed.txt).

mod fit;
mod passing;

use super::super::sources::SeenBlocks;
use super::super::sources::ebs::Hits;
use super::super::sources::streams::Stream;
use super::graph::FlowGraph;
use crate::blocks::BlockMap;
use fit::Hot;
use passing::{BIN, Passing, longest};

/// For each block, the starts of streams that execute it and the samples that a stream from there leaves in it, in the mean, in
/// samples of as many instructions.
pub(in crate::estimate) type Landed = Vec<Vec<(usize, f64)>>;

/// What these streams leave where, by the samples of each instruction; `None` where these tell nothing of times.
pub(in crate::estimate) fn landed(
    map: &BlockMap,
    (streams, graph): (&[Stream], &FlowGraph),
    seen: &SeenBlocks,
    hits: &Hits,
) -> Option<Landed> {
    let model = Hot::new(map, (streams, graph), hits).model()?;
    let mut passing = Passing::new(map, graph, streams);
    let (_, high) = model.skid;
    let [short, long] = BIN;
    let bin = if high <= longest(short) { short } else { long };
    let before = passing.before(&model, bin);
    // There are as many as blocks that streams execute, so they are small.
    let mut found: Vec<(u32, u32, f64)> = Vec::new();
    let mut left = Vec::new();
    for (number, stream) in streams.iter().enumerate() {
        let (Some(executed), Some(text)) = (seen.executed.get(number), map.text(stream.text)) else {
            continue;
        };
        let (start, part) = passing.left(number, &model, &before, &mut left);
        for block in executed.blocks() {
            let range = seen.ids.get(block).map_or(0..0, |id| text.block(id.block));
            let index = |at: u32| at.clamp(stream.first, stream.end).saturating_sub(stream.first) as usize;
            let amounts = left.get(index(range.start)..index(range.end)).unwrap_or_default();
            if let (Ok(block), Ok(start)) = (u32::try_from(block), u32::try_from(start)) {
                found.push((block, start, part * amounts.iter().sum::<f64>()));
            }
        }
    }
    found.sort_by_key(|(block, start, _)| (*block, *start));
    let mut landed: Landed = vec![Vec::new(); seen.ids.len()];
    for (block, start, amount) in found {
        let Some(of_block) = landed.get_mut(block as usize) else {
            continue;
        };
        match of_block.last_mut().filter(|(last, _)| *last == start as usize) {
            Some((_, sum)) => *sum += amount,
            None => of_block.push((start as usize, amount)),
        }
    }
    Some(landed)
}
