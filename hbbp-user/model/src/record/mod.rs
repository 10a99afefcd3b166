//! Sideband records of the kernel, typed: events of processes, mappings and kernel text.
//!
//! A live run reads them from the sideband ring of each CPU, an import from a perf.data file.
//! Times are ns of the clock that the recording used, CLOCK_MONOTONIC for a live run.
//! The layouts are those of `include/uapi/linux/perf_event.h`.

mod build_id;
mod compiled_layout;
mod loaded_text;
mod mmap;
mod module_layout;
mod names;
mod parse;
mod sideband;

pub use build_id::BuildId;
pub use compiled_layout::{Compiled, CompiledLayout};
pub use loaded_text::{LoadedText, SymbolTable, TextPart};
pub use mmap::{FileIdentity, Mmap};
pub use module_layout::{ListedModule, ModuleLayout, ModuleListLayout};
pub use names::Names;
pub use parse::{MISC_MMAP_BUILD_ID, Malformed, parse_record};
pub use sideband::{Record, Timed};
