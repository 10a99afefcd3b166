//! How control passed between the blocks of the profile: what loops are counted from, and what ran
//! before an instruction.
//!
//! ```text
//! streams    run over the end of a block to the next one          crossings
//! branches   lead to a block, from a known instruction            branches
//! starts     of streams that no recorded branch led to            unexplained: from another ring, or from the kernel's work
//! ```
//!
//! Executions are those of the balanced streams, so what enters a block by all three is its executions by streams.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::{Bias, BlockCounts, Stream, TakenBranch};
use hbbp_code::blocks::BlockMap;
use hbbp_code::locate::TextIdx;

/// How often control passed somewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Passed {
    /// Executions, in the unit of the estimate.
    pub executions: f64,
    /// Occurrences in branch stacks.
    pub hits: f64,
    /// Executions that can be too many or too few for the bias of the oldest slot.
    pub biased: f64,
}

/// All of it, over all process images.
pub struct Flows<'a> {
    branches: &'a [TakenBranch],
    bias: Option<&'a Bias>,
    /// By text, from each block to the next.
    crossings: BTreeMap<TextIdx, Vec<Passed>>,
    /// By instruction, sorted.
    unexplained: Vec<((TextIdx, u32), Passed)>,
}

impl Passed {
    /// Adds to both.
    pub fn add(&mut self, other: Self) {
        self.executions += other.executions;
        self.hits += other.hits;
        self.biased += other.biased;
    }

    /// The share that can be too much or too little; 0 of nothing.
    pub fn bias(self) -> f64 {
        if 0.0 < self.executions {
            self.biased / self.executions
        } else {
            0.0
        }
    }
}

/// What has the same key becomes one, with the sum of all; sorted by key.
pub fn summed<K: Ord + Copy>(mut all: Vec<(K, Passed)>) -> Vec<(K, Passed)> {
    // Stable, so that sums are the same in every run.
    all.sort_by_key(|(key, _)| *key);
    all.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1.add(next.1);
        }
        same
    });
    all
}

impl<'a> Flows<'a> {
    /// The flows of the streams and branches of an estimate.
    pub fn new(map: &BlockMap, counts: &'a BlockCounts) -> Self {
        let bias = counts.biases.flow.as_ref();
        let unexplained = unexplained(counts, bias);
        let by_text = counts.streams.chunk_by(|a, b| a.text == b.text);
        let crossings = by_text.filter_map(|streams| {
            let text = streams.first()?.text;
            Some((text, crossings(map, text, streams, bias)))
        });
        Self {
            branches: &counts.branches,
            bias,
            crossings: crossings.collect(),
            unexplained,
        }
    }

    /// The taken branches to these instructions of a text.
    pub fn branches_to(&self, text: TextIdx, instructions: &Range<u32>) -> &'a [TakenBranch] {
        let before = |n: u32| self.branches.partition_point(|it| it.to < (text, n));
        let range = before(instructions.start)..before(instructions.end);
        self.branches.get(range).unwrap_or(&[])
    }

    /// How often a branch was taken.
    pub fn taken(&self, branch: &TakenBranch) -> Passed {
        Passed {
            executions: branch.executions,
            hits: branch.hits,
            biased: branch.executions * self.bias.map_or(0.0, |bias| bias.at(branch.to.0, branch.to.1)),
        }
    }

    /// What began at these instructions of a text without a recorded branch, by instruction.
    pub fn unexplained_at(
        &self,
        text: TextIdx,
        instructions: &Range<u32>,
    ) -> impl Iterator<Item = (u32, Passed)> {
        let before = |n: u32| self.unexplained.partition_point(|(at, _)| *at < (text, n));
        let range = before(instructions.start)..before(instructions.end.max(instructions.start));
        let found = self.unexplained.get(range).unwrap_or(&[]);
        found
            .iter()
            .map(|((_, instruction), passed)| (*instruction, *passed))
    }

    /// From a block of a text to the next one, without a taken branch.
    pub fn crossing(&self, text: TextIdx, block: u32) -> Passed {
        let of_text = self.crossings.get(&text);
        let crossing = of_text.and_then(|all| all.get(block as usize));
        crossing.copied().unwrap_or_default()
    }
}

fn passed(stream: &Stream, bias: Option<&Bias>) -> Passed {
    Passed {
        executions: stream.weight,
        hits: stream.hits as f64,
        biased: stream.weight * bias.map_or(0.0, |bias| bias.at(stream.text, stream.first)),
    }
}

/// What began at each instruction without a recorded branch to there.
fn unexplained(counts: &BlockCounts, bias: Option<&Bias>) -> Vec<((TextIdx, u32), Passed)> {
    let started = counts.streams.iter();
    let started = started.map(|stream| ((stream.text, stream.first), passed(stream, bias)));
    let mut starts = summed(started.collect());
    // Both are in the order of the starts.
    let mut branches = counts.branches.as_slice();
    for (at, start) in &mut starts {
        let before = branches.partition_point(|branch| branch.to < *at);
        let n = branches.partition_point(|branch| branch.to <= *at);
        for branch in branches.get(before..n).unwrap_or(&[]) {
            start.executions = (start.executions - branch.executions).max(0.0);
            start.hits = (start.hits - branch.hits).max(0.0);
        }
        start.biased = start.executions * bias.map_or(0.0, |bias| bias.at(at.0, at.1));
        branches = branches.get(n..).unwrap_or(&[]);
    }
    starts.retain(|(_, start)| 0.0 < start.hits);
    starts
}

/// From each block of a text to the next one, by the streams that run over its end.
fn crossings(map: &BlockMap, text: TextIdx, streams: &[Stream], bias: Option<&Bias>) -> Vec<Passed> {
    let Some(blocks) = map.text(text) else {
        return Vec::new();
    };
    let mut crossings = vec![Passed::default(); blocks.n_blocks()];
    let mut change = |block: u32, by: Passed| {
        if let Some(crossing) = crossings.get_mut(block as usize) {
            crossing.add(by);
        }
    };
    for stream in streams {
        let Some(last) = stream.end.checked_sub(1).filter(|last| stream.first <= *last) else {
            continue;
        };
        let passed = passed(stream, bias);
        change(blocks.block_of(stream.first), passed);
        change(
            blocks.block_of(last),
            Passed {
                executions: -passed.executions,
                hits: -passed.hits,
                biased: -passed.biased,
            },
        );
    }
    let mut here = Passed::default();
    for crossing in &mut crossings {
        here.add(*crossing);
        // Hits are whole numbers: where none is left, what is left of the executions is rounding.
        if here.hits < 0.5 {
            here = Passed::default();
        }
        *crossing = here;
    }
    crossings
}
