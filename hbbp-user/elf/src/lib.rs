//! Readers of files that other programs wrote: ELF files with their headers, build ids and functions, and the perf maps of JIT
//! compilers. This crate depends neither on processes nor on the kernel.
//!
//! Such files are hostile. A [`parser`] has them parsed in processes without rights, within limits of memory and CPU time.
//!
//! `byte_source` reads, `layout` interprets headers, `build_id` finds the identity, `functions` the ranges and names of
//! functions. Of these, `unwind` finds those of stripped files, `go_functions` those of Go, `mini_debug_info` those that are packed,
//! and `linkage` the stubs of linkage tables. `name_blocks` reads the names.

pub mod build_id;
pub mod byte_source;
pub mod debug_link;
pub mod functions;
mod go_functions;
pub mod jit_dump;
pub mod layout;
mod linkage;
#[cfg(test)]
mod made_elf;
mod mini_debug_info;
pub(crate) mod name_blocks;
pub mod parser;
pub mod perf_map;
mod perf_map_wire;
mod unwind;
mod unwind_table;
