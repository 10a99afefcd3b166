//! The times of kinds of instructions and the skid ([`Model`]), from how samples lie within blocks of the hottest code.

use std::collections::BTreeMap;
use std::ops::Range;

use super::super::super::sources::ebs::Hits;
use super::super::super::sources::stream::Stream;
use super::super::graph::FlowGraph;
use super::passing::{BIN, Before, Passing, longest};
use crate::sums::add;
use crate::timing::{Model, SKIDS, likelihood_within};
use hbbp_code::blocks::{BlockMap, TextBlocks};
use hbbp_code::locate::TextIdx;

/// Most streams that a model is fitted to, those of the hottest texts: in half a second to a second.
const MOST: usize = 4096;

/// Most instructions of these texts.
const INSTRUCTIONS: usize = 1 << 19;

/// Most instructions that these streams execute: others have ten each, and anybody can write long ones.
const EXECUTED: usize = 1 << 18;

/// How often each parameter of the model is moved.
const ROUNDS: usize = 4;

/// Branches that are looked back over when a parameter moves: it moves little.
const BRANCHES: usize = 3;

/// The hottest code.
pub(super) struct Hot<'a> {
    map: &'a BlockMap,
    /// Its streams, and where their first instructions are in `samples`.
    streams: Vec<(&'a Stream, usize)>,
    graph: FlowGraph,
    /// Samples by instruction, text after text.
    samples: Vec<f64>,
    /// Blocks that have any, and more than one instruction.
    blocks: Vec<Range<usize>>,
}

impl<'a> Hot<'a> {
    /// The part of the streams that is in the texts with most of them.
    pub(super) fn new(map: &'a BlockMap, streams: &'a [Stream], graph: &FlowGraph, hits: &Hits) -> Self {
        let (first, n_instructions) = hottest(map, streams, graph);
        let mut samples = vec![0.0; n_instructions];
        for ((text, instruction), hits) in hits {
            if let Some(first) = first.get(text) {
                add(&mut samples, first.saturating_add(*instruction as usize), *hits);
            }
        }
        let of_text = |(text, first): (&TextIdx, &usize)| {
            let text = map.text(*text);
            let blocks = text.map_or(0, TextBlocks::n_blocks);
            let ranges = (0..)
                .take(blocks)
                .filter_map(move |block| text.map(|text| text.block(block)));
            let first = *first;
            ranges.map(move |range| first + range.start as usize..first + range.end as usize)
        };
        let blocks = first.iter().flat_map(of_text);
        let is_sampled = |block: &Range<usize>| {
            let samples = samples.get(block.clone()).unwrap_or_default();
            1 < samples.len() && samples.iter().any(|samples| 0.0 < *samples)
        };
        let blocks = blocks.filter(is_sampled).collect();
        let chosen = |(number, stream): (usize, &'a Stream)| {
            let first = first.get(&stream.text)?.saturating_add(stream.first as usize);
            Some((number, (stream, first)))
        };
        let (numbers, streams): (Vec<usize>, Vec<_>) = streams.iter().enumerate().filter_map(chosen).unzip();
        Self {
            map,
            streams,
            graph: graph.part(numbers.into_iter()),
            samples,
            blocks,
        }
    }

    /// The most likely model, begun with short skids and with long ones: within short blocks both look alike. `None` without a block to
    /// look at.
    pub(super) fn model(&self) -> Option<Model> {
        if self.blocks.is_empty() {
            return None;
        }
        let mut passing = Passing::new(
            self.map,
            &self.graph,
            self.streams.iter().map(|(stream, _)| *stream),
        );
        let unused = passing.unused();
        let mut fits = Vec::new();
        for (skids, bin) in SKIDS.into_iter().zip(BIN) {
            let models = skids.iter().map(|(low, high)| Model::with_skid(*low, *high));
            // They differ in what was taken when, not in what retired.
            let before = models.clone().next().map(|model| passing.before(&model, bin));
            let begun = before.iter().flat_map(|before| {
                let likelihood = |model: &Model| self.likelihood(&passing, model, before);
                models.clone().map(move |model| (likelihood(&model), model))
            });
            let best = begun.max_by(|(a, _), (b, _)| a.total_cmp(b));
            if let Some(((_, model), before)) = best.zip(before) {
                let of = |model: &Model, before: &Before| {
                    let before = passing.carried(before, model, BRANCHES);
                    (self.likelihood(&passing, model, &before), before)
                };
                let (model, _, likelihood) = model.refined(&before, ROUNDS, longest(bin), &unused, of);
                fits.push((likelihood, model));
            }
        }
        let best = fits.into_iter().max_by(|(a, _), (b, _)| a.total_cmp(b));
        best.map(|(_, model)| model)
    }

    /// The logarithm of how likely the samples are by a model.
    fn likelihood(&self, passing: &Passing<'_>, model: &Model, before: &Before) -> f64 {
        let mut expected = vec![0.0; self.samples.len()];
        let mut left = Vec::new();
        for ((stream, (_, first)), edge) in self.streams.iter().enumerate().zip(&self.graph.streams) {
            passing.left(stream, model, before, &mut left);
            for (at, left) in (*first..).zip(&left) {
                add(&mut expected, at, left * edge.amount);
            }
        }
        let of_block = |block: &Range<usize>| {
            let [expected, samples] =
                [&expected, &self.samples].map(|of| of.get(block.clone()).unwrap_or_default());
            likelihood_within(expected, samples)
        };
        model.likelihood() + self.blocks.iter().map(of_block).sum::<f64>()
    }
}

/// The texts with most streams, with the number of their first instructions, and how many instructions they have.
fn hottest(map: &BlockMap, streams: &[Stream], graph: &FlowGraph) -> (BTreeMap<TextIdx, usize>, usize) {
    let mut texts: BTreeMap<TextIdx, (f64, usize, usize)> = BTreeMap::new();
    for (stream, edge) in streams.iter().zip(&graph.streams) {
        let (amount, n, executed) = texts.entry(stream.text).or_default();
        *amount += edge.amount;
        *n += 1;
        *executed = executed.saturating_add(stream.end.saturating_sub(stream.first) as usize);
    }
    let mut texts: Vec<_> = texts.into_iter().collect();
    texts.sort_by(|(_, (a, ..)), (_, (b, ..))| b.total_cmp(a));
    let (mut first, mut n_instructions, mut n_streams, mut n_executed) = (BTreeMap::new(), 0, 0, 0usize);
    for (text, (_, streams, executed)) in texts {
        let of_text = map.text(text).map_or(0, TextBlocks::n_instructions);
        let (instructions, streams) = (n_instructions + of_text, n_streams + streams);
        let executed = n_executed.saturating_add(executed);
        if instructions <= INSTRUCTIONS && streams <= MOST && executed <= EXECUTED {
            first.insert(text, n_instructions);
            (n_instructions, n_streams, n_executed) = (instructions, streams, executed);
        }
    }
    (first, n_instructions)
}
