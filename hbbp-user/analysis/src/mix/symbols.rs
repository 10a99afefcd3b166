//! The names of functions and the symbols that cover addresses.

use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{Module, Symbol};

/// The function that covers an address: its name, or the module's with the function's start (`/bin/gzip+0x4290`).
pub fn function(module: &Module, addr: ImageAddr) -> Option<String> {
    let symbol = symbol_at(module, addr)?;
    Some(match symbol.name.as_str() {
        "" => format!("{}+{}", module.name, symbol.start),
        name => name.to_owned(),
    })
}

/// The symbol that covers an address. One without a length reaches to the next one.
pub fn symbol_at(module: &Module, addr: ImageAddr) -> Option<&Symbol> {
    let n_before = module.symbols.partition_point(|s| s.start <= addr);
    let symbol = module.symbols.get(n_before.checked_sub(1)?)?;
    let inside = symbol.len == 0 || addr.since(symbol.start)? < symbol.len;
    inside.then_some(symbol)
}
