//! Resolve.
pub mod build_id;
pub mod elf;
pub mod functions;
pub mod kallsyms;
pub mod kcore;
pub mod kernel;
pub mod kernel_modules;
pub mod kernel_text;
pub mod mapped_file;
pub mod proc_scan;
pub mod process;
pub mod source;
pub mod text;
pub mod vmlinux;
