//! The writing half: a file grows section by section.

use std::io::{self, Write};

use super::container::{Encoding, HEADER, MAGIC, MAJOR, MINOR, Section, most_expanded};

/// How much is done to make a file small. Of 6.8 MB of executed text of a compiler, this is left:
///
/// | compression    | left | instructions per byte |
/// |----------------|------|-----------------------|
/// | zstd level -10 | 79 % | 17                    |
/// | zstd level -3  | 67 % | 28                    |
/// | zstd level -1  | 61 % | 39                    |
/// | zstd level 1   | 54 % | 56                    |
/// | zstd level 2   | 49 % | 55                    |
/// | LZ4            | 66 % | 19                    |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Compression {
    /// For a collector that also measures: level -3.
    Fast,
    /// For what is made of recordings and profiles, when nothing is measured: level 2.
    Small,
}

impl Compression {
    /// The level of zstd.
    const fn level(self) -> i32 {
        match self {
            Self::Fast => -3,
            Self::Small => 2,
        }
    }
}

/// A section of fewer bytes is stored as it is: there is nothing to gain.
const WORTH_IT: usize = 256;

/// A file that grows section by section.
pub(super) struct Writer {
    file: Vec<u8>,
    compression: Compression,
}

impl Writer {
    /// A file without sections.
    pub(super) fn new(compression: Compression) -> Self {
        let mut file = MAGIC.to_vec();
        file.extend(MAJOR.to_le_bytes());
        file.extend(MINOR.to_le_bytes());
        Self { file, compression }
    }

    /// Adds a section with a message of `len` bytes, which `write` writes in pieces, the same each time: it is not in memory as
    /// a whole where it is compressed.
    pub(super) fn push(
        &mut self,
        section: Section,
        len: usize,
        write: impl Fn(&mut dyn Write) -> io::Result<()>,
    ) {
        let start = self.file.len();
        self.file.extend([0; HEADER]);
        let stored = start + HEADER;
        let is_tried = section.is_compressed() && WORTH_IT <= len;
        let is_compressed = is_tried
            && compress_to(&mut self.file, len, self.compression.level(), &write).is_ok()
            && gains(len, self.file.len() - stored);
        let encoding = if is_compressed {
            Encoding::Zstd
        } else {
            self.file.truncate(stored);
            self.file.reserve(len);
            // A vector takes whatever is written to it.
            let _ = write(&mut self.file);
            Encoding::AsItIs
        };
        let (_, pushed) = self.file.split_at_mut(start);
        let Some((header, bytes)) = pushed.split_first_chunk_mut::<HEADER>() else {
            return;
        };
        let as_u64 = |len| u64::try_from(len).unwrap_or(u64::MAX);
        let mut fields = padded(section.name()).to_vec();
        fields.extend((encoding as u32).to_le_bytes());
        fields.extend(as_u64(bytes.len()).to_le_bytes());
        fields.extend(as_u64(len).to_le_bytes());
        fields.extend(crc32fast::hash(bytes).to_le_bytes());
        let check = crc32fast::hash(&fields);
        fields.extend(check.to_le_bytes());
        if let Ok(fields) = fields.try_into() {
            *header = fields;
        }
    }

    /// The bytes of the whole file.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.push(Section::End, 0, |_| Ok(()));
        self.file
    }
}

/// Appends what `write` writes, `len` bytes, as a frame of zstd.
fn compress_to(
    file: &mut Vec<u8>,
    len: usize,
    level: i32,
    write: impl Fn(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut encoder = zstd::Encoder::new(file, level)?;
    encoder.set_pledged_src_size(u64::try_from(len).ok())?;
    write(&mut encoder)?;
    encoder.finish().map(drop)
}

/// Whether compression to this length is worth it, and a reader believes it.
const fn gains(raw_len: usize, len: usize) -> bool {
    len < raw_len - raw_len / 16 && raw_len as u64 <= most_expanded(len as u64)
}

/// The name of a section as it is in the file.
fn padded(name: &str) -> [u8; 8] {
    let mut padded = [0; 8];
    padded
        .iter_mut()
        .zip(name.bytes())
        .for_each(|(to, from)| *to = from);
    padded
}
