//! The names of functions.

use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::Module;

/// The function that covers an address: its name, or the module's with the function's start (`/bin/gzip+0x4290`).
pub fn function(module: &Module, addr: ImageAddr) -> Option<String> {
    let symbol = module.symbol_at(addr)?;
    Some(match symbol.name.as_str() {
        "" => format!("{}+{}", module.name, symbol.start),
        name => name.to_owned(),
    })
}
