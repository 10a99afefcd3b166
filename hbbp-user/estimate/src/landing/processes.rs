//! What each process image has of the samples that were triggered in a block.
//!
//! The graph is of the code, whichever process runs it, so that the flows are those of all processes together.

use std::collections::BTreeMap;

use super::super::sources::{Counted, summed};
use super::code::{Code, Node};
use crate::sums::{at, over};
use hbbp_code::blocks::BlockId;
use hbbp_code::locate::TextIdx;
use hbbp_model::snapshot::ProcessIdx;

/// Fewest samples of a block that are reported: what is less may as well not have run.
const FEWEST: f64 = 0.01;

/// Shares what was triggered in a block between the processes that have samples in it, or else in its text. Samples outside
/// the graph stay where they are. Each ring keeps as many as landed in it: no skid is so long that many leave it, and where
/// nothing is known of what runs after a block, its executions are not. A hit weighs `weight`.
pub(super) fn shared(code: &Code, x: &[f64], weight: f64, samples: Vec<Counted>) -> Vec<Counted> {
    let mut of_block: BTreeMap<BlockId, Vec<(ProcessIdx, f64)>> = BTreeMap::new();
    let mut of_text: BTreeMap<TextIdx, BTreeMap<ProcessIdx, f64>> = BTreeMap::new();
    for counted in &samples {
        of_block
            .entry(counted.block)
            .or_default()
            .push((counted.process, counted.weight));
        *of_text
            .entry(counted.block.text)
            .or_default()
            .entry(counted.process)
            .or_default() += counted.weight;
    }
    let amounts = code
        .nodes
        .iter()
        .zip(x)
        .map(|(node, x)| (node, x * node.length()));
    let amounts: Vec<_> = amounts.filter(|(_, amount)| FEWEST <= *amount).collect();
    let triggered = by_ring(amounts.iter().map(|(node, amount)| (*node, *amount)));
    let node_of = |counted: &Counted| {
        let n = code.nodes.binary_search_by_key(&counted.block, |node| node.id);
        let node = code.nodes.get(n.ok()?)?;
        (0.0 < at(&triggered, usize::from(node.is_kernel))).then_some(node)
    };
    let landed = samples
        .iter()
        .filter_map(|counted| Some((node_of(counted)?, counted.weight)));
    let landed = by_ring(landed);
    let mut all: Vec<Counted> = samples
        .into_iter()
        .filter(|counted| node_of(counted).is_none())
        .collect();
    for (node, amount) in amounts {
        let ring = usize::from(node.is_kernel);
        let scale = over(over(at(&landed, ring), weight), at(&triggered, ring));
        let processes = match of_block.get(&node.id) {
            Some(of_block) => of_block.clone(),
            None => of_text
                .get(&node.id.text)
                .into_iter()
                .flatten()
                .map(|(p, w)| (*p, *w))
                .collect(),
        };
        let whole: f64 = processes.iter().map(|(_, weight)| weight).sum();
        all.extend(processes.into_iter().map(|(process, part)| {
            let hits = scale * amount * over(part, whole);
            Counted {
                block: node.id,
                process,
                hits,
                weight: hits * weight,
            }
        }));
    }
    summed(all)
}

/// Sums of nodes in user code and in the kernel.
fn by_ring<'a>(amounts: impl Iterator<Item = (&'a Node, f64)>) -> [f64; 2] {
    amounts.fold([0.0; 2], |[user, kernel], (node, amount)| {
        if node.is_kernel {
            [user, kernel + amount]
        } else {
            [user + amount, kernel]
        }
    })
}
