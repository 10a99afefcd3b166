//! Where the bytes of an image are read: an open file, or a copy of memory.
//!
//! Files may be larger than memory and their headers may lie, so every read states its length, is bounded, and
//! allocates only what the file can really give.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// No single table or note of an image is read beyond this many bytes.
const MAX_READ: u64 = 64 << 20;

/// What a read counts at least where reads are bounded, in bytes: a call costs as much as copying them.
const LEAST_READ: u64 = 512;

/// The bytes of an image.
#[derive(Debug)]
pub enum ByteSource {
    /// A regular file and its length when it was opened.
    File(File, u64),
    /// The same, as far as what may be read lasts.
    Bounded(File, u64, Arc<Readable>),
    /// A copy of memory.
    Memory(Vec<u8>),
}

/// Bytes that may be read of some files, all reads together: their tables may overlap, and lie in holes of any length.
#[derive(Debug)]
pub struct Readable {
    left: AtomicU64,
    /// Bytes that were requested.
    asked: AtomicU64,
}

impl Readable {
    /// This number of bytes.
    pub(crate) const fn new(left: u64) -> Self {
        Self {
            left: AtomicU64::new(left),
            asked: AtomicU64::new(0),
        }
    }

    /// Bytes that were read.
    pub(crate) fn n_read(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether a read was cut short, so that what was found is incomplete.
    pub(crate) fn is_spent(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }

    /// Takes what a read needs; after the first one that does not fit, there is nothing left.
    fn take(&self, n: usize) -> bool {
        let n = u64::try_from(n).unwrap_or(u64::MAX).max(LEAST_READ);
        let rest = self.left.load(Ordering::Relaxed).checked_sub(n);
        self.left.store(rest.unwrap_or(0), Ordering::Relaxed);
        if rest.is_some() {
            self.asked.fetch_add(n, Ordering::Relaxed);
        }
        rest.is_some()
    }
}

/// Seconds and nanoseconds since 1970.
pub type Timestamp = (i64, i64);

impl ByteSource {
    /// When the file or its inode was last changed, which cannot be set back; `None` of memory, or where it cannot be
    /// known.
    pub fn changed(&self) -> Option<Timestamp> {
        self.about().map(|about| (about.ctime(), about.ctime_nsec()))
    }

    /// Modification time of the file, which its owner can set; `None` for memory, or if it is unknown.
    pub fn written(&self) -> Option<Timestamp> {
        self.about().map(|about| (about.mtime(), about.mtime_nsec()))
    }

    /// Owner of the file; `None` for memory, or if it is unknown.
    pub(crate) fn owner(&self) -> Option<u32> {
        self.about().map(|about| about.uid())
    }

    /// The same file once more; fails for memory.
    pub fn again(&self) -> io::Result<Self> {
        match self {
            Self::File(file, len) => Ok(Self::File(file.try_clone()?, *len)),
            Self::Bounded(file, len, readable) => {
                Ok(Self::Bounded(file.try_clone()?, *len, Arc::clone(readable)))
            }
            Self::Memory(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn about(&self) -> Option<Metadata> {
        match self {
            Self::File(file, _) | Self::Bounded(file, ..) => file.metadata().ok(),
            Self::Memory(_) => None,
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::File(_, len) | Self::Bounded(_, len, _) => *len,
            Self::Memory(bytes) => u64::try_from(bytes.len()).unwrap_or(u64::MAX),
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads `len` bytes from `offset` on; `None` if they are not all there, or are more than 64 MiB.
    pub fn read(&self, offset: u64, len: u64) -> Option<Vec<u8>> {
        let fits = offset.checked_add(len)? <= self.len() && len <= MAX_READ;
        if !fits || matches!(self, Self::Bounded(.., readable) if readable.is_spent()) {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        self.read_into(offset, &mut bytes).then_some(bytes)
    }

    /// Fills `bytes` from `offset` on; `false` if they are not all there.
    pub fn read_into(&self, offset: u64, bytes: &mut [u8]) -> bool {
        match self {
            Self::File(file, _) => file.read_exact_at(bytes, offset).is_ok(),
            Self::Bounded(file, _, readable) => {
                readable.take(bytes.len()) && file.read_exact_at(bytes, offset).is_ok()
            }
            Self::Memory(memory) => {
                let from = usize::try_from(offset)
                    .ok()
                    .and_then(|at| memory.get(at..)?.get(..bytes.len()));
                from.inspect(|from| bytes.copy_from_slice(from)).is_some()
            }
        }
    }

    /// Reads the text up to the next zero byte; of a name of more than 1 KiB the beginning and a hash.
    pub(crate) fn read_name(&self, offset: u64) -> Option<String> {
        let len = self.len().checked_sub(offset)?.min(MAX_HASHED);
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

/// Of longer names this many bytes are kept, the hash among them.
pub(super) const LONGEST_NAME: usize = 1024;
/// A name is read as far as this, in bytes: those of generated code reach some KiB.
const MAX_HASHED: u64 = 256 << 10;
/// Few names are longer, and what is read has to be copied.
const SHORT_NAME: usize = 64;

/// Text that may be none; it nearly always is. A long name is cut, and a hash of all of it distinguishes it from others with the
/// same beginning.
pub(super) fn text(name: &[u8]) -> String {
    if name.len() <= LONGEST_NAME {
        return match str::from_utf8(name) {
            Ok(name) => name.to_owned(),
            Err(_) => String::from_utf8_lossy(name).into_owned(),
        };
    }
    let hash = format!("~{:016x}", hash(name));
    let kept = name.get(..LONGEST_NAME - hash.len()).unwrap_or(name);
    String::from_utf8_lossy(kept)
        .trim_end_matches('\u{fffd}')
        .to_owned()
        + &hash
}

/// FNV-1a (RFC 9923): the same in each version of the program, as names are compared between profiles.
fn hash(bytes: &[u8]) -> u64 {
    let one = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, one)
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

    #[test]
    fn long_names_are_distinguished() {
        let long = |last: u8| [&[b'x'; 5000][..], &[last, 0]].concat();
        let [a, b] = [b'a', b'b'].map(|last| ByteSource::Memory(long(last)).read_name(0).unwrap());
        assert_eq!((a.len(), b.len()), (LONGEST_NAME, LONGEST_NAME));
        assert!(a != b && a[..1000] == b[..1000]);
        assert_eq!(text(b"foobar"), "foobar");
        assert_eq!(hash(b"foobar"), 0x8594_4171_f739_67e8, "of RFC 9923, appendix C");
        let shortest_cut = text(&[b'y'; LONGEST_NAME + 1]);
        assert!(shortest_cut.contains('~') && !text(&[b'y'; LONGEST_NAME]).contains('~'));
    }

    #[test]
    fn reads_are_bounded_in_sum() {
        let open = || File::open("/proc/self/exe").expect("own program");
        let readable = Arc::new(Readable::new(2 * LEAST_READ + 5000));
        let [a, b] = [0, 1].map(|_| ByteSource::Bounded(open(), 1 << 20, Arc::clone(&readable)));
        assert!(a.read(0, 5000).is_some() && a.read_name(1).is_some() && b.read(0, 1).is_some());
        assert_eq!(b.read(0, 1), None, "the other file has read it all");
        assert!(readable.is_spent());
        assert_eq!(readable.n_read(), 2 * LEAST_READ + 5000);
    }
}
