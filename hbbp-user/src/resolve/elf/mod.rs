//! ELF files as they are: bytes, headers, build ids, functions. Nothing here knows of processes or of the kernel.
//!
//! `byte_source` reads, `layout` interprets headers, `build_id` finds the identity, `functions` the ranges and names of
//! functions (`name_blocks` reads the names).

pub mod build_id;
pub mod byte_source;
pub mod functions;
pub mod layout;
pub mod name_blocks;
