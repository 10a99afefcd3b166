//! Ring 0: what the kernel consists of, where its text is read, and how that text changes.
//!
//! ```text
//! kernel_file -> kallsyms, modules, kcore: what is opened once, while there are capabilities
//! kcore -> vmcoreinfo -> symbol_tables, module_list, bpf_list -> live_symbols (or kallsyms)
//! live_symbols, modules, names, module_symbols -> map --+
//! kcore | probe | vmlinux                  -> reader    +-> space (hits, versions of text) -> emit
//! static_branches                                     --+
//! PERF_RECORD_TEXT_POKE, readings -> changes (segments, ambiguous) --+
//! recorded: the same space for the kernel of a recording
//! boot_image -> vmlinux -> patch_sites (alternatives) -> text_difference: what the kernel patched into itself
//! ```

mod alternatives;
pub mod ambiguous;
pub(crate) mod boot_image;
mod bpf_list;
mod changes;
mod emit;
pub mod image_marks;
pub mod kallsyms;
pub(crate) mod kallsyms_line;
pub mod kcore;
pub mod kernel_file;
mod kernel_list;
pub mod live_symbols;
pub(crate) mod live_text;
pub mod map;
mod module_list;
pub(crate) mod module_symbols;
pub mod modules;
pub mod names;
pub mod open;
pub mod patch_sites;
pub mod reader;
pub mod recorded;
pub(crate) mod region;
pub mod segments;
pub mod space;
pub(crate) mod static_branches;
mod symbol_tables;
mod system_calls;
pub mod text_difference;
mod unknown_pages;
mod vmcoreinfo;
pub mod vmlinux;
