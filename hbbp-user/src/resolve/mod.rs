//! Resolve.
pub mod build_id;
pub mod kallsyms;
pub mod kernel_modules;
