//! The frame of a snapshot file: a version, then sections, each with its name, its checksum and its compression.
//!
//! FORMAT.md specifies it. What a section declares is believed only within limits: a hostile file must not make a
//! reader allocate more than a small multiple of the file's own length.

use std::io;

use super::error::Error;

/// The first bytes of every snapshot file.
pub(super) const MAGIC: [u8; 8] = *b"HBBPSNAP";

/// Raised where an older reader would get the meaning wrong; such a reader refuses the file. Before the first release,
/// older versions are not read either.
pub(super) const MAJOR: u16 = 3;

/// Raised where sections or fields are added that an older reader may skip.
pub(super) const MINOR: u16 = 9;

/// Length of the header of a section in bytes.
pub(super) const HEADER: usize = 8 + 4 + 8 + 8 + 4 + 4;

/// A section may decompress to at most this multiple of its stored length. Text compresses to 0.57 of its length, names
/// of functions to 0.36, tables of mappings to 0.78, so no honest section comes near. Data that compresses better (an
/// executed page of zero bytes) is stored uncompressed.
const MAX_EXPANSION: u64 = 8;

/// Most bytes that a section may decompress to: all counts that a snapshot may have, in one interval. A row takes less
/// than twice its memory, and an eighth as a rule.
const MAX_RAW: u64 = 512 << 20;

/// Most bytes of a section that is made of small messages, which grow a hundredfold when they are decoded: the counters
/// of some events on 8192 CPUs.
const MAX_MESSAGES: u64 = 2 << 20;

/// How the bytes of a section are stored.
#[derive(Clone, Copy)]
pub(super) enum Encoding {
    AsItIs = 0,
    Zstd = 1,
}

const AS_IT_IS: u32 = Encoding::AsItIs as u32;
const ZSTD: u32 = Encoding::Zstd as u32;

/// The sections that this version knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Section {
    Run,
    Modules,
    Symbols,
    Processes,
    Text,
    Branches,
    Counts,
    Losses,
    End,
}

impl Section {
    const ALL: [Self; 9] = [
        Self::Run,
        Self::Modules,
        Self::Symbols,
        Self::Processes,
        Self::Text,
        Self::Branches,
        Self::Counts,
        Self::Losses,
        Self::End,
    ];

    /// Those that a file has at most once.
    pub(super) const ONCE: [Self; 7] = [
        Self::Run,
        Self::Modules,
        Self::Symbols,
        Self::Processes,
        Self::Text,
        Self::Branches,
        Self::Losses,
    ];

    /// The name in the file and in errors: at most 8 bytes.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Modules => "modules",
            Self::Symbols => "symbols",
            Self::Processes => "process",
            Self::Text => "text",
            Self::Branches => "branches",
            Self::Counts => "counts",
            Self::Losses => "losses",
            Self::End => "end",
        }
    }

    /// Most bytes that the section may decompress to.
    fn max_raw(self, stored_len: u64) -> u64 {
        match self {
            Self::Run | Self::Losses => stored_len.min(MAX_MESSAGES),
            Self::Modules | Self::Symbols | Self::Processes | Self::Text | Self::Branches | Self::Counts => {
                most_expanded(stored_len).min(MAX_RAW)
            }
            Self::End => 0,
        }
    }

    /// Whether it is written compressed. Counts are not: zstd leaves 72 to 86 % of them for 60 instructions a byte, and
    /// with branch stacks they are most of what is written for each sample.
    pub(super) const fn is_compressed(self) -> bool {
        matches!(
            self,
            Self::Modules | Self::Symbols | Self::Processes | Self::Text | Self::Branches
        )
    }
}

/// A section as it is in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored<'a> {
    /// Which one, or `None` if this version does not know it.
    pub(super) section: Option<Section>,
    encoding: u32,
    raw_len: u64,
    crc: u32,
    bytes: &'a [u8],
}

/// Why the content of one section cannot be had, while its frame is intact.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("wrong checksum")]
    Checksum,
    #[error("unknown encoding {0}, written by a newer hbbp-sys")]
    Encoding(u32),
    #[error("stated size of {0} bytes exceeds the limit")]
    Claim(u64),
    #[error("cannot be decompressed to its stated size ({0})")]
    Decompress(io::Error),
}

