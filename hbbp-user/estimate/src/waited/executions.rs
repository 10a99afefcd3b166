//! How often blocks and the ways between them were executed, from samples of time.
//!
//! The instructions of a block are executed equally often, so the samples behind a cheap one show how often that was, as its time
//! is known well. Only the instruction at the end has its samples elsewhere. Executions are in samples of a cycle.
//!
//! A block of one instruction shows nothing, nor does one without samples: processors retire several instructions in a cycle, and a
//! sample lies at the first of them. Such a block was executed as often as the ways into it were taken. If these show nothing
//! either, the samples at its start do: something was executed.
//!
//! Of the two ways that a conditional branch leads on, one may be the only way into a block that shows something. It was taken as
//! often as that block was executed, and the other one as often as is left. Else they share what the blocks show that they lead to.

use std::collections::HashMap;
use std::ops::Range;

use super::code::{Code, Place};
use super::interrupts::Interrupts;
use super::shares::{Expected, calibrated};
use super::times::{Time, Times};
use crate::sources::ebs::Hits;
use crate::sums::over;
use hbbp_code::blocks::{BlockId, Flow};
use hbbp_code::locate::TextIdx;

/// Blocks that are looked back over from one that shows nothing.
const FARTHEST: usize = 3;

/// The least part of the times that a conditional branch goes a way that shows nothing: LLVM's of the way out of a loop, 4 in 128
/// (BranchProbabilityInfo.cpp, `LBH_NONTAKEN_WEIGHT`).
const LEAST_PART: f64 = 4.0 / 128.0;

/// Blocks and instructions that are looked at for all samples together. What would need more is not known.
const MOST_WORK: usize = 1 << 24;

/// Ways into each of them that are followed.
const MOST_WAYS: usize = 8;

/// The executions of the blocks that were looked at.
pub(super) struct Executions<'a> {
    pub(super) interrupts: &'a Interrupts<'a>,
    pub(super) code: &'a Code<'a>,
    pub(super) hits: &'a Hits,
    times: &'a Times,
    /// By how far may be looked back. A block is looked at once for each.
    known: HashMap<(BlockId, usize), f64>,
    /// What the samples within a block show.
    shown: HashMap<BlockId, Option<f64>>,
    /// Blocks and instructions that may still be looked at, here and for returns: other users' programs decide what their code
    /// looks like.
    pub(super) work_left: usize,
}

impl<'a> Executions<'a> {
    pub(super) fn new(interrupts: &'a Interrupts<'a>, hits: &'a Hits, times: &'a Times) -> Self {
        Self {
            interrupts,
            code: &interrupts.code,
            hits,
            times,
            known: HashMap::new(),
            shown: HashMap::new(),
            work_left: MOST_WORK,
        }
    }

    /// Of the block that ends here.
    pub(super) fn of_end(&mut self, at: Place) -> f64 {
        self.of_containing(at, FARTHEST)
    }

    /// Of the way from the end of a block to the start of another one.
    pub(super) fn of_way(&mut self, from: Place, to: Place) -> f64 {
        self.of_way_within(from, to, FARTHEST)
    }

    pub(super) fn time(&self, at: Place) -> Time {
        self.times.of(self.code, at)
    }

    /// The shares of samples that instructions have which were executed one after the other, as often as the block of one of them.
    pub(super) fn shares(&mut self, way: &[Place], one: Place, samples: f64) -> Vec<(Place, f64)> {
        let executions = self.of_end(one);
        let expected = |at: &Place| {
            let time = self.time(*at);
            Expected {
                way: *at,
                time: if 0.0 < executions { executions } else { 1.0 } * time.cycles,
                variance: time.variance,
            }
        };
        let expected: Vec<Expected> = way.iter().map(expected).collect();
        let samples = match 0.0 < executions {
            true => samples,
            false => expected.iter().map(|it| it.time).sum(),
        };
        calibrated(&expected, samples)
    }

    fn of_block(&mut self, block: BlockId, farthest: usize) -> f64 {
        if let Some(known) = self.known.get(&(block, farthest)) {
            return *known;
        }
        if !self.spend(1) {
            return 0.0;
        }
        let executions = self
            .shown(block)
            .unwrap_or_else(|| self.of_ways_into(block, farthest));
        self.known.insert((block, farthest), executions);
        executions
    }

    /// Whether there was so much work left.
    fn spend(&mut self, work: usize) -> bool {
        let left = self.work_left.checked_sub(work);
        self.work_left = left.unwrap_or_default();
        left.is_some()
    }

    /// What the samples within a block show, if it has any behind its first instruction.
    fn shown(&mut self, id: BlockId) -> Option<f64> {
        if let Some(known) = self.shown.get(&id) {
            return *known;
        }
        let block = self.code.map.text(id.text)?.block(id.block);
        let shown = match self.spend(block.len()) {
            true => self.shown_by(id.text, block),
            false => None,
        };
        self.shown.insert(id, shown);
        shown
    }

    fn shown_by(&self, text: TextIdx, block: Range<u32>) -> Option<f64> {
        let (mut cheap, mut all) = ((0.0, 0.0), (0.0, 0.0));
        for at in (block.start..block.end.checked_sub(1)?).map(|at| (text, at)) {
            if !self.interrupts.has_own_samples(at) {
                continue;
            }
            let samples = self.hits.get(&(text, at.1 + 1)).copied().unwrap_or_default();
            let time = self.time(at).cycles;
            if self.times.is_plain(self.code, at) {
                cheap = (cheap.0 + samples, cheap.1 + time);
            }
            all = (all.0 + samples, all.1 + time);
        }
        let (samples, time) = if 0.0 < cheap.0 { cheap } else { all };
        (0.0 < samples).then(|| over(samples, time))
    }

    fn of_ways_into(&mut self, BlockId { text, block }: BlockId, farthest: usize) -> f64 {
        let Some(blocks) = self.code.map.text(text) else {
            return 0.0;
        };
        let to = (text, blocks.block(block).start);
        let mut executions = 0.0;
        if let Some(farther) = farthest.checked_sub(1) {
            for way in self.code.ways(to).from.into_iter().take(MOST_WAYS) {
                executions += self.of_way_within(way, to, farther);
            }
            if let Some(call) = self.code.call_before(to) {
                executions += self.of_containing(call, farther);
            }
        }
        if 0.0 < executions {
            return executions;
        }
        self.hits.get(&to).copied().unwrap_or_default()
    }

    fn of_way_within(&mut self, from: Place, to: Place, farthest: usize) -> f64 {
        let all = self.of_containing(from, farthest);
        let is_conditional = self.code.flow(from) == Some(Flow::Conditional);
        let next = (from.0, from.1 + 1);
        let other = match self.code.target(from) {
            Some(target) if to == next => target,
            _ => next,
        };
        if !is_conditional || other == to {
            return all;
        }
        let mut shown = |at| self.code.block_of(at).and_then(|block| self.shown(block));
        let (of_to, of_other) = (shown(to), shown(other));
        if let Some(of_other) = of_other.filter(|_| self.code.is_only_way(from, other)) {
            return (all - of_other).max(0.0);
        }
        let (of_to, of_other) = (of_to.unwrap_or_default(), of_other.unwrap_or_default());
        let known = of_to + of_other;
        let part = if 0.0 < known { of_to / known } else { 0.5 };
        all * part.clamp(LEAST_PART, 1.0 - LEAST_PART)
    }

    fn of_containing(&mut self, at: Place, farthest: usize) -> f64 {
        let block = self.code.block_of(at);
        block.map_or(0.0, |block| self.of_block(block, farthest))
    }
}
