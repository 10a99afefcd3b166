//! ELF files for tests: sections with these bytes, one after the other.

use object::elf;

use crate::byte_source::ByteSource;

/// A section of such a file.
pub(crate) struct MadeSection {
    pub(crate) name: &'static str,
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) start: u64,
    /// The section that it refers to, counted from 1.
    pub(crate) link: usize,
    pub(crate) bytes: Vec<u8>,
}

impl MadeSection {
    /// Code at an address.
    pub(crate) fn code(start: u64, len: usize) -> Self {
        Self {
            name: ".text",
            kind: elf::SHT_PROGBITS,
            flags: elf::SHF_ALLOC | elf::SHF_EXECINSTR,
            start,
            link: 0,
            bytes: vec![0x90; len],
        }
    }

    /// Data of another tool, which is not in memory.
    pub(crate) fn unmapped(name: &'static str, bytes: Vec<u8>) -> Self {
        Self {
            name,
            kind: elf::SHT_PROGBITS,
            flags: 0,
            start: 0,
            link: 0,
            bytes,
        }
    }
}

const HEADER: usize = 64;

/// A file without segments that has these sections, and one with their names.
pub(crate) fn made(mut sections: Vec<MadeSection>) -> ByteSource {
    let nothing = MadeSection {
        kind: elf::SHT_NULL,
        ..MadeSection::unmapped("", Vec::new())
    };
    sections.insert(0, nothing);
    let mut names = vec![0];
    let mut starts = Vec::new();
    for name in sections.iter().map(|section| section.name).chain([".shstrtab"]) {
        starts.push(names.len() as u32);
        names.extend(name.bytes().chain([0]));
    }
    sections.push(MadeSection {
        kind: elf::SHT_STRTAB,
        ..MadeSection::unmapped(".shstrtab", names)
    });
    let n = sections.len();
    let mut bytes = vec![0; HEADER + HEADER * n];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    for (at, value) in [(0x10, 2), (0x12, 62), (0x28, 64), (0x34, 64), (0x3a, 64)] {
        bytes[at] = value;
    }
    bytes[0x3c] = n as u8;
    bytes[0x3e] = n as u8 - 1;
    for (nth, (section, name)) in sections.into_iter().zip(starts).enumerate() {
        let offset = bytes.len() as u64;
        let at = HEADER * (nth + 1);
        let words = [
            u64::from(name) | u64::from(section.kind) << 32,
            u64::from(section.flags),
            section.start,
            offset,
            section.bytes.len() as u64,
            section.link as u64,
        ];
        for (word, at) in words.into_iter().zip((at..).step_by(8)) {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes.extend(section.bytes);
    }
    ByteSource::Memory(bytes)
}
