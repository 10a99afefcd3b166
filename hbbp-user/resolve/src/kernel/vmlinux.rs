//! The static kernel image from disk, the last resort where live text cannot be read.
//!
//! It lacks what the kernel patched into itself since, so the report says when it was used.
//! It must be the image of the running kernel: build ids are compared where both are known.
//! The kernel may run at another address than it was linked for; its first text byte says by how much.
//! Where only the boot image is installed, the image is unpacked from it.

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use object::elf::SHT_NOBITS;

use hbbp_model::addr::{ImageAddr, Va};

use super::boot_image::{BootImageError, unpack_boot_image};
use super::image_marks::ImageMarks;
use super::kallsyms::{HIDDEN, Kallsyms, parse_kallsyms};
use crate::debug_places::usual_places;
use crate::regular_file::{Refusal, open_own};
use hbbp_elf::byte_source::ByteSource;
use hbbp_elf::functions::{SymbolFile, read_functions};
use hbbp_elf::layout::{ElfError, ElfLayout, Section, read_layout};
use hbbp_model::snapshot::hex;

/// The tables of what is patched have less than 2 MiB.
const MAX_TABLE: usize = 64 << 20;

/// A vmlinux that fits the running kernel.
#[derive(Debug)]
pub struct Vmlinux {
    /// Where it was found.
    pub path: PathBuf,
    source: ByteSource,
    layout: ElfLayout,
    /// What must be added to its addresses.
    slide: u64,
}

/// Why a file is not the image of the running kernel.
#[derive(Debug)]
pub enum NotTheImage {
    /// It cannot be opened, or is not a regular file.
    Refused(Refusal),
    /// It is neither an ELF image nor a boot image.
    Layout(ElfError),
    /// It is a boot image that cannot be unpacked.
    Packed(BootImageError),
    /// It is the image of another kernel: this build id.
    Other(Vec<u8>),
    /// It has debug information only.
    Hollow,
    /// The kernel hides where it runs (`kernel.kptr_restrict`).
    Hidden,
}

impl fmt::Display for NotTheImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(Refusal::Missing) => f.write_str("does not exist"),
            Self::Refused(_) => f.write_str("is not a regular file, or permission is denied"),
            Self::Layout(error) => write!(f, "is neither a kernel image nor a boot image: {error}"),
            Self::Packed(error) => write!(f, "is {error}"),
            Self::Other(build_id) => write!(f, "is the image of another kernel, build id {}", hex(build_id)),
            Self::Hollow => f.write_str("has no text, only debug information"),
            Self::Hidden => write!(f, "cannot be compared: {HIDDEN}"),
        }
    }
}

/// Looks for the image of the kernel `release` with this build id (empty: unknown), which runs at `marks`.
/// `None` if there is none, or where the kernel hides where it runs.
pub(crate) fn open_vmlinux(release: &str, build_id: &[u8], marks: &ImageMarks) -> Option<Vmlinux> {
    find_vmlinux(release, build_id, marks).ok()
}

/// Looks for the image as [`open_vmlinux`] does; where there is none, says what was found at which path.
pub fn find_vmlinux(
    release: &str,
    build_id: &[u8],
    marks: &ImageMarks,
) -> Result<Vmlinux, Vec<(PathBuf, NotTheImage)>> {
    let mut refused = Vec::new();
    for path in usual_places(release, build_id) {
        match open_vmlinux_at(&path, build_id, marks) {
            Ok(vmlinux) => return Ok(vmlinux),
            Err(why) => refused.push((path, why)),
        }
    }
    Err(refused)
}

/// Opens one file as the image of the running kernel.
pub fn open_vmlinux_at(path: &Path, build_id: &[u8], marks: &ImageMarks) -> Result<Vmlinux, NotTheImage> {
    let mut source = open_own(path).map_err(NotTheImage::Refused)?.source;
    let layout = match read_layout(&source) {
        Err(ElfError::NotElf) => {
            source = match unpack_boot_image(&source) {
                Err(BootImageError::NotBootImage) => return Err(NotTheImage::Layout(ElfError::NotElf)),
                unpacked => unpacked.map_err(NotTheImage::Packed)?,
            };
            read_layout(&source)
        }
        layout => layout,
    }
    .map_err(NotTheImage::Layout)?;
    if !build_id.is_empty() && layout.build_id != build_id {
        return Err(NotTheImage::Other(layout.build_id));
    }
    let slide = slide(&layout, marks)?;
    Ok(Vmlinux {
        path: path.to_owned(),
        source,
        layout,
        slide,
    })
}

/// The difference between where the image runs and where it was linked.
fn slide(layout: &ElfLayout, marks: &ImageMarks) -> Result<u64, NotTheImage> {
    let executable = layout.segments.iter().filter(|s| s.executable && 0 < s.len);
    let first = executable.map(|s| s.start).min().ok_or(NotTheImage::Hollow)?;
    let is_hollow = layout
        .sections
        .iter()
        .any(|s| s.start == first && s.kind == SHT_NOBITS);
    if is_hollow {
        return Err(NotTheImage::Hollow);
    }
    let runs_at = marks.text.or(marks.stext).ok_or(NotTheImage::Hidden)?;
    Ok(runs_at.0.wrapping_sub(first.0))
}

impl Vmlinux {
    /// The functions of the image at the addresses where they run, in the form of the kernel's own table.
    pub(crate) fn read_symbols(&self) -> Kallsyms {
        let file = SymbolFile {
            source: &self.source,
            layout: &self.layout,
        };
        let functions = read_functions(file, &[]);
        let mut text = String::new();
        let mut last = None;
        for start in functions
            .starts()
            .filter(|start| last.replace(*start) != Some(*start))
        {
            let function = functions.read_function_at(start, &self.source, &[]);
            if let Some(function) = function.filter(|function| !function.name.is_empty()) {
                let runs_at = function.start.0.wrapping_add(self.slide);
                text.push_str(&format!("{runs_at:016x} t {}\n", function.name));
            }
        }
        parse_kallsyms(text.as_bytes())
    }

