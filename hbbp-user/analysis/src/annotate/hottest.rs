//! All executed code, as functions, by the instructions that each executed.

use std::collections::HashMap;

use super::code::{Code, code_at};
use crate::mix::Estimated;
use hbbp_estimate::BlockCount;
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::ModuleIdx;

/// Code, and how much of it was executed.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    /// The function, or the text range where no function is known.
    pub code: Code,
    /// Instructions, in the unit of the estimates.
    pub amount: f64,
}

/// The executed code, hottest first.
pub fn hottest(estimated: &Estimated<'_>) -> Vec<Heat> {
    let snapshot = estimated.snapshot;
    let map = &estimated.map;
    let mut found: HashMap<(ModuleIdx, ImageAddr), (Code, f64)> = HashMap::new();
    let mut last: Option<Code> = None;
    for block in estimated
        .counts()
        .blocks
        .iter()
        .filter(|block| 0.0 < block.chosen().count)
    {
        let text = map.text(block.block.text);
        let first = map.instructions(block.block).first();
        let Some((text, first)) = text.zip(first) else {
            continue;
        };
        let at = text.addr(*first);
        let is_in = |code: &Code| code.module == text.module && code.start <= at && at < code.end;
        if !last.as_ref().is_some_and(is_in) {
            last = code_at(snapshot, text.module, block.block.text, at);
        }
        if let Some(code) = &last {
            let entry = found.entry((code.module, code.start));
            entry.or_insert_with(|| (code.clone(), 0.0)).1 += amount(block);
        }
    }
    let mut all: Vec<Heat> = found
        .into_values()
        .map(|(code, amount)| Heat { code, amount })
        .collect();
    all.sort_by(|a, b| b.amount.total_cmp(&a.amount).then_with(|| a.code.cmp(&b.code)));
    all
}

/// Instructions that a block executed.
pub(super) fn amount(block: &BlockCount) -> f64 {
    block.chosen().count * f64::from(block.instructions)
}
