//! The frame of a snapshot file: a version, then sections, each with its name, its checksum and its compression.
//!
//! ```text
//! file    := "HBBPSNAP" major:u16 minor:u16 section* end          all numbers are little-endian
//! section := name[8] encoding:u32 stored:u64 raw:u64 crc:u32 check:u32 bytes[stored]
//! ```
//!
//! `name` is ASCII, filled up with zero bytes; `stored` and `raw` are the lengths in the file and decompressed;
//! `crc` is the CRC-32 (IEEE) of the stored bytes, and `check` that of the header before it.
//! `encoding` is 0 for bytes as they are, as they are written, and 1 for one zstd frame, as another tool may pack them.
//! `end` is a section without bytes, so that a file which was cut off between two sections is noticed.
//!
//! What a section declares is believed only within limits: a hostile file must not make a reader allocate more than
//! a fixed multiple of the file's own length.

use std::io;

use super::Error;

/// The first bytes of every snapshot file.
pub(super) const MAGIC: [u8; 8] = *b"HBBPSNAP";

/// Raised where an older reader would get the meaning wrong; such a reader refuses the file. Since 2, streams tell their
/// sources, and the section `counts` holds rows; the columns of 1 are still read.
pub(super) const MAJOR: u16 = 2;

/// The oldest major version that is read.
const OLDEST: u16 = 1;

/// Raised where sections or fields are added that an older reader may skip.
const MINOR: u16 = 0;

/// Length of the header of a section in bytes.
const HEADER: usize = 8 + 4 + 8 + 8 + 4 + 4;

/// A section may decompress to at most this multiple of its stored length (plus [`FREE_EXPANSION`]): several times what
/// zstd reaches on counts and text.
const MAX_EXPANSION: u64 = 32;

/// All sections together may decompress to so many bytes: tens of times those of a minute of a whole system.
/// Decoded, their rows need up to 24 times as much memory; with [`MAX_EXPANSION`] that is bounded by the length of
/// the file too.
const MAX_RAW: u64 = 256 << 20;

/// A section of up to this many bytes may compress as well as it can.
const FREE_EXPANSION: u64 = 1 << 16;

/// How sections are written. The end of a recording is part of what it costs: of 6 MB of text that ran in a compiler, zstd
/// leaves 63 % at level 1 for 61 instructions a byte and 77 % at level -3 for 28, which is more than all else that is done
/// to what was counted; of counts it leaves 86 %.
const AS_IT_IS: u32 = 0;

/// The sections that this version knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Section {
    Run,
    Modules,
    Symbols,
    Processes,
    Text,
    Counts,
    Losses,
    End,
}

impl Section {
    const ALL: [Self; 8] = [
        Self::Run,
        Self::Modules,
        Self::Symbols,
        Self::Processes,
        Self::Text,
        Self::Counts,
        Self::Losses,
        Self::End,
    ];

    /// The name in the file and in errors: at most 8 bytes.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Modules => "modules",
            Self::Symbols => "symbols",
            Self::Processes => "process",
            Self::Text => "text",
            Self::Counts => "counts",
            Self::Losses => "losses",
            Self::End => "end",
        }
    }

    /// Most bytes that the section may decompress to.
    /// Sections of small messages, which grow when they are decoded, get less than those in columns.
    const fn max_raw(self) -> u64 {
        match self {
            Self::Run | Self::Modules | Self::Losses => 8 << 20,
            Self::Symbols | Self::Processes | Self::Text | Self::Counts => MAX_RAW,
            Self::End => 0,
        }
    }
}

/// A file that grows section by section.
pub(super) struct Writer {
    file: Vec<u8>,
    raw_len: u64,
}

impl Writer {
    /// A file without sections.
    pub(super) fn new() -> Self {
        let mut file = MAGIC.to_vec();
        file.extend(MAJOR.to_le_bytes());
        file.extend(MINOR.to_le_bytes());
        Self { file, raw_len: 0 }
    }

