//! The static kernel image from disk, the last resort where live text cannot be read.
//!
//! It lacks what the kernel patched into itself since, so the report says when it was used.
//! It must be the image of the running kernel: build ids are compared where both are known.
//! The kernel may run at another address than it was linked for; its first text byte tells by how much.

use std::path::{Path, PathBuf};

use object::elf::SHT_NOBITS;

use crate::addr::{ImageAddr, Va};

use super::build_id::hex;
use super::elf::{ElfLayout, read_layout};
use super::functions::{SymbolFile, read_functions};
use super::kallsyms::{ImageMarks, Kallsyms, parse_kallsyms};
use super::mapped_file::open_own;
use super::source::ByteSource;

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

/// Where distributions put the uncompressed image and its debug file.
fn usual_places(release: &str, build_id: &[u8]) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = [
        format!("/boot/vmlinux-{release}"),
        format!("/lib/modules/{release}/vmlinux"),
        format!("/lib/modules/{release}/build/vmlinux"),
        format!("/usr/lib/debug/boot/vmlinux-{release}"),
        format!("/usr/lib/debug/lib/modules/{release}/vmlinux"),
    ]
    .map(PathBuf::from)
    .to_vec();
    places.extend(debug_file_place(build_id));
    places
}

/// Where the debug file of a build id lies (gdb's convention).
pub fn debug_file_place(build_id: &[u8]) -> Option<PathBuf> {
    let digits = hex(build_id);
    let (first, rest) = digits.split_at_checked(2).filter(|(_, rest)| !rest.is_empty())?;
    Some(
        Path::new("/usr/lib/debug/.build-id")
            .join(first)
            .join(format!("{rest}.debug")),
    )
}

/// Looks for the image of the kernel `release` with this build id (empty: unknown), which runs at `marks`.
/// `None` where there is none, or where the kernel hides where it runs.
pub fn open_vmlinux(release: &str, build_id: &[u8], marks: &ImageMarks) -> Option<Vmlinux> {
    usual_places(release, build_id)
        .iter()
        .find_map(|path| open_vmlinux_at(path, build_id, marks))
}

/// Opens one file as the image of the running kernel; `None` where it is not.
pub fn open_vmlinux_at(path: &Path, build_id: &[u8], marks: &ImageMarks) -> Option<Vmlinux> {
    let source = open_own(path).ok()?.source;
    let layout = read_layout(&source).ok()?;
    let same = build_id.is_empty() || layout.build_id == build_id;
    let slide = slide(&layout, marks).filter(|_| same)?;
    Some(Vmlinux {
        path: path.to_owned(),
        source,
        layout,
        slide,
    })
}

/// The difference between where the image runs and where it was linked; `None` where it has no text of its own.
fn slide(layout: &ElfLayout, marks: &ImageMarks) -> Option<u64> {
    let first = layout
        .segments
        .iter()
        .filter(|s| s.executable && 0 < s.len)
        .map(|s| s.start)
        .min()?;
    let is_hollow = layout
        .sections
        .iter()
        .any(|s| s.start == first && s.kind == SHT_NOBITS);
    let runs_at = marks.text.or(marks.stext)?;
    (!is_hollow).then_some(runs_at.0.wrapping_sub(first.0))
}

impl Vmlinux {
    /// The functions of the image at the addresses where they run, in the form of the kernel's own table.
    pub fn read_symbols(&self) -> Kallsyms {
        let file = SymbolFile {
            source: &self.source,
            layout: &self.layout,
        };
        let functions = read_functions(file, None);
        let mut text = String::new();
        let mut last = None;
        for start in functions
            .starts()
            .filter(|start| last.replace(*start) != Some(*start))
        {
            if let Some(function) = functions.read_function_at(start, &self.source, None) {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::FileOff;
    use crate::resolve::elf::{ElfClass, Section, Segment};

    fn image(sections: Vec<Section>) -> Vmlinux {
        // readelf -l of Debian's vmlinux 6.1: the text segment is linked for 0xffffffff81000000 at offset 0x200000.
        let text = Segment {
            offset: FileOff(4),
            start: ImageAddr(0xffff_ffff_8100_0000),
            len: 8,
            executable: true,
        };
        let layout = ElfLayout {
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
        assert_eq!(
            slide(&vmlinux.layout, &ImageMarks::default()),
            None,
            "hidden symbols"
        );
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
            holds_names: false,
        };
        let marks = ImageMarks {
            text: Some(Va(start.0)),
            ..ImageMarks::default()
        };
        assert_eq!(slide(&image(vec![text]).layout, &marks), None);
    }

    #[test]
    fn places() {
        let debug = Path::new("/usr/lib/debug/.build-id/ab/0102.debug");
        assert_eq!(debug_file_place(&[0xab, 1, 2]).as_deref(), Some(debug));
        assert_eq!(debug_file_place(&[]), None);
        assert_eq!(usual_places("6.1", &[]).len(), 5);
        assert!(open_vmlinux_at(Path::new("/dev/null"), &[], &ImageMarks::default()).is_none());
    }
}
