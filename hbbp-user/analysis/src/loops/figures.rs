//! The figures of loops: iterations, invocations and trip counts from edges, instructions from blocks.
//!
//! An iteration begins with the header, so the executions of that block are the iterations of its innermost loop. What led
//! to the header says which part of them came from outside: with E entries, and B_k back edges of the loop at level k of
//! those that share the header, the outermost being 0,
//!
//! ```text
//! iterations(k) = header * (E + B_0 + .. + B_k) / (E + all B)        invocations(0) = header * E / (E + all B)
//! trips(k)      = iterations(k) / invocations(k)                    invocations(k) = iterations(k - 1)
//! ```
//!
//! An edge that was never seen in a stack counts nothing. A loop that was never seen to be entered has iterations
//! alone. Of h rounds that were seen, none was a first one: that has a probability of (1 - 1 / trips)^h, which is below 5 % if
//! trips are fewer than h / 3 ("rule of three").
//!
//! The error of a share is that of n occurrences of which h were the part, p^2 (1 - h / n) / h, as if each were drawn by
//! itself; a loop with a fixed number of rounds has less. Executions of the header are independent of it.
//!
//! Where branches stick to the oldest slot, a share b of what was recorded there can be too much: then as much as b / (1 - b)
//! of what is true can be missing, which is added to the errors. Of a header with samples of its own, these bound it as well.

use std::collections::HashMap;

use hashbrown::DefaultHashBuilder;

use super::function::Function;
use super::graph::Digraph;
use super::natural::{Levels, NaturalLoop};
use super::region::Region;
use crate::time::{Amount, Time};
use crate::touched::TouchedSums;
use hbbp_code::blocks::{BlockId, BlockMap};
use hbbp_estimate::{BlockCount, BlockCounts, Figure, Method, Passed, Sum};
use hbbp_model::addr::ImageAddr;

/// How often control went through a loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounds {
    /// Times that the loop was gone round, those that leave it before its end included.
    pub iterations: Figure,
    /// Invocations, and iterations per invocation; `None` if no stack shows the loop being entered.
    pub entered: Option<Entered>,
    /// If none does: iterations per invocation that are fewer than there are, with a probability of 95 %.
    pub trips_at_least: Option<f64>,
}

/// How often a loop was entered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entered {
    /// Times that it was entered from outside.
    pub invocations: Figure,
    /// Iterations for each of them.
    pub trips: Figure,
}

/// The negative logarithm of 5 %.
const RULE_OF_THREE: f64 = 3.0;

/// How often control went through a loop; `None` if nothing was recorded that led into it. Samples skid as far as `skid`
/// over an edge, where that is known.
pub(super) fn rounds(
    function: &Function<'_>,
    graph: &Digraph,
    levels: &Levels,
    natural: &NaturalLoop,
    ran: &[BlockCount],
    skid: f64,
) -> Option<Rounds> {
    let block = ran.get(natural.header)?;
    // What led to the header: executions and occurrences, from outside and by level.
    let (mut outside, mut back) = (function.entries.get(natural.header).copied()?, Vec::new());
    for from in graph.predecessors(natural.header) {
        let passed = function.edges.get(*from, natural.header).unwrap_or_default();
        match levels.get(&(*from, natural.header)) {
            Some(level) => back.push((*level, passed)),
            None => outside.add(passed),
        }
    }
    let mut all = outside;
    back.iter().for_each(|(_, passed)| all.add(*passed));
    let others = all.executions - function.edges.executions(natural.header, natural.header);
    let header = executions(block, all.bias(), skid * others);
    let up_to = |level: usize| {
        let mut sum = outside;
        let inner = back.iter().filter(|(own, _)| *own < level);
        inner.for_each(|(_, passed)| sum.add(*passed));
        sum
    };
    let (entered, gone_round) = (up_to(natural.level), up_to(natural.level + 1));
    let is_known = |passed: Passed| 0.0 < passed.hits && 0.0 < passed.executions && 0.0 < header.value;
    let times = |share: Figure| {
        let relative = share.relative_variance() + header.relative_variance();
        let value = header.value * share.value;
        Figure::new(value, value * value * relative)
    };
    let seen_without_entry = (entered.hits <= 0.0).then_some(gone_round.hits / RULE_OF_THREE);
    is_known(gone_round).then(|| Rounds {
        iterations: times(part(gone_round, all)),
        trips_at_least: seen_without_entry.filter(|trips| 1.0 < *trips),
        entered: is_known(entered).then(|| {
            let kept = part(entered, gone_round);
            let trips = 1.0 / kept.value;
            Entered {
                invocations: times(part(entered, all)),
                trips: Figure::new(trips, trips * trips * kept.relative_variance()),
            }
        }),
    })
}

