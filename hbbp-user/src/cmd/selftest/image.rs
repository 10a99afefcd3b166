//! The file that the loads run from: an ELF file in memory with a symbol for each load, mapped at a fixed address.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;

use rustix::fs::{MemfdFlags, memfd_create};

use super::program::{Load, Program};

/// Where the text is mapped: far from where the kernel puts anything else.
pub(super) const ADDRESS: u64 = 0x5e1f_7e57_0000;

/// Where the text begins in the file, and so in the image: a page, after the headers.
pub(super) const TEXT: u64 = 0x1000;

/// Sizes of the structures of a file (System V ABI, AMD64; elf.h).
const HEADER: u16 = 64;
const SEGMENT: u16 = 56;
const SECTION: u16 = 64;
const SYMBOL: u64 = 24;

/// The names of all symbols and sections, each ended by a zero.
struct Names(Vec<u8>);

impl Names {
    /// Adds a name, and returns where it is.
    fn add(&mut self, name: &str) -> u32 {
        let at = self.0.len();
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(0);
        u32::try_from(at).unwrap_or(0)
    }
}

/// A section of the file.
#[derive(Clone, Copy, Default)]
struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    size: u64,
    link: u32,
    entry: u64,
}

impl Section {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.name.to_le_bytes());
        out.extend(self.kind.to_le_bytes());
        for word in [self.flags, self.address, self.offset, self.size] {
            out.extend(word.to_le_bytes());
        }
        out.extend(self.link.to_le_bytes());
        // The first symbol that is not local; no alignment.
        out.extend(1u32.to_le_bytes());
        out.extend(1u64.to_le_bytes());
        out.extend(self.entry.to_le_bytes());
    }
}

/// The bytes of the file.
pub(super) fn elf(program: &Program) -> Vec<u8> {
    let mut names = Names(vec![0]);
    let mut symbols = vec![0; SYMBOL as usize];
    for load in &program.loads {
        write_symbol(load, names.add(load.name), &mut symbols);
    }
    let [text, symtab, strtab] = [".text", ".symtab", ".strtab"].map(|name| names.add(name));
    let text_size = program.text.len() as u64;
    let symbols_at = TEXT + text_size;
    let names_at = symbols_at + symbols.len() as u64;
    let sections_at = names_at + names.0.len() as u64;
    let sections = [
        Section::default(),
        Section {
            name: text,
            kind: 1,
            // Allocated, executable.
            flags: 6,
            address: TEXT,
            offset: TEXT,
            size: text_size,
            ..Section::default()
        },
        Section {
            name: symtab,
            kind: 2,
            offset: symbols_at,
            size: symbols.len() as u64,
            link: 3,
            entry: SYMBOL,
            ..Section::default()
        },
        Section {
            name: strtab,
            kind: 3,
            offset: names_at,
            size: names.0.len() as u64,
            ..Section::default()
        },
    ];
    let mut out = headers(text_size, sections_at);
    out.resize(TEXT as usize, 0);
    out.extend_from_slice(&program.text);
    out.extend(symbols);
    out.extend(names.0);
    for section in &sections {
        section.write(&mut out);
    }
    out
}

/// A function that everybody sees, in section 1.
fn write_symbol(load: &Load, name: u32, out: &mut Vec<u8>) {
    let first = load.instructions.first().map_or(0, |it| it.bytes.start);
    let end = load.instructions.last().map_or(0, |it| it.bytes.end);
    out.extend(name.to_le_bytes());
    out.extend([0x12, 0, 1, 0]);
    out.extend((TEXT + first as u64).to_le_bytes());
    out.extend((end as u64).saturating_sub(first as u64).to_le_bytes());
}

/// The header of a shared object of four sections, and that of its one segment.
fn headers(text_size: u64, sections_at: u64) -> Vec<u8> {
    let mut out = b"\x7fELF\x02\x01\x01".to_vec();
    out.resize(16, 0);
    for half in [3u16, 62] {
        out.extend(half.to_le_bytes());
    }
    out.extend(1u32.to_le_bytes());
    for word in [0, u64::from(HEADER), sections_at] {
        out.extend(word.to_le_bytes());
    }
    out.extend(0u32.to_le_bytes());
    for half in [HEADER, SEGMENT, 1, SECTION, 4, 3] {
        out.extend(half.to_le_bytes());
    }
    // Loaded, readable and executable.
    out.extend(1u32.to_le_bytes());
    out.extend(5u32.to_le_bytes());
    for word in [TEXT, TEXT, TEXT, text_size, text_size, TEXT] {
        out.extend(word.to_le_bytes());
    }
    out
}

/// A mapped load. It takes its memory and the descriptor of /dev/zero, and gives nothing back.
pub(super) type Entry = extern "C" fn(*mut u8, libc::c_int);

/// The text of a program, mapped as long as this process lives.
pub(super) struct Mapped(Program);

impl Mapped {
    /// Maps the text at [`ADDRESS`], which it was assembled for, from a file that exists in memory alone.
    pub(super) fn new(program: Program) -> io::Result<Self> {
        let mut file = File::from(memfd_create("hbbp-selftest", MemfdFlags::CLOEXEC)?);
        file.write_all(&elf(&program))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE;
        let rights = libc::PROT_READ | libc::PROT_EXEC;
        // SAFETY: new pages, and not one that is in use: the call fails where there is any.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::without_provenance_mut(ADDRESS as usize),
                program.text.len(),
                rights,
                flags,
                file.as_raw_fd(),
                TEXT.cast_signed(),
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(program))
    }

    /// The loads, each with its entry.
    pub(super) fn loads(&self) -> impl Iterator<Item = (&Load, Entry)> {
        self.0.loads.iter().map(|load| {
            let first = load.instructions.first().map_or(0, |it| it.bytes.start);
            let at = std::ptr::without_provenance::<()>(ADDRESS as usize + first);
            // SAFETY: the text is mapped there, and each load is a function of this kind by its construction.
            (load, unsafe { std::mem::transmute::<*const (), Entry>(at) })
        })
    }
}
