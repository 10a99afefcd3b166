//! The live kernel's memory through /proc/kcore, an ELF core file of the running machine.
//!
//! Text is in the segments of the kernel image and of the module area. Of the others (all of RAM), whose reading as a whole could
//! touch device memory, only structures are read that the kernel itself points to.
//! Whether we may read is decided when it is opened; holes read as zeros.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::LittleEndian;
use object::elf::{self, FileHeader64, ProgramHeader64};
use object::pod;

use super::kernel_file::KernelFile;
use super::vmcoreinfo::{Vmcoreinfo, find_vmcoreinfo};
use hbbp_model::addr::{Ring, Va};

use hbbp_elf::byte_source::ByteSource;
use hbbp_elf::layout::read_table;

/// Start of the kernel image area; the module area follows it (Documentation/arch/x86/x86_64/mm.rst).
pub(crate) const TEXT_AREA: u64 = 0xffff_ffff_8000_0000;
const MAX_SEGMENTS: u16 = 4096;
/// Notes are longer than the kernel's own description of itself (a page) by a copy of the reader's task with its registers.
const MAX_NOTES: u64 = 1 << 20;

/// An open /proc/kcore.
#[derive(Debug)]
pub struct Kcore {
    file: File,
    segments: Vec<CoreSegment>,
    /// The other segments.
    data: Vec<CoreSegment>,
    /// Offset and length of the notes.
    notes: Option<(u64, u64)>,
}

/// A part of the kernel's memory in the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct CoreSegment {
    /// First address.
    pub start: Va,
    /// Length in bytes.
    pub len: u64,
    /// Offset in the file.
    pub offset: u64,
}

/// Opens /proc/kcore; needs CAP_SYS_RAWIO and a kernel that is not locked down to confidentiality.
pub fn open_kcore() -> io::Result<Kcore> {
    with_segments(KernelFile::Memory.open()?, Path::new("/proc/kcore"))
}

/// Opens a copy of /proc/kcore, as perf makes one of its text.
pub(crate) fn open_kcore_at(path: &Path) -> io::Result<Kcore> {
    with_segments(File::open(path)?, path)
}

fn with_segments(file: File, path: &Path) -> io::Result<Kcore> {
    // The size that stat shows is that of the address space; headers are at the start.
    let source = ByteSource::File(file, u64::MAX);
    let headers = read_headers(&source).unwrap_or_default();
    let (segments, data) = load_segments(&headers)
        .into_iter()
        .partition::<Vec<_>, _>(|segment| TEXT_AREA <= segment.start.0);
    match source {
        ByteSource::File(file, _) if !segments.is_empty() => Ok(Kcore {
            file,
            segments,
            data,
            notes: notes(&headers),
        }),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} has no kernel text segment", path.display()),
        )),
    }
}

type Header = ProgramHeader64<LittleEndian>;

/// Reads the program headers of a core file.
fn read_headers(source: &ByteSource) -> Option<Vec<Header>> {
    let le = LittleEndian;
    let head = source.read(0, 64)?;
    let (head, _) = pod::from_bytes::<FileHeader64<LittleEndian>>(&head).ok()?;
    let is_core = head.e_ident.magic == elf::ELFMAG
        && head.e_ident.class == elf::ELFCLASS64
        && head.e_type.get(le) == elf::ET_CORE
        && head.e_machine.get(le) == elf::EM_X86_64;
    let n_segments = head.e_phnum.get(le);
    if !is_core || MAX_SEGMENTS < n_segments {
        return None;
    }
    read_table(source, head.e_phoff.get(le), usize::from(n_segments))
}

/// The segments of the kernel's memory.
fn load_segments(headers: &[Header]) -> Vec<CoreSegment> {
    let le = LittleEndian;
    let loads = headers.iter().filter(|h| h.p_type.get(le) == elf::PT_LOAD);
    let segments = loads.map(|h| CoreSegment {
        start: Va(h.p_vaddr.get(le)),
        len: h.p_filesz.get(le),
        offset: h.p_offset.get(le),
    });
    let ends =
        |s: &CoreSegment| s.start.checked_add(s.len).is_some() && s.offset.checked_add(s.len).is_some();
    segments
        .filter(|s| s.start.ring() == Ring::Kernel && 0 < s.len && ends(s))
        .collect()
}

/// Offset and length of the notes.
fn notes(headers: &[Header]) -> Option<(u64, u64)> {
    let le = LittleEndian;
    let header = headers.iter().find(|h| h.p_type.get(le) == elf::PT_NOTE)?;
    Some((header.p_offset.get(le), header.p_filesz.get(le)))
}

impl Kcore {
    /// Fills `bytes` with the memory from `at` on; `false` if it is not all in one segment or cannot be read.
    pub(crate) fn read(&self, at: Va, bytes: &mut [u8]) -> bool {
        offset_of(&self.segments, at, bytes.len())
            .is_some_and(|offset| self.file.read_exact_at(bytes, offset).is_ok())
    }

