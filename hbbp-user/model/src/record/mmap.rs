//! A mapping of a file that may be executed, and which file it is.

use std::sync::Arc;

use super::build_id::BuildId;
use crate::addr::{FileOff, Va};

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
        /// What distinguishes files that had one inode number in turn; 0 if it is not known.
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
