//! Ranges of functions from unwind information: what is left of them in stripped files.
//!
//! `.eh_frame` has one entry (FDE) for each function, with its start and length; each refers to a common entry (CIE) that
//! says how addresses are encoded (Linux Standard Base 5.0, sections 10.6.1 and 10.5). All are read here, for files without a
//! search table ([`super::unwind_table`]).

use std::collections::HashMap;

use object::elf;

use super::byte_source::ByteSource;
use super::layout::{Section, SymbolFile};

/// No table is read beyond this many entries: the largest browsers have about a million functions.
pub(super) const MAX_ENTRIES: usize = 2 << 20;

/// What is read at once; no entry needs more than its first bytes.
const WINDOW: usize = 256 << 10;

/// Bytes of an entry that are looked at: a CIE with the longest augmentation has fewer than 40.
pub(super) const HEAD: usize = 64;

/// Before the addresses of an FDE come its length and the distance to its CIE.
const ADDRESSES: usize = 8;

/// The start of a function, and its length in bytes.
pub(super) type UnwindRange = (u64, u64);

/// Reads the ranges of functions, in the order of the file.
pub(super) fn read_unwind_ranges(own: SymbolFile<'_>) -> Vec<UnwindRange> {
    let named = |section: &&Section| {
        let name = || own.layout.section_name(own.source, section);
        section.kind != elf::SHT_NOBITS && 0 < section.start.0 && name().as_deref() == Some(".eh_frame")
    };
    let section = own.layout.sections.iter().find(named);
    let ranges = section.map(|section| Frames::new(own.source, section).ranges());
    ranges.unwrap_or_default()
}

/// A walk over `.eh_frame`.
struct Frames<'a> {
    source: &'a ByteSource,
    section: &'a Section,
    /// What was read last, and its offset in the section.
    window: (u64, Vec<u8>),
    /// The encoding of addresses of each CIE, by its offset; `None` if it is not understood.
    encodings: HashMap<u64, Option<u8>>,
    /// The one that was used last, which most entries share with their neighbours.
    last: (u64, Option<u8>),
}

impl<'a> Frames<'a> {
    fn new(source: &'a ByteSource, section: &'a Section) -> Self {
        Self {
            source,
            section,
            window: (0, Vec::new()),
            encodings: HashMap::new(),
            // No CIE is there.
            last: (u64::MAX, None),
        }
    }

    fn ranges(mut self) -> Vec<UnwindRange> {
        const IN_64_BITS: u32 = u32::MAX;

        let mut ranges = Vec::new();
        let mut at = 0;
        for _ in 0..MAX_ENTRIES {
            let Some(len) = self.head(at).and_then(|head| u32_at(head, 0)) else {
                break;
            };
            // Zero ends what one compiler run wrote.
            if len != 0 && len != IN_64_BITS {
                ranges.extend(self.range_at(at));
            }
            let next = match len {
                IN_64_BITS => self
                    .head(at)
                    .and_then(|head| u64_at(head, 4))
                    .map(|len| len.saturating_add(12)),
                len => Some(u64::from(len) + 4),
            };
            at = next.map_or(u64::MAX, |len| at.saturating_add(len));
        }
        ranges
    }

    /// The first bytes of the entry at this offset; fewer where the section ends.
    fn head(&mut self, at: u64) -> Option<&[u8]> {
        let left = usize::try_from(self.section.len.checked_sub(at)?).unwrap_or(usize::MAX);
        let wanted = left.min(HEAD);
        let (start, bytes) = &self.window;
        let held = at.checked_sub(*start).and_then(|from| usize::try_from(from).ok());
        if held.is_none_or(|from| bytes.len() < from.saturating_add(wanted)) {
            let mut bytes = vec![0; left.min(WINDOW)];
            let offset = self.section.offset.0.checked_add(at)?;
            if !self.source.read_into(offset, &mut bytes) {
                return None;
            }
            self.window = (at, bytes);
        }
        let (start, bytes) = &self.window;
        let from = usize::try_from(at - start).ok()?;
        bytes.get(from..from.checked_add(wanted)?)
    }

    /// The range of the FDE at this offset; `None` of a CIE.
    fn range_at(&mut self, at: u64) -> Option<UnwindRange> {
        let back = u32_at(self.head(at)?, 4).filter(|back| *back != 0)?;
        let cie = (at + 4).checked_sub(back.into())?;
        let encoding = self.encoding_of(cie)?;
        let base = self.section.start.0;
        let head = self.head(at)?;
        let (start, _) = value(head, ADDRESSES, encoding)?;
        let len = range_len(head, encoding)?;
        let relative_to = match encoding & APPLICATION {
            ABSOLUTE => 0,
            PC_RELATIVE => base.wrapping_add(at).wrapping_add(ADDRESSES as u64),
            _ => return None,
        };
        let start = relative_to.wrapping_add(start);
        (0 < start && 0 < len).then_some((start, len))
    }