    /// The same for a structure that the kernel points to, wherever it is.
    pub(super) fn read_structure(&self, at: Va, bytes: &mut [u8]) -> bool {
        let offset = offset_of(&self.segments, at, bytes.len());
        let offset = offset.or_else(|| offset_of(&self.data, at, bytes.len()));
        offset.is_some_and(|offset| self.file.read_exact_at(bytes, offset).is_ok())
    }

    /// What the kernel says of itself in a note; `None` if it has none, as copies of perf.
    pub(super) fn vmcoreinfo(&self) -> Option<Vmcoreinfo> {
        let (offset, len) = self.notes.filter(|(_, len)| *len <= MAX_NOTES)?;
        let mut notes = vec![0; usize::try_from(len).ok()?];
        self.file.read_exact_at(&mut notes, offset).ok()?;
        Vmcoreinfo::parse(find_vmcoreinfo(&notes)?)
    }

    /// Where the kernel image lies, which kcore shows even where symbols are hidden: its first text segment.
    pub(crate) fn image(&self) -> Option<(Va, Va)> {
        let first = self.segments.iter().min_by_key(|s| s.start)?;
        Some((first.start, first.start.checked_add(first.len)?))
    }
}

fn offset_of(segments: &[CoreSegment], at: Va, len: usize) -> Option<u64> {
    let len = u64::try_from(len).ok()?;
    segments.iter().find_map(|s| {
        let from_start = at.since(s.start)?;
        let fits = from_start.checked_add(len)? <= s.len;
        fits.then_some(s.offset + from_start)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program headers of Debian's 6.1 as `readelf -l /proc/kcore` shows them.
    fn core(segments: &[(u64, u64, u64)]) -> Vec<u8> {
        let mut out = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
        out.resize(16, 0);
        out.extend(4_u16.to_le_bytes());
        out.extend(62_u16.to_le_bytes());
        out.extend(1_u32.to_le_bytes());
        for word in [0, 64_u64, 0] {
            out.extend(word.to_le_bytes());
        }
        out.extend(0_u32.to_le_bytes());
        for half in [64, 56, u16::try_from(segments.len()).expect("few"), 0, 0, 0] {
            out.extend(half.to_le_bytes());
        }
        for (start, len, offset) in segments {
            out.extend(1_u32.to_le_bytes());
            out.extend(7_u32.to_le_bytes());
            for word in [*offset, *start, u64::MAX, *len, *len, 4096] {
                out.extend(word.to_le_bytes());
            }
        }
        out
    }

    const TEXT: (u64, u64, u64) = (0xffff_ffff_a620_0000, 0x2e3_4000, 0x7fff_a620_3000);
    const MODULES: (u64, u64, u64) = (0xffff_ffff_c000_0000, 0x3f00_0000, 0x7fff_c000_3000);
    const RAM: (u64, u64, u64) = (0xffff_9c0f_0000_0000, 0x4000_0000, 0x1c0f_0000_3000);

    #[test]
    fn text_segments_and_their_offsets() {
        let source = ByteSource::Memory(core(&[RAM, TEXT, MODULES]));
        let segments = load_segments(&read_headers(&source).expect("a core file"));
        assert_eq!(segments.len(), 3);
        let segments = &segments[1..];
        assert_eq!(offset_of(segments, Va(TEXT.0 + 0x10), 16), Some(0x7fff_a620_3010));
        assert_eq!(offset_of(segments, Va(TEXT.0 + TEXT.1 - 8), 16), None);
        assert_eq!(offset_of(segments, Va(RAM.0), 16), None);
    }

    #[test]
    fn hostile_headers() {
        let odd = [
            (u64::MAX - 1, 9, 0),
            (TEXT_AREA, u64::MAX, 0),
            (TEXT_AREA, 1, u64::MAX),
            (TEXT_AREA, 0, 0),
        ];
        let headers = read_headers(&ByteSource::Memory(core(&odd))).expect("a core file");
        assert_eq!(load_segments(&headers), Vec::new());
        let mut lying = core(&[TEXT]);
        lying[56..58].copy_from_slice(&99_u16.to_le_bytes());
        assert!(read_headers(&ByteSource::Memory(lying.clone())).is_none());
        lying[56..58].copy_from_slice(&u16::MAX.to_le_bytes());
        assert!(read_headers(&ByteSource::Memory(lying)).is_none());
        assert!(read_headers(&ByteSource::Memory(vec![0; 64])).is_none());
    }

    #[test]
    fn this_machine() {
        match open_kcore() {
            Ok(kcore) => {
                let (start, _) = kcore.image().expect("an image");
                let mut bytes = [0; 64];
                assert!(kcore.read(start, &mut bytes));
            }
            Err(error) => println!("skipped: /proc/kcore cannot be opened here: {error}"),
        }
    }
}
