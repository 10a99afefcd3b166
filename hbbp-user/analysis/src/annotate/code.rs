//! The code that is annotated as one: a function, or what lies between functions.

use crate::mix::function;
use hbbp_code::locate::TextIdx;
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{ModuleIdx, Snapshot};

/// A range of code that is annotated as one: a function, or a text range where no function is known.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Code {
    /// Its module.
    pub module: ModuleIdx,
    /// First address.
    pub start: ImageAddr,
    /// First address after it.
    pub end: ImageAddr,
    /// Name as found; of code without one, that of its module and its start.
    pub name: String,
}

/// The function at an address of a text; where none is known, the text itself.
pub(super) fn code_at(snapshot: &Snapshot, idx: ModuleIdx, text: TextIdx, at: ImageAddr) -> Option<Code> {
    let module = snapshot.modules.get(idx.0 as usize)?;
    let text = snapshot.text.get(text.0 as usize)?;
    let text_end = text.start.0.saturating_add(text.bytes.len() as u64);
    if let Some(symbol) = module.symbol_at(at) {
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
