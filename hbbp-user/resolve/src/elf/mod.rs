//! ELF files as they are: bytes, headers, build ids, functions. Nothing here knows of processes or of the kernel.
//!
//! `byte_source` reads, `layout` interprets headers, `build_id` finds the identity, `functions` the ranges and names of
//! functions (`unwind` those of stripped files, `linkage` the stubs of linkage tables, `name_blocks` reads the names).

pub mod build_id;
pub mod byte_source;
pub mod functions;
pub mod layout;
mod linkage;
pub mod name_blocks;
mod unwind;
mod unwind_table;
