//! `.gnu_debuglink`: the name of the file that symbols were moved to, and the checksum of that file (gdb's manual, "Debugging
//! Information in Separate Files"). Such a file may name another one.

use crate::byte_source::ByteSource;

/// A name of a file and a checksum take no more bytes than this.
const MAX_SECTION: u64 = 512;
/// Bytes that are read at once of a file whose checksum is computed.
const PIECE: u64 = 1 << 20;

/// Which file holds the symbols of another one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DebugLink {
    /// Its name, without a folder.
    pub name: String,
    /// CRC-32 of its bytes.
    pub(crate) checksum: u32,
}

impl DebugLink {
    /// From the section at `offset` of an ELF file; `None` if it holds no name of a file.
    pub(crate) fn read(source: &ByteSource, offset: u64, len: u64) -> Option<Self> {
        let bytes = source.read(offset, len.min(MAX_SECTION))?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        let checksum = bytes.get(end.checked_add(1)?.next_multiple_of(4)..)?;
        let checksum = checksum.first_chunk::<4>()?;
        Self::new(
            str::from_utf8(bytes.get(..end)?).ok()?,
            u32::from_le_bytes(*checksum),
        )
    }

    /// Of a name, which must be that of a file in some folder.
    pub(crate) fn new(name: &str, checksum: u32) -> Option<Self> {
        let is_plain = !name.is_empty() && !name.contains(['/', '\0']) && name != "." && name != "..";
        is_plain.then(|| Self {
            name: name.to_owned(),
            checksum,
        })
    }

    /// Whether these are the bytes of the file.
    pub(crate) fn is_of(&self, source: &ByteSource) -> bool {
        let mut checksum = crc32fast::Hasher::new();
        for start in (0..source.len()).step_by(PIECE as usize) {
            match source.read(start, PIECE.min(source.len() - start)) {
                Some(piece) => checksum.update(&piece),
                None => return false,
            }
        }
        checksum.finalize() == self.checksum
    }
}