    /// Adds a section with a message of `len` bytes, which `write` appends.
    pub(super) fn push(
        &mut self,
        section: Section,
        len: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Error> {
        let name = section.name();
        let raw_len = u64::try_from(len).unwrap_or(u64::MAX);
        self.raw_len = self.raw_len.saturating_add(raw_len);
        if section.max_raw() < raw_len || MAX_RAW < self.raw_len {
            return Err(Error::TooLarge { section: name });
        }
        let start = self.file.len();
        self.file.reserve(HEADER + len);
        self.file.extend([0; HEADER]);
        write(&mut self.file);
        let (_, section) = self.file.split_at_mut(start);
        let Some((header, raw)) = section.split_first_chunk_mut::<HEADER>() else {
            return Ok(());
        };
        let mut fields = padded(name).to_vec();
        fields.extend(AS_IT_IS.to_le_bytes());
        fields.extend(raw_len.to_le_bytes());
        fields.extend(raw_len.to_le_bytes());
        fields.extend(crc32fast::hash(raw).to_le_bytes());
        let check = crc32fast::hash(&fields);
        fields.extend(check.to_le_bytes());
        if let Ok(fields) = fields.try_into() {
            *header = fields;
        }
        Ok(())
    }

    /// The bytes of the whole file.
    pub(super) fn finish(mut self) -> Result<Vec<u8>, Error> {
        self.push(Section::End, 0, |_| {})?;
        Ok(self.file)
    }
}

/// A section as it stands in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored<'a> {
    /// Which one, or `None` where this version does not know it.
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
            1 => {
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
        let most = self.section?.max_raw().min(most_expanded(stored_len));
        Some(self.raw_len).filter(|raw_len| *raw_len <= most)
    }
}

/// Splits a file into its sections, the end left out; fails where the frame itself is damaged or cut off.
pub(super) fn sections(file: &[u8]) -> Result<Vec<Stored<'_>>, Error> {
    let rest = file.strip_prefix(&MAGIC).ok_or(Error::NotASnapshot)?;
    let cut_off = |place: String| Error::Truncated { place };
    let (version, mut rest) = rest
        .split_first_chunk::<4>()
        .ok_or_else(|| cut_off("in the file header".to_owned()))?;
    let [major_low, major_high, _, _] = *version;
    let major = u16::from_le_bytes([major_low, major_high]);
    if !(OLDEST..=MAJOR).contains(&major) {
        return Err(Error::Version {
            found: major,
            known: MAJOR,
        });
    }
    let mut sections = Vec::new();
    let mut raw_len = 0_u64;
    let mut before = "the header".to_owned();
    loop {
        let (header, bytes) = rest
            .split_at_checked(HEADER)
            .ok_or_else(|| cut_off(format!("after {before}")))?;
        let header = Header::parse(header).ok_or_else(|| Error::Frame {
            before: before.clone(),
        })?;
        let name = format!("section `{}`", header.name.escape_ascii());
        let stored_len = usize::try_from(header.stored_len).unwrap_or(usize::MAX);
        let (bytes, behind) = bytes
            .split_at_checked(stored_len)
            .ok_or_else(|| cut_off(format!("in {name}")))?;
        let section = Section::ALL
            .into_iter()
            .find(|s| s.name().as_bytes() == header.name);
        if section == Some(Section::End) {
            return if behind.is_empty() {
                Ok(sections)
            } else {
                Err(Error::Trailing {
                    n_bytes: behind.len(),
                })
            };
        }
        let stored = Stored {
            section,
            encoding: header.encoding,
            raw_len: header.raw_len,
            crc: header.crc,
            bytes,
        };
        raw_len = raw_len.saturating_add(stored.believed().unwrap_or(0));
        if MAX_RAW < raw_len {
            return Err(Error::TooLarge {
                section: section.map_or("", Section::name),
            });
        }
        sections.push(stored);
        before = name;
        rest = behind;
    }
}

/// Whether a checksum holds. What lies behind must be safe without it too, and a fuzzer cannot guess it.
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
    /// The header in `bytes`, or `None` where its own checksum does not hold.
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (checked, check) = bytes.split_last_chunk::<4>()?;
        if !holds(checked, u32::from_le_bytes(*check)) {
            return None;
        }
        let (name, rest) = checked.split_first_chunk::<8>()?;
        let (encoding, rest) = rest.split_first_chunk::<4>()?;
        let (stored_len, rest) = rest.split_first_chunk::<8>()?;
        let (raw_len, rest) = rest.split_first_chunk::<8>()?;
        let (crc, _) = rest.split_first_chunk::<4>()?;
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

/// The name of a section as it stands in the file.
fn padded(name: &str) -> [u8; 8] {
    let mut padded = [0; 8];
    padded
        .iter_mut()
        .zip(name.bytes())
        .for_each(|(to, from)| *to = from);
    padded
}

/// Most bytes that so many stored ones may stand for.
const fn most_expanded(stored_len: u64) -> u64 {
    stored_len
        .saturating_mul(MAX_EXPANSION)
        .saturating_add(FREE_EXPANSION)
}
