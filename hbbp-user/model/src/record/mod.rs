//! Sideband records of the kernel, typed: events of processes, mappings and kernel text.
//!
//! A live run reads them from the sideband ring of each CPU, an import from a perf.data file.
//! Times are ns of the clock that the recording used, CLOCK_MONOTONIC for a live run.
//! The layouts are those of `include/uapi/linux/perf_event.h`.

mod build_id;
mod compiled_layout;
mod module_layout;
mod names;
mod parse;

use std::sync::Arc;

pub use build_id::BuildId;
pub use compiled_layout::{Compiled, CompiledLayout};
pub use module_layout::{ListedModule, ModuleLayout, ModuleListLayout};
pub use names::Names;
pub use parse::{MISC_MMAP_BUILD_ID, Malformed, parse_record};

use crate::addr::{FileOff, Va};

/// A record with its timestamp.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Timed {
    /// Time in ns.
    pub time: u64,
    /// What happened.
    pub record: Record,
}

/// An event of a process or of kernel text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Record {
    /// An executable mapping was created (PERF_RECORD_MMAP, PERF_RECORD_MMAP2).
    Mmap(Mmap),
    /// A task has a new name; with `exec` it also runs a new program (PERF_RECORD_COMM).
    Comm {
        /// Thread group id.
        pid: u32,
        /// Thread id.
        tid: u32,
        /// The name.
        comm: Arc<str>,
        /// Whether the name comes from an exec.
        exec: bool,
    },
    /// A task was created; a new process where `pid` and `parent_pid` differ (PERF_RECORD_FORK).
    Fork {
        /// Thread group id of the child.
        pid: u32,
        /// Thread id of the child.
        tid: u32,
        /// Thread group id of the parent.
        parent_pid: u32,
    },
    /// A task ended; the process has ended with the last of its tasks (PERF_RECORD_EXIT).
    Exit {
        /// Thread group id.
        pid: u32,
        /// Thread id.
        tid: u32,
    },
    /// Kernel text outside the image was added or removed: BPF programs, trampolines (PERF_RECORD_KSYMBOL).
    Ksymbol {
        /// First address.
        start: Va,
        /// Length in bytes.
        len: u32,
        /// The kernel's name for it.
        name: String,
        /// Whether it is BPF code rather than other out-of-line code.
        bpf: bool,
        /// Whether it was removed.
        gone: bool,
    },
    /// Kernel text was patched (PERF_RECORD_TEXT_POKE).
    TextPoke {
        /// First patched address.
        start: Va,
        /// Bytes before.
        old: Vec<u8>,
        /// Bytes after.
        new: Vec<u8>,
    },
    /// A kernel module was loaded or freed (tracepoints module:module_load and module:module_free).
    Module(LoadedText),
    /// Number of records that were overwritten before they were read (PERF_RECORD_LOST).
    Lost(u64),
    /// Number of kernel text records that were overwritten before they were read.
    LostText(u64),
}

/// The text of a kernel module that was loaded or freed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LoadedText {
    /// Its name.
    pub name: String,
    /// Whether it was freed.
    pub gone: bool,
    /// Core and init text; parts without text are omitted.
    pub parts: Vec<TextPart>,
    /// Symbol tables in kernel memory: the core symbols, and all symbols while the module is loaded.
    pub symbols: Vec<SymbolTable>,
}

/// A part of a module's text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TextPart {
    /// First byte.
    pub start: Va,
    /// Length in bytes.
    pub len: u64,
}

/// A symbol table in the kernel's memory (include/linux/module.h, struct `mod_kallsyms`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SymbolTable {
    /// The structure itself.
    At(Va),
    /// What it holds.
    Of {
        /// Address of the symbols, each an `Elf64_Sym`.
        symbols: Va,
        /// Number of symbols.
        n: u32,
        /// Address of their names.
        names: Va,
    },
}

/// An executable mapping of a file or of anonymous memory into a process.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mmap {
    /// Thread group id; `u32::MAX` for the kernel.
    pub pid: u32,
    /// First address.
    pub start: Va,
    /// Length in bytes.
    pub len: u64,
    /// Offset of the first byte in the file.
    pub offset: FileOff,
    /// What identifies the file.
    pub identity: FileIdentity,
    /// Whether writes to the file by others show in it (MAP_SHARED).
    pub shared: bool,
    /// Path as the process saw it, or the kernel's name: `[vdso]`, `//anon`, `/memfd:x (deleted)`.
    pub path: Arc<str>,
}

/// What identifies a mapped file beyond its path.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum FileIdentity {
    /// Not recorded.
    Unknown,
    /// Device and inode as the mapping states them.
    Inode {
        /// Major number of the device.
        major: u32,
        /// Minor number of the device.
        minor: u32,
        /// Inode number.
        inode: u64,
        /// What tells files apart that had one inode number after the other; 0 where it is not known.
        generation: u64,
    },
    /// GNU build id.
    BuildId(BuildId),
}

impl FileIdentity {
    /// Whether both may be of one file: nothing that both of them state differs.
    pub fn agrees(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Inode {
                    major,
                    minor,
                    inode,
                    generation,
                },
                Self::Inode {
                    major: other_major,
                    minor: other_minor,
                    inode: other_inode,
                    generation: other_generation,
                },
            ) => {
                let is_told = *generation != 0 && *other_generation != 0;
                (major, minor, inode) == (other_major, other_minor, other_inode)
                    && (!is_told || generation == other_generation)
            }
            (Self::BuildId(id), Self::BuildId(other)) => id == other,
            _ => true,
        }
    }
}
