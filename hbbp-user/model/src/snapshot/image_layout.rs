//! Where the text of a module lies in its file: found by whoever may open files, and handed on as data.
//!
//! | module | addresses of the snapshot | addresses of the file |
//! |---|---|---|
//! | program, shared object | ELF addresses | the same |
//! | kernel | run-time addresses | ELF addresses of vmlinux: the relocation of the boot (KASLR) is undone |
//! | kernel module | run-time addresses | section and offset in it; a module that was loaded twice has each section twice |

use crate::addr::{FileOff, ImageAddr};

/// The parts of a module that lie in its file.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ImageLayout {
    /// Sorted by start; they do not overlap.
    parts: Vec<FilePart>,
    /// Whether the file is relocatable, as `.ko` files are: its addresses are offsets in sections.
    is_relocatable: bool,
    /// Path of the file; empty if none was opened.
    path: String,
}

/// A part of a module, in one piece in memory and in the file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FilePart {
    /// Address of its first byte in the snapshot.
    pub start: ImageAddr,
    /// Length in bytes.
    pub len: u64,
    /// Its first byte in the terms of the file.
    pub linked: Linked,
    /// Whether it is mapped executable, by the file.
    pub executable: bool,
}

/// A location in the file of a module.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Linked {
    /// ELF address; in a relocatable file, offset in the section.
    pub addr: u64,
    /// Offset in the file; `None` if the file is not known.
    pub offset: Option<FileOff>,
    /// Name of the section, in a relocatable file.
    pub section: Option<String>,
}

impl ImageLayout {
    /// The layout of a file with addresses of its own, as programs and vmlinux have.
    pub fn linked(path: String, parts: Vec<FilePart>) -> Self {
        Self {
            parts: disjoint(parts),
            is_relocatable: false,
            path,
        }
    }

    /// The layout of a relocatable file.
    pub fn relocatable(path: String, parts: Vec<FilePart>) -> Self {
        Self {
            parts: disjoint(parts),
            is_relocatable: true,
            path,
        }
    }

    /// The layout of a module whose addresses are those of its file, where that need not be opened.
    pub fn same() -> Self {
        let linked = Linked {
            addr: 0,
            offset: None,
            section: None,
        };
        let part = FilePart {
            start: ImageAddr(0),
            len: u64::MAX,
            linked,
            executable: false,
        };
        Self::linked(String::new(), vec![part])
    }

    /// Whether addresses are offsets in sections.
    pub const fn is_relocatable(&self) -> bool {
        self.is_relocatable
    }

    /// Path of the file; empty if it need not be opened.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The parts that are mapped executable, sorted by start.
    pub fn executable(&self) -> impl Iterator<Item = &FilePart> {
        self.parts.iter().filter(|part| part.executable)
    }

    /// Whether nothing of the module was found in the file.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The location in the file of an address of the snapshot.
    pub fn find(&self, at: ImageAddr) -> Option<Linked> {
        let after = self.parts.partition_point(|part| part.start <= at);
        let part = self.parts.get(after.checked_sub(1)?)?;
        let from_start = at.since(part.start).filter(|from_start| *from_start < part.len)?;
        Some(Linked {
            addr: part.linked.addr.checked_add(from_start)?,
            offset: part
                .linked
                .offset
                .and_then(|offset| offset.0.checked_add(from_start).map(FileOff)),
            section: part.linked.section.clone(),
        })
    }

    /// The ELF address in the file; `None` also in a relocatable file, which has none.
    pub fn elf_addr(&self, at: ImageAddr) -> Option<u64> {
        if self.is_relocatable {
            return None;
        }
        self.find(at).map(|linked| linked.addr)
    }

    /// The offset in the file.
    pub fn file_off(&self, at: ImageAddr) -> Option<FileOff> {
        self.find(at)?.offset
    }
}

/// Sorts parts, and cuts each where the next begins.
fn disjoint(mut parts: Vec<FilePart>) -> Vec<FilePart> {
    parts.sort_by_key(|part| part.start);
    parts.dedup_by_key(|part| part.start);
    let starts: Vec<ImageAddr> = parts.iter().skip(1).map(|part| part.start).collect();
    for (part, next) in parts.iter_mut().zip(starts) {
        part.len = part.len.min(next.since(part.start).unwrap_or(0));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(start: u64, len: u64, section: &str, addr: u64, offset: u64) -> FilePart {
        let linked = Linked {
            addr,
            offset: Some(FileOff(offset)),
            section: Some(section.to_owned()),
        };
        FilePart {
            start: ImageAddr(start),
            len,
            linked,
            executable: true,
        }
    }

    #[test]
    fn module_loaded_twice_has_the_same_locations() {
        let layout = ImageLayout::relocatable(
            "m.ko".to_owned(),
            vec![
                part(0xffff_ffff_c000_0000, 0x100, ".text", 0, 0x40),
                part(0xffff_ffff_c000_0100, 0x20, ".text.unlikely", 0, 0x200),
                part(0xffff_ffff_c020_0000, 0x100, ".text", 0, 0x40),
            ],
        );
        let at = |addr| layout.find(ImageAddr(addr)).unwrap();
        assert_eq!(at(0xffff_ffff_c000_0010), at(0xffff_ffff_c020_0010));
        assert_eq!(at(0xffff_ffff_c000_0010).offset, Some(FileOff(0x50)));
        assert_eq!(
            at(0xffff_ffff_c000_0104).section.as_deref(),
            Some(".text.unlikely")
        );
        assert_eq!(layout.find(ImageAddr(0xffff_ffff_c000_0120)), None);
        assert_eq!(layout.elf_addr(ImageAddr(0xffff_ffff_c000_0010)), None);
    }

    #[test]
    fn parts_that_overlap_end_where_the_next_begins() {
        let layout = ImageLayout::relocatable(
            "m.ko".to_owned(),
            vec![part(0x1000, 0x100, "a", 0, 0), part(0x1080, 0x100, "b", 0, 0x400)],
        );
        let section = |addr| layout.find(ImageAddr(addr)).and_then(|linked| linked.section);
        assert_eq!(section(0x107f).as_deref(), Some("a"));
        assert_eq!(section(0x1080).as_deref(), Some("b"));
        assert_eq!(section(0x1180), None);
    }

    #[test]
    fn addresses_of_programs_are_their_own() {
        assert_eq!(
            ImageLayout::same().elf_addr(ImageAddr(0x40_1000)),
            Some(0x40_1000)
        );
        assert_eq!(ImageLayout::same().file_off(ImageAddr(0x40_1000)), None);
    }
}