/// The executions of a block, of whose streams a share can be too many or too few; `skidded` instructions of other blocks
/// are counted in it, or its own in others.
fn executions(block: &BlockCount, bias: f64, skidded: f64) -> Figure {
    let chosen = block.chosen();
    let instructions = chosen.count * f64::from(block.instructions);
    let samples = block.ebs.map_or(0.0, |ebs| ebs.hits);
    // In over half of the edges of a block, and out over as many.
    let by_samples = 1.0 / samples + 2.0 * (skidded / instructions).powi(2);
    let by_streams = missing(bias).powi(2);
    let both = match by_samples.is_finite() && 0.0 < by_streams {
        true => by_streams * by_samples / (by_streams + by_samples),
        false => by_streams,
    };
    let squared = chosen.count * chosen.count;
    Figure::new(chosen.count, chosen.std_error * chosen.std_error + both * squared)
}

/// A part of a whole, with the error of a share of its occurrences.
fn part(of: Passed, whole: Passed) -> Figure {
    let value = (of.executions / whole.executions).clamp(0.0, 1.0);
    let left = (1.0 - of.hits / whole.hits).max(0.0);
    let rest = Passed {
        executions: whole.executions - of.executions,
        biased: whole.biased - of.biased,
        ..of
    };
    let bias = (1.0 - value) * missing(of.bias().max(rest.bias()));
    Figure::new(value, value * value * (left / of.hits + bias * bias))
}

/// What can be missing of the truth, as a share of what was found, where this share can be too much elsewhere; at most ten
/// times as much.
fn missing(bias: f64) -> f64 {
    /// Beyond, the figure says nothing, and the error only has to show it.
    const MOST: f64 = 10.0;
    (bias / (1.0 - bias.min(1.0))).min(MOST)
}

impl Function<'_> {
    /// Address of the first instruction of a node.
    pub(super) fn first_of(&self, node: usize) -> ImageAddr {
        self.address(node, |range| Some(range.start))
    }

    /// Address of the last instruction of a node.
    pub(super) fn last_of(&self, node: usize) -> ImageAddr {
        self.address(node, |range| range.end.checked_sub(1))
    }

    fn address(&self, node: usize, of: impl Fn(std::ops::Range<u32>) -> Option<u32>) -> ImageAddr {
        let blocks = self.blocks();
        let block = self.nodes.get(node).map(|block| blocks.block(*block));
        let instruction = block.and_then(of).and_then(|nth| blocks.instruction(nth));
        instruction.map_or(blocks.start, |it| blocks.addr(it))
    }
}

/// Executed instructions of sets of blocks.
pub(super) struct Instructions<'a> {
    counts: &'a BlockCounts,
}

/// No set.
const NONE: usize = usize::MAX;

impl<'a> Instructions<'a> {
    pub(super) const fn new(counts: &'a BlockCounts) -> Self {
        Self { counts }
    }

    /// Fills in the amounts of regions, which may have blocks in common.
    pub(super) fn fill(&self, regions: &mut [&mut Region]) {
        let members = self.members(regions);
        let mut sums = vec![Sum::default(); regions.len()];
        for part in &self.counts.parts {
            let Some(block) = self.counts.blocks.get(part.block) else {
                continue;
            };
            for region in members.of(part.block) {
                if let Some(sum) = sums.get_mut(*region) {
                    sum.add(part, block, part.instructions(block), self.counts);
                }
            }
        }
        self.add_stacks(&members, &mut sums);
        self.add_slices(&members, &mut sums);
        for (region, sum) in regions.iter_mut().zip(&sums) {
            region.amount = Figure::new(sum.amount(), sum.variance(self.counts));
        }
    }

