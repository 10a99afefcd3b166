//! All code that ran, as functions, by the instructions that each executed.

use std::collections::HashMap;

use super::Code;
use super::function::amount;
use crate::mix::{Estimated, function, symbol_at};
use hbbp_code::locate::TextIdx;
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{ModuleIdx, Snapshot};

/// Code, and how much of it was executed.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    /// The function, or the text range where no function is known.
    pub code: Code,
    /// Instructions, in the unit of the estimates.
    pub amount: f64,
}

/// The code that ran, hottest first.
pub fn hottest(estimated: &Estimated<'_>) -> Vec<Heat> {
    let snapshot = estimated.snapshot();
    let map = estimated.map();
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

/// The function at an address of a text; where none is known, the text itself.
pub(super) fn code_at(snapshot: &Snapshot, idx: ModuleIdx, text: TextIdx, at: ImageAddr) -> Option<Code> {
    let module = snapshot.modules.get(idx.0 as usize)?;
    let text = snapshot.text.get(text.0 as usize)?;
    let text_end = text.start.0.saturating_add(text.bytes.len() as u64);
    if let Some(symbol) = symbol_at(module, at) {
        // A symbol without a length reaches to the next one.
        let next = module.symbols.partition_point(|next| next.start <= symbol.start);
        let next = module.symbols.get(next).map_or(u64::MAX, |next| next.start.0);
        let end = match symbol.len {
            0 => next.min(text_end),
            len => symbol.start.0.saturating_add(len),
        };
        return Some(Code {
            module: idx,
            start: symbol.start,
            end: ImageAddr(end),
            name: function(module, at)?,
        });
    }
    let n_before = module.symbols.partition_point(|symbol| symbol.start <= at);
    let before = n_before.checked_sub(1).and_then(|n| module.symbols.get(n));
    let start = before
        .map_or(0, |symbol| symbol.start.0.saturating_add(symbol.len))
        .max(text.start.0);
    let after = module
        .symbols
        .get(n_before)
        .map_or(u64::MAX, |symbol| symbol.start.0);
    Some(Code {
        module: idx,
        start: ImageAddr(start),
        end: ImageAddr(after.min(text_end)),
        name: format!("{}+{:#x}", module.name, start),
    })
}