impl Stored<'_> {
    /// The message in the section.
    pub(super) fn open(&self) -> Result<Vec<u8>, Unreadable> {
        if !holds(self.bytes, self.crc) {
            return Err(Unreadable::Checksum);
        }
        let raw_len = self.believed().ok_or(Unreadable::Claim(self.raw_len))?;
        let raw_len = usize::try_from(raw_len).map_err(|_| Unreadable::Claim(self.raw_len))?;
        match self.encoding {
            AS_IT_IS if raw_len == self.bytes.len() => Ok(self.bytes.to_vec()),
            AS_IT_IS => Err(Unreadable::Claim(self.raw_len)),
            ZSTD => {
                let raw = zstd::bulk::decompress(self.bytes, raw_len).map_err(Unreadable::Decompress)?;
                let exact = raw.len() == raw_len;
                if exact {
                    Ok(raw)
                } else {
                    Err(Unreadable::Decompress(io::ErrorKind::UnexpectedEof.into()))
                }
            }
            other => Err(Unreadable::Encoding(other)),
        }
    }
}

impl Stored<'_> {
    /// The length that the section claims to decompress to, where it is within the limits of a section that is known.
    fn believed(&self) -> Option<u64> {
        let stored_len = u64::try_from(self.bytes.len()).unwrap_or(u64::MAX);
        let most = self.section?.max_raw(stored_len);
        Some(self.raw_len).filter(|raw_len| *raw_len <= most)
    }
}

/// Splits a file into its sections, the end left out; fails where the frame itself is damaged or cut off.
pub(super) fn sections(file: &[u8]) -> Result<Vec<Stored<'_>>, Error> {
    let remainder = file.strip_prefix(&MAGIC).ok_or(Error::NotASnapshot)?;
    let cut_off = |place: String| Error::Truncated { place };
    let (version, mut remainder) = remainder
        .split_first_chunk::<4>()
        .ok_or_else(|| cut_off("in the file header".to_owned()))?;
    let [major_low, major_high, _, _] = *version;
    let major = u16::from_le_bytes([major_low, major_high]);
    if major != MAJOR {
        return Err(Error::Version {
            found: major,
            known: MAJOR,
        });
    }
    let mut sections = Vec::new();
    let mut before = "the header".to_owned();
    loop {
        let (header, bytes) = remainder
            .split_at_checked(HEADER)
            .ok_or_else(|| cut_off(format!("after {before}")))?;
        let header = Header::parse(header).ok_or_else(|| Error::Frame {
            before: before.clone(),
        })?;
        let name = format!("section `{}`", header.name.escape_ascii());
        let stored_len = usize::try_from(header.stored_len).unwrap_or(usize::MAX);
        let (bytes, after) = bytes
            .split_at_checked(stored_len)
            .ok_or_else(|| cut_off(format!("in {name}")))?;
        let section = Section::ALL
            .into_iter()
            .find(|s| s.name().as_bytes() == header.name);
        if section == Some(Section::End) {
            return if after.is_empty() {
                Ok(sections)
            } else {
                Err(Error::Trailing { n_bytes: after.len() })
            };
        }
        let stored = Stored {
            section,
            encoding: header.encoding,
            raw_len: header.raw_len,
            crc: header.crc,
            bytes,
        };
        sections.push(stored);
        before = name;
        remainder = after;
    }
}

/// Whether a checksum holds. What follows it must be safe without it too, and a fuzzer cannot guess it.
fn holds(bytes: &[u8], crc: u32) -> bool {
    cfg!(fuzzing) || crc32fast::hash(bytes) == crc
}

/// The header of a section.
struct Header<'a> {
    name: &'a [u8],
    encoding: u32,
    stored_len: u64,
    raw_len: u64,
    crc: u32,
}

impl<'a> Header<'a> {
    /// The header in `bytes`, or `None` if its own checksum does not hold.
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (checked, check) = bytes.split_last_chunk::<4>()?;
        if !holds(checked, u32::from_le_bytes(*check)) {
            return None;
        }
        let (name, fields) = checked.split_first_chunk::<8>()?;
        let (encoding, fields) = fields.split_first_chunk::<4>()?;
        let (stored_len, fields) = fields.split_first_chunk::<8>()?;
        let (raw_len, fields) = fields.split_first_chunk::<8>()?;
        let (crc, _) = fields.split_first_chunk::<4>()?;
        let name_len = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        Some(Self {
            name: name.get(..name_len)?,
            encoding: u32::from_le_bytes(*encoding),
            stored_len: u64::from_le_bytes(*stored_len),
            raw_len: u64::from_le_bytes(*raw_len),
            crc: u32::from_le_bytes(*crc),
        })
    }
}

/// Most bytes that a section of this stored length may decompress to.
pub(super) const fn most_expanded(stored_len: u64) -> u64 {
    stored_len.saturating_mul(MAX_EXPANSION)
}
