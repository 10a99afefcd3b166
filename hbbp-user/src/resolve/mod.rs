//! Resolve.
pub mod build_id;
pub mod elf;
pub mod functions;
pub mod kallsyms;
pub mod kernel_modules;
pub mod proc_scan;
pub mod process;
pub mod source;
