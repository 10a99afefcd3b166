//! Reads sections of debug information within a budget of memory.
//!
//! A report for root reads files that any user can put there, and a section of a megabyte can claim to unpack to
//! gigabytes. So all sections that a report reads share one budget. Files of others than root, ourselves and the caller of
//! sudo have a smaller one each, and none may expand by more than debug information does. The bytes are unpacked from the
//! file to where they stay, without a copy in between.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::Arc;

use object::read::{CompressedFileRange, CompressionFormat};

/// Most bytes of sections that a report holds: the kernel's are some 700 MiB.
const MAX_ALL: u64 = 2 << 30;

/// Most bytes of sections of one file of another user.
const MAX_OF_OTHERS: u64 = 64 << 20;

/// A section may unpack to at most this multiple of its bytes in the file: of debug information usually 2 to 5, and of
/// tables of ranges up to 12.
const MAX_EXPANSION: u64 = 32;

/// Bytes that are read from the file at once.
const BUFFER: usize = 64 << 10;

/// The memory that sections may still take.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Budget {
    left: u64,
}

/// A section is not read because it is too large.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct TooLarge;

impl Default for Budget {
    fn default() -> Self {
        Self { left: MAX_ALL }
    }
}

impl Budget {
    /// What one file may take of it.
    pub(super) fn of(self, file: &File) -> Self {
        self.of_owner(file.metadata().ok().map(|metadata| metadata.uid()))
    }

    fn of_owner(self, owner: Option<u32>) -> Self {
        let left = if owner.is_some_and(is_trusted) {
            self.left
        } else {
            self.left.min(MAX_OF_OTHERS)
        };
        Self { left }
    }

    /// Takes what one file took of its part.
    pub(super) fn take(&mut self, before: Self, after: Self) {
        self.left = self.left.saturating_sub(before.left.saturating_sub(after.left));
    }
}

/// Whether a file of this user can be trusted.
fn is_trusted(user: u32) -> bool {
    let caller = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
    user == 0 || user == rustix::process::geteuid().as_raw() || caller == Some(user)
}

/// The bytes of a section as they were before a tool compressed it; `None` if they cannot be read.
pub(super) fn read(
    file: &File,
    range: CompressedFileRange,
    budget: &mut Budget,
) -> Result<Option<Arc<[u8]>>, TooLarge> {
    let (packed, len) = (range.compressed_size, range.uncompressed_size);
    if budget.left < len || packed.saturating_mul(MAX_EXPANSION) < len {
        return Err(TooLarge);
    }
    budget.left -= len;
    let Ok(len) = usize::try_from(len) else {
        return Err(TooLarge);
    };
    // A section of a file that ends before costs nothing.
    let is_there = range.offset.checked_add(packed);
    if !file
        .metadata()
        .is_ok_and(|file| is_there.is_some_and(|end| end <= file.len()))
    {
        return Ok(None);
    }
    let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
    let Some(out) = Arc::get_mut(&mut bytes) else {
        return Ok(None);
    };
    let part = Part {
        file,
        at: range.offset,
        left: packed,
    };
    let part = BufReader::with_capacity(BUFFER, part);
    Ok(unpack(range.format, part, out).ok().map(|()| bytes))
}

fn unpack(format: CompressionFormat, mut part: BufReader<Part<'_>>, out: &mut [u8]) -> io::Result<()> {
    match format {
        CompressionFormat::None => part.read_exact(out),
        CompressionFormat::Zlib => flate2::bufread::ZlibDecoder::new(part).read_exact(out),
        CompressionFormat::Zstandard => zstd::Decoder::with_buffer(part)?.read_exact(out),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// A part of a file, read without moving its position.
struct Part<'a> {
    file: &'a File,
    at: u64,
    left: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(out.len());
        let n = self
            .file
            .read_at(out.get_mut(..most).unwrap_or_default(), self.at)?;
        self.at += n as u64;
        self.left -= n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn written(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn range(format: CompressionFormat, packed: &[u8], len: usize) -> CompressedFileRange {
        CompressedFileRange {
            format,
            offset: 0,
            compressed_size: packed.len() as u64,
            uncompressed_size: len as u64,
        }
    }

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        packed.write_all(bytes).unwrap();
        packed.finish().unwrap()
    }

    #[test]
    fn sections_are_unpacked() {
        // Half of the bits are random (Knuth's MMIX generator).
        let next = |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        let random = std::iter::successors(Some(1_u64), next);
        let bytes: Vec<u8> = random
            .take(200_000)
            .map(|state| u8::try_from(state >> 60).unwrap())
            .collect();
        for (format, packed) in [
            (CompressionFormat::None, bytes.clone()),
            (CompressionFormat::Zlib, zlib(&bytes)),
            (
                CompressionFormat::Zstandard,
                zstd::bulk::compress(&bytes, 3).unwrap(),
            ),
        ] {
            let mut budget = Budget { left: 200_007 };
            let found = read(&written(&packed), range(format, &packed, 200_000), &mut budget);
            let found = found.unwrap().unwrap_or_else(|| panic!("{format:?}"));
            assert_eq!((&found[..], budget.left), (&bytes[..], 7));
        }
    }

    /// 700 MB of zeros take 680 kB as zlib. Nothing is unpacked: the claim is not believed.
    #[test]
    fn expanding_section_is_refused_before_unpacking() {
        let packed = zlib(&[0; 1 << 20]);
        let len = 64 * packed.len();
        let mut budget = Budget::default();
        let refused = read(
            &written(&packed),
            range(CompressionFormat::Zlib, &packed, len),
            &mut budget,
        );
        assert_eq!((refused, budget), (Err(TooLarge), Budget::default()));
    }

    #[test]
    fn sections_that_lie_about_their_length_are_not_read() {
        let packed = zlib(&[7; 100]);
        let read = |packed: &[u8], len| {
            let file = written(packed);
            read(
                &file,
                range(CompressionFormat::Zlib, packed, len),
                &mut Budget::default(),
            )
        };
        assert_eq!(read(&packed, 100).unwrap().as_deref(), Some(&[7; 100][..]));
        assert_eq!(read(&packed, 101), Ok(None));
        assert_eq!(read(&packed[..packed.len() - 6], 100), Ok(None));
        let beyond = range(CompressionFormat::None, &[0; 64], 64);
        assert_eq!(
            super::read(&written(&[0; 63]), beyond, &mut Budget::default()),
            Ok(None)
        );
    }

    #[test]
    fn files_of_others_have_a_small_budget_and_all_together_one() {
        let budget = Budget { left: 10 << 30 };
        assert_eq!(budget.of(&written(b"")), budget);
        // The greatest number is unused.
        assert_eq!(budget.of_owner(Some(u32::MAX)).left, MAX_OF_OTHERS);
        assert_eq!(budget.of_owner(None).left, MAX_OF_OTHERS);
        let mut all = Budget { left: 100 };
        all.take(Budget { left: 60 }, Budget { left: 10 });
        assert_eq!(all.left, 50);
    }
}
