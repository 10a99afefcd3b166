//! Where the bytes of an image are read: an open file, or a copy of memory.
//!
//! Files may be larger than memory and their headers may lie, so every read states its length, is bounded, and
//! allocates only what the file can really give.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

/// No single table or note of an image is read beyond this many bytes.
const MAX_READ: u64 = 64 << 20;

/// The bytes of an image.
#[derive(Debug)]
pub enum ByteSource {
    /// A regular file and its length when it was opened.
    File(File, u64),
    /// A copy of memory.
    Memory(Vec<u8>),
}

/// Seconds and nanoseconds since 1970.
pub type Timestamp = (i64, i64);

impl ByteSource {
    /// When the file or its inode was last changed, which nobody can set back; `None` of memory, or where it cannot be known.
    pub fn written(&self) -> Option<Timestamp> {
        match self {
            Self::File(file, _) => file
                .metadata()
                .ok()
                .map(|about| (about.ctime(), about.ctime_nsec())),
            Self::Memory(_) => None,
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::File(_, len) => *len,
            Self::Memory(bytes) => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads `len` bytes from `offset` on; `None` where they are not all there, or are more than 64 MiB.
    pub fn read(&self, offset: u64, len: u64) -> Option<Vec<u8>> {
        let fits = offset.checked_add(len)? <= self.len() && len <= MAX_READ;
        if !fits {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        self.read_into(offset, &mut bytes).then_some(bytes)
    }

    /// Fills `bytes` from `offset` on; `false` where they are not all there.
    pub fn read_into(&self, offset: u64, bytes: &mut [u8]) -> bool {
        match self {
            Self::File(file, _) => file.read_exact_at(bytes, offset).is_ok(),
            Self::Memory(memory) => {
                let from = usize::try_from(offset)
                    .ok()
                    .and_then(|at| memory.get(at..)?.get(..bytes.len()));
                from.inspect(|from| bytes.copy_from_slice(from)).is_some()
            }
        }
    }

    /// Reads the text up to the next zero byte, at most 1 KiB of it; mangled names beyond that are truncated.
    pub fn read_name(&self, offset: u64) -> Option<String> {
        let len = self.len().checked_sub(offset)?.min(LONGEST_NAME as u64);
        let mut short = [0; SHORT_NAME];
        let short = short.get_mut(..usize::try_from(len).ok()?.min(SHORT_NAME))?;
        if !self.read_into(offset, short) {
            return None;
        }
        if let Some(end) = short.iter().position(|b| *b == 0) {
            return Some(text(short.get(..end)?));
        }
        let bytes = self.read(offset, len)?;
        Some(text(bytes.split(|b| *b == 0).next()?))
    }
}

/// Names beyond this are truncated.
pub(super) const LONGEST_NAME: usize = 1024;
/// Few names are longer, and what is read has to be copied.
const SHORT_NAME: usize = 64;

/// Text that may be none; it nearly always is.
pub(super) fn text(name: &[u8]) -> String {
    match str::from_utf8(name) {
        Ok(name) => name.to_owned(),
        Err(_) => String::from_utf8_lossy(name).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_bounded() {
        let memory = ByteSource::Memory(b"ab\0cd".to_vec());
        assert_eq!(memory.read(1, 2), Some(b"b\0".to_vec()));
        assert_eq!(memory.read(4, 2), None);
        assert_eq!(memory.read(u64::MAX, 2), None);
        assert_eq!(memory.read_name(0).as_deref(), Some("ab"));
        assert_eq!(
            memory.read_name(3).as_deref(),
            Some("cd"),
            "the end of the file ends a name as well"
        );
        assert_eq!(memory.read_name(6), None);
        let file = File::open("/proc/self/exe").expect("own program");
        let lying = ByteSource::File(file, u64::MAX);
        assert_eq!(lying.read(0, 1 << 40), None);
        assert_eq!(lying.read(1 << 50, 4), None);
    }
}
