//! What the kernel reports in addition to samples.

use std::sync::Arc;

use super::loaded_text::LoadedText;
use super::mmap::Mmap;
use crate::addr::Va;

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