    /// Fills `bytes` with the text that was linked for the running address `at`.
    pub fn read(&self, at: Va, bytes: &mut [u8]) -> bool {
        let linked = ImageAddr(at.0.wrapping_sub(self.slide));
        let offset = self.layout.segment_at(linked).and_then(|segment| {
            let from_start = linked.since(segment.start)?;
            let end = from_start.checked_add(u64::try_from(bytes.len()).ok()?)?;
            (end <= segment.len).then(|| segment.offset.0.saturating_add(from_start))
        });
        offset.is_some_and(|offset| self.source.read_into(offset, bytes))
    }

    /// What must be added to linked addresses for those that run, modulo 2^64.
    pub fn slide(&self) -> u64 {
        self.slide
    }

    /// Build id of the image, empty where it has none.
    pub fn build_id(&self) -> &[u8] {
        &self.layout.build_id
    }

    /// The sections of this name, or whose names begin with it where it ends in `*`.
    pub fn sections<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Section> {
        let is_named = move |section: &&Section| {
            let own = self
                .layout
                .section_name(&self.source, section)
                .unwrap_or_default();
            match name.strip_suffix('*') {
                Some(stem) => own.starts_with(stem),
                None => own == name,
            }
        };
        let in_file = self.layout.sections.iter().filter(|s| s.kind != SHT_NOBITS);
        in_file.filter(is_named)
    }

    /// The bytes of a section as they were linked.
    pub fn read_section(&self, section: &Section) -> Option<Vec<u8>> {
        self.source.read(section.offset.0, section.len)
    }

    /// Reads `len` bytes from the linked address `at` on.
    pub(crate) fn read_linked(&self, at: ImageAddr, len: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(len).ok().filter(|len| *len <= MAX_TABLE)?];
        self.read(Va(at.0.wrapping_add(self.slide)), &mut bytes)
            .then_some(bytes)
    }

    /// Writes a new file: this image, with `text` instead of the bytes of `section`.
    pub fn write_patched(&self, path: &Path, section: &Section, text: &[u8]) -> io::Result<()> {
        /// Images with debug information have hundreds of MiB.
        const CHUNK: u64 = 1 << 20;

        let mut file = File::create_new(path)?;
        let mut at = 0;
        while at < self.source.len() {
            let len = CHUNK.min(self.source.len() - at);
            let bytes = self.source.read(at, len).ok_or(io::ErrorKind::UnexpectedEof)?;
            file.write_all(&bytes)?;
            at += len;
        }
        file.write_all_at(text, section.offset.0)?;
        file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_elf::layout::{ElfClass, Section, Segment};
    use hbbp_model::addr::FileOff;

    fn image(sections: Vec<Section>) -> Vmlinux {
        // readelf -l of Debian's vmlinux 6.1: the text segment is linked for 0xffffffff81000000 at offset 0x200000.
        let text = Segment {
            offset: FileOff(4),
            start: ImageAddr(0xffff_ffff_8100_0000),
            len: 8,
            executable: true,
        };
        let layout = ElfLayout {
            section_names: None,
            debug_link: None,
            class: ElfClass::X86_64,
            build_id: vec![1; 20],
            segments: vec![text],
            sections,
            eh_frame_hdr: None,
        };
        let source = ByteSource::Memory(vec![0, 0, 0, 0, 0x90, 0xc3, 1, 2, 3, 4, 5, 6]);
        Vmlinux {
            path: PathBuf::new(),
            source,
            layout,
            slide: 0,
        }
    }

    #[test]
    fn a_kernel_that_was_moved_is_read_at_its_new_address() {
        let marks = ImageMarks {
            text: Some(Va(0xffff_ffff_a620_0000)),
            ..ImageMarks::default()
        };
        let mut vmlinux = image(Vec::new());
        vmlinux.slide = slide(&vmlinux.layout, &marks).expect("both are known");
        let mut bytes = [0; 2];
        assert!(vmlinux.read(Va(0xffff_ffff_a620_0000), &mut bytes));
        assert_eq!(bytes, [0x90, 0xc3]);
        assert!(
            !vmlinux.read(Va(0xffff_ffff_a620_0007), &mut bytes),
            "past the segment"
        );
        assert!(!vmlinux.read(Va(0xffff_ffff_8100_0000), &mut bytes));
        let hidden = slide(&vmlinux.layout, &ImageMarks::default());
        assert!(matches!(hidden, Err(NotTheImage::Hidden)));
    }

    #[test]
    fn debug_files_without_text_are_no_images() {
        let start = ImageAddr(0xffff_ffff_8100_0000);
        let text = Section {
            kind: SHT_NOBITS,
            offset: FileOff(0),
            start,
            len: 8,
            link: 0,
            name: 0,
            executable: true,
        };
        let marks = ImageMarks {
            text: Some(Va(start.0)),
            ..ImageMarks::default()
        };
        let hollow = slide(&image(vec![text]).layout, &marks);
        assert!(matches!(hollow, Err(NotTheImage::Hollow)));
    }

    #[test]
    fn files_that_are_no_images_of_this_kernel_are_refused() {
        let null = open_vmlinux_at(Path::new("/dev/null"), &[], &ImageMarks::default());
        assert!(matches!(null, Err(NotTheImage::Refused(_))));
        let own = open_vmlinux_at(Path::new("/proc/self/exe"), &[1], &ImageMarks::default());
        assert!(matches!(own, Err(NotTheImage::Other(_))));
    }
}
