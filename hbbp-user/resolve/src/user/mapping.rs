//! A mapping of a process image, and what it says of its file.

use std::sync::Arc;

use super::mapped_file::plain_path;
use hbbp_model::addr::{FileOff, Va};
use hbbp_model::record::{FileIdentity, Mmap};

/// Index of a [`MappedFile`] in the index that gave it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct FileIdx(pub u32);

/// What a mapping says of its file.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct MappedFile {
    /// Path as the process saw it, or the kernel's name for memory without a file.
    pub path: Arc<str>,
    /// Device, inode and generation, or in recordings the build id.
    pub identity: FileIdentity,
}

/// What a mapping is made of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Backing {
    /// A file.
    File,
    /// The kernel's code page for processes.
    Vdso,
    /// Memory, with or without a name.
    Memory,
}

impl Backing {
    /// By the path of a mapping, as the kernel writes it: `//anon`, `[heap]`, `anon_inode:x` are memory.
    pub(crate) fn of(path: &str) -> Self {
        match path {
            "[vdso]" => Self::Vdso,
            // Reserved huge pages (mm/hugetlb.c, `HUGETLB_ANON_FILE`).
            "/anon_hugepage (deleted)" => Self::Memory,
            path if path.starts_with('/') && !path.starts_with("//") => Self::File,
            _ => Self::Memory,
        }
    }
}

impl MappedFile {
    /// The file that a mapping names.
    pub(crate) fn of(mmap: &Mmap) -> Self {
        Self {
            path: mmap.path.clone(),
            identity: mmap.identity.clone(),
        }
    }

    /// Whether a mapping with this path and identity may name the same file: by the same path, and by nothing that differs.
    pub(crate) fn may_be(&self, path: &str, identity: &FileIdentity) -> bool {
        self.identity.agrees(identity) && plain_path(&self.path) == plain_path(path)
    }

    /// What mappings of it are made of.
    pub(crate) fn backing(&self) -> Backing {
        Backing::of(&self.path)
    }
}

/// A mapping of a process image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ImageMapping {
    /// First address.
    pub start: Va,
    /// First address after it.
    pub end: Va,
    /// Offset in the file of the byte at `start`.
    pub offset: FileOff,
    /// What is mapped.
    pub file: FileIdx,
    /// Whether writes to the file by others show in it.
    pub shared: bool,
    /// Time of the mapping in ns; 0 if it existed before the run.
    pub from: u64,
}
