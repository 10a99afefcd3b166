//! The pid namespace that this process lives in.
//!
//! A BPF program sees the process ids of the initial one, but /proc and the records of the sideband show those of ours:
//! in most containers they differ, and then the programs must ask for ours.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// A pid namespace as the kernel identifies it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PidNamespace {
    /// The device of its inode, in the kernel's own numbering (`MKDEV` in `include/linux/kdev_t.h`).
    pub device: u64,
    /// Its inode.
    pub inode: u64,
}

/// The initial namespace has the same inode on every kernel (`PROC_PID_INIT_INO` in `include/linux/proc_ns.h`).
const INITIAL: u64 = 0xefff_fffc;

/// Our pid namespace where it is not the initial one.
pub(crate) fn read_pid_namespace() -> Option<PidNamespace> {
    let namespace = fs::metadata("/proc/self/ns/pid").ok()?;
    let (major, minor) = (libc::major(namespace.dev()), libc::minor(namespace.dev()));
    (namespace.ino() != INITIAL).then_some(PidNamespace {
        device: u64::from(major) << 20 | u64::from(minor),
        inode: namespace.ino(),
    })
}