    /// The encoding of the CIE at this offset.
    fn encoding_of(&mut self, cie: u64) -> Option<u8> {
        if self.last.0 != cie {
            let encoding = match self.encodings.get(&cie) {
                Some(known) => *known,
                None => {
                    let found = self.head(cie).and_then(encoding);
                    self.encodings.insert(cie, found);
                    found
                }
            };
            self.last = (cie, encoding);
        }
        self.last.1
    }
}

/// The length of the function of an FDE.
pub(super) fn range_len(head: &[u8], encoding: u8) -> Option<u64> {
    let (_start, n) = value(head, ADDRESSES, encoding)?;
    let (len, _) = value(head, ADDRESSES + n, encoding & FORMAT)?;
    Some(len)
}

/// How the addresses of the FDEs of a CIE are encoded; `None` if that is not understood.
pub(super) fn encoding(cie: &[u8]) -> Option<u8> {
    const VERSION: usize = 8;

    // A distance of 0 marks a CIE.
    if u32_at(cie, 4) != Some(0) {
        return None;
    }
    let version = *cie.get(VERSION)?;
    let mut remainder = cie.get(VERSION + 1..)?;
    let end = remainder.iter().position(|byte| *byte == 0)?;
    let (augmentation, after) = remainder.split_at(end);
    remainder = after.get(1..)?;
    // Alignments of code and data, and the register of the return address.
    remainder = skip_leb(skip_leb(remainder)?)?;
    remainder = if version == 1 {
        remainder.get(1..)?
    } else {
        skip_leb(remainder)?
    };
    let Some(letters) = augmentation.strip_prefix(b"z") else {
        return Some(ABSOLUTE);
    };
    remainder = skip_leb(remainder)?;
    for letter in letters {
        match letter {
            b'R' => return remainder.first().copied(),
            b'L' => remainder = remainder.get(1..)?,
            b'P' => {
                let (_, n) = value(remainder, 1, *remainder.first()?)?;
                remainder = remainder.get(1 + n..)?;
            }
            b'S' | b'B' => {}
            _ => return None,
        }
    }
    Some(ABSOLUTE)
}

/// The parts of an encoding (DW_EH_PE, Linux Standard Base 5.0, section 10.5.1).
const FORMAT: u8 = 0x0f;
const APPLICATION: u8 = 0x70;
const ABSOLUTE: u8 = 0x00;
const PC_RELATIVE: u8 = 0x10;

/// The encoded number at `at`, sign-extended for signed formats, and its length in bytes.
fn value(bytes: &[u8], at: usize, encoding: u8) -> Option<(u64, usize)> {
    match encoding & FORMAT {
        0x03 => Some((u32_at(bytes, at)?.into(), 4)),
        0x0b => Some((i64::from(u32_at(bytes, at)?.cast_signed()).cast_unsigned(), 4)),
        0x00 | 0x04 | 0x0c => Some((u64_at(bytes, at)?, 8)),
        _ => None,
    }
}

fn skip_leb(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|byte| byte & 0x80 == 0)?;
    bytes.get(end + 1..)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::addr::{FileOff, ImageAddr};
    use proptest::prelude::*;

    /// A section at 0x5000 with one CIE ("zPLR", as g++ writes it) and the FDEs of these functions.
    fn frames(functions: &[(i32, u32)]) -> Vec<u8> {
        let mut cie = vec![0, 0, 0, 0, 1];
        cie.extend(b"zPLR\0");
        cie.extend([1, 0x78, 16, 7, 0x9b, 1, 2, 3, 4, 0x1b, 0x1b, 0, 0]);
        let mut bytes = u32::try_from(cie.len()).unwrap().to_le_bytes().to_vec();
        bytes.extend(cie);
        for (start, len) in functions {
            let at = u32::try_from(bytes.len()).unwrap();
            bytes.extend(16_u32.to_le_bytes());
            bytes.extend((at + 4).to_le_bytes());
            let field = 0x5000 + i32::try_from(at).unwrap() + 8;
            bytes.extend((start - field).to_le_bytes());
            bytes.extend(len.to_le_bytes());
            bytes.extend([0; 4]);
        }
        bytes.extend([0; 4]);
        bytes
    }

    fn ranges(bytes: Vec<u8>) -> Vec<UnwindRange> {
        let section = Section {
            kind: elf::SHT_PROGBITS,
            offset: FileOff(0),
            start: ImageAddr(0x5000),
            len: bytes.len() as u64,
            link: 0,
            name: 0,
            executable: false,
        };
        Frames::new(&ByteSource::Memory(bytes), &section).ranges()
    }

    #[test]
    fn functions_have_the_ranges_of_their_fdes() {
        let functions = [(0x1000, 0x20), (0x4000, 7), (0x1020, 0x100)];
        let expected = [(0x1000, 0x20), (0x4000, 7), (0x1020, 0x100)];
        assert_eq!(ranges(frames(&functions)), expected);
        let many: Vec<(i32, u32)> = (1..20_000).map(|n| (n * 16, 16)).collect();
        assert_eq!(ranges(frames(&many)).len(), many.len(), "more than one window");
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            ranges(bytes);
            let mut damaged = frames(&[(0x1000, 0x20), (0x4000, 7)]);
            *at.get_mut(&mut damaged) = byte;
            ranges(damaged);
        }
    }
}
