//! The files of mappings by number, each once.

use std::collections::{HashMap, HashSet};

use super::mapping::{FileIdx, MappedFile};

/// With more files than this, those that are no longer mapped are forgotten: a user can map new ones for ever.
pub(super) const MANY_FILES: usize = 1 << 14;

/// Files and their numbers.
#[derive(Debug, Default)]
pub(super) struct FileTable {
    files: HashMap<FileIdx, MappedFile>,
    numbers: HashMap<MappedFile, FileIdx>,
    n_files: u32,
}

impl FileTable {
    /// A file by its number.
    pub(super) fn get(&self, idx: FileIdx) -> Option<&MappedFile> {
        self.files.get(&idx)
    }

    /// The number of a file, a new one where it has none.
    pub(super) fn intern(&mut self, file: &MappedFile) -> FileIdx {
        match self.numbers.get(file) {
            Some(idx) => *idx,
            None => {
                let idx = FileIdx(self.n_files);
                self.n_files = self.n_files.saturating_add(1);
                self.files.insert(idx, file.clone());
                self.numbers.insert(file.clone(), idx);
                idx
            }
        }
    }

    /// Number of files that are known.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Forgets all files but these.
    pub(super) fn retain(&mut self, used: &HashSet<FileIdx>) {
        self.files.retain(|idx, _| used.contains(idx));
        self.numbers.retain(|_, idx| used.contains(idx));
    }
}