    /// Adds what each resampled stack executed of the blocks that are counted by LBR.
    fn add_stacks(&self, members: &Members, sums: &mut [Sum]) {
        let mut touched = TouchedSums::new(sums.len());
        for replicate in &self.counts.chance.replicates {
            for run in &replicate.runs {
                let blocks = self.counts.blocks.get(run.blocks.clone()).unwrap_or_default();
                for (block, number) in blocks.iter().zip(run.blocks.clone()) {
                    let regions = members.of(number).iter().filter(|_| block.method == Method::Lbr);
                    for region in regions {
                        touched.add(*region, run.times * f64::from(block.instructions));
                    }
                }
            }
            for (region, amount) in touched.take() {
                if let Some(sum) = sums.get_mut(region) {
                    sum.add_stack(replicate.phase, amount);
                }
            }
        }
    }

    /// Adds the samples of each time slice, where figures are samples.
    fn add_slices(&self, members: &Members, sums: &mut [Sum]) {
        let mut touched = TouchedSums::new(sums.len());
        let slices = self.counts.waited.iter().flat_map(|waited| &waited.slices);
        for (nth, slice) in slices.enumerate() {
            for (part, samples) in slice {
                let block = self.counts.parts.get(*part).map(|part| part.block);
                for region in block.map_or(&[][..], |block| members.of(block)) {
                    touched.add(*region, *samples);
                }
            }
            for (region, samples) in touched.take() {
                if let Some(sum) = sums.get_mut(region) {
                    sum.add_slice(self.counts, nth, samples);
                }
            }
        }
    }

    fn members(&self, regions: &[&mut Region]) -> Members {
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        for (n, region) in regions.iter().enumerate() {
            pairs.extend(region.blocks.iter().filter_map(|block| {
                let id = BlockId {
                    text: region.text,
                    block: *block,
                };
                let found = self.counts.blocks.binary_search_by_key(&id, |count| count.block);
                Some((found.ok()?, n))
            }));
        }
        pairs.sort_unstable();
        let mut members = Members {
            from: vec![NONE; self.counts.blocks.len()],
            regions: pairs.iter().map(|(_, region)| *region).chain([NONE]).collect(),
            blocks: pairs.iter().map(|(block, _)| *block).collect(),
        };
        for (n, block) in members.blocks.iter().enumerate().rev() {
            if let Some(from) = members.from.get_mut(*block) {
                *from = n;
            }
        }
        members
    }
}

/// The regions that each block is in.
struct Members {
    /// Where those of each block begin.
    from: Vec<usize>,
    /// Of each pair of a block and a region, these.
    blocks: Vec<usize>,
    regions: Vec<usize>,
}

impl Members {
    fn of(&self, block: usize) -> &[usize] {
        let from = self.from.get(block).copied().unwrap_or(NONE);
        let same = self.blocks.get(from..).unwrap_or(&[]);
        let n = same.iter().take_while(|it| **it == block).count();
        self.regions.get(from..from.saturating_add(n)).unwrap_or(&[])
    }
}

/// Time by block.
pub(super) struct AtBlocks {
    amounts: HashMap<BlockId, Amount, DefaultHashBuilder>,
    samples: f64,
}

impl AtBlocks {
    pub(super) fn new(map: &BlockMap, time: &Time) -> Self {
        let mut amounts: HashMap<BlockId, Amount, DefaultHashBuilder> = HashMap::default();
        for spent in &time.spent {
            let block = map.text(spent.text).map(|text| text.block_of(spent.instruction));
            let id = BlockId {
                text: spent.text,
                block: block.unwrap_or_default(),
            };
            amounts.entry(id).or_default().add(spent);
        }
        Self {
            amounts,
            samples: time.samples,
        }
    }

    pub(super) fn of(&self, region: &Region) -> Figure {
        let mut sum = Amount::default();
        for block in &region.blocks {
            let id = BlockId {
                text: region.text,
                block: *block,
            };
            let amount = self.amounts.get(&id).copied().unwrap_or_default();
            (sum.hits, sum.units) = (sum.hits + amount.hits, sum.units + amount.units);
        }
        sum.figure(self.samples)
    }
}
