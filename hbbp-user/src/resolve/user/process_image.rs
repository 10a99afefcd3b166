//! One program in one process, and what is mapped into it.
//!
//! A process runs several programs in its life: each is an image of its own, with a number that is unique in a run.

use std::ops::Range;
use std::sync::Arc;

use crate::addr::{FileOff, Va};
use crate::record::{FileIdentity, Mmap};

/// A compiler at run time may map without end; the oldest hidden mappings beyond this number are forgotten.
const MAX_MAPPINGS: usize = 8192;

/// A generation of a process: one program in one process. Unique over the whole run.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Generation(pub u64);

/// Index of a [`MappedFile`] in the index that gave it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FileIdx(pub u32);

/// What a mapping says of its file.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct MappedFile {
    /// Path as the process saw it, or the kernel's name for memory without a file.
    pub path: String,
    /// Device and inode, or build id.
    pub identity: FileIdentity,
}

/// What a mapping is made of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Backing {
    /// A file.
    File,
    /// The kernel's code page for processes.
    Vdso,
    /// Memory, with or without a name.
    Memory,
}

impl Backing {
    /// By the path of a mapping, as the kernel writes it: `//anon`, `[heap]`, `anon_inode:x` are memory.
    pub fn of(path: &str) -> Self {
        match path {
            "[vdso]" => Self::Vdso,
            path if path.starts_with('/') && !path.starts_with("//") => Self::File,
            _ => Self::Memory,
        }
    }
}

impl MappedFile {
    /// The file that a mapping names.
    pub fn of(mmap: &Mmap) -> Self {
        Self {
            path: mmap.path.clone(),
            identity: mmap.identity.clone(),
        }
    }

    /// What mappings of it are made of.
    pub fn backing(&self) -> Backing {
        Backing::of(&self.path)
    }
}

/// A mapping of a process image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ImageMapping {
    /// First address.
    pub start: Va,
    /// First address after it.
    pub end: Va,
    /// Offset in the file of the byte at `start`.
    pub offset: FileOff,
    /// What is mapped.
    pub file: FileIdx,
    /// Time of the mapping in ns; 0 where it was there before the run.
    pub from: u64,
}

/// One program in one process.
#[derive(Clone, Debug)]
pub struct ProcessImage {
    /// Its name in this index.
    pub generation: Generation,
    /// Command name, the last one seen.
    pub comm: Arc<str>,
    /// The process that created this one; 0 where that is unknown.
    pub(super) parent: u32,
    /// Since when, in ns.
    pub(super) from: u64,
    /// Tasks that are alive.
    pub(super) n_threads: u32,
    /// When its last task ended.
    pub(super) ended: Option<u64>,
    /// Sorted by (start, from).
    mappings: Arc<Vec<ImageMapping>>,
    /// Length of the longest mapping: none that starts farther back can hold an address.
    longest: u64,
}

impl ProcessImage {
    /// A program that starts at the time `from`, with nothing mapped.
    pub(super) fn new(generation: Generation, comm: Arc<str>, from: u64) -> Self {
        let mappings = Arc::default();
        Self {
            generation,
            comm,
            parent: 0,
            from,
            n_threads: 1,
            ended: None,
            mappings,
            longest: 0,
        }
    }

    /// The program of a forked child: that of its parent, with what is mapped there until one of them changes it.
    pub(super) fn child(&self, generation: Generation, parent: u32, from: u64) -> Self {
        Self {
            generation,
            parent,
            from,
            n_threads: 1,
            ended: None,
            ..self.clone()
        }
    }

    /// The mapping that the address `at` belonged to at `time`: the last one made, as it hides those before it.
    pub fn mapping_at(&self, at: Va, time: u64) -> Option<&ImageMapping> {
        let n_before = self.mappings.partition_point(|m| m.start <= at);
        let lowest = at.0.saturating_sub(self.longest);
        let near = self
            .mappings
            .iter()
            .take(n_before)
            .rev()
            .take_while(|m| lowest <= m.start.0);
        let holding = near.filter(|m| at < m.end && m.from <= time);
        holding.max_by_key(|m| m.from)
    }

    /// The addresses around `at` and the times around `time` for which [`Self::mapping_at`] is `mapping`, as it is there.
    pub(super) fn same_mapping(&self, mapping: &ImageMapping, at: Va, time: u64) -> (Range<Va>, Range<u64>) {
        let (mut addresses, mut until) = (mapping.start..mapping.end, u64::MAX);
        let n_before = self.mappings.partition_point(|m| m.start < mapping.end);
        let lowest = mapping.start.0.saturating_sub(self.longest);
        let near = self.mappings.iter().take(n_before).rev();
        let near = near.take_while(|m| lowest <= m.start.0);
        // What was made before it is hidden by it.
        for other in near.filter(|m| mapping.from <= m.from && *m != mapping) {
            if other.end <= at {
                addresses.start = addresses.start.max(other.end);
            } else if at < other.start {
                addresses.end = addresses.end.min(other.start);
            } else if time < other.from {
                until = until.min(other.from);
            } else {
                until = time;
            }
        }
        (addresses, mapping.from..until)
    }

    /// Its mappings, sorted by (start, from).
    pub fn mappings(&self) -> &[ImageMapping] {
        &self.mappings
    }

    /// Adds a mapping, unless it is what the newest one there says already.
    pub(super) fn add(&mut self, new: ImageMapping) {
        let same = |m: &ImageMapping| {
            m.start == new.start && m.end == new.end && m.offset == new.offset && m.file == new.file
        };
        if self.mapping_at(new.start, new.from).is_some_and(same) {
            return;
        }
        self.longest = self.longest.max(new.end.0 - new.start.0);
        let mappings = Arc::make_mut(&mut self.mappings);
        if MAX_MAPPINGS <= mappings.len() {
            forget_hidden(mappings);
        }
        let at = mappings.partition_point(|m| (m.start, m.from) <= (new.start, new.from));
        mappings.insert(at, new);
    }
}

/// Drops the mappings that later ones hide wholly, and the older half where that is not enough.
fn forget_hidden(mappings: &mut Vec<ImageMapping>) {
    let mut newest: Vec<ImageMapping> = Vec::new();
    // Of the mappings with one start the last stands last; hiding by a neighbour with another start is rare.
    for mapping in mappings.iter() {
        match newest.last_mut() {
            Some(last) if last.start == mapping.start && last.end <= mapping.end => *last = *mapping,
            _ => newest.push(*mapping),
        }
    }
    if MAX_MAPPINGS / 2 < newest.len() {
        let mut times: Vec<u64> = newest.iter().map(|m| m.from).collect();
        let (_, median, _) = times.select_nth_unstable(newest.len() / 2);
        newest.retain(|m| *median <= m.from || m.from == 0);
        newest.truncate(MAX_MAPPINGS - 1);
    }
    *mappings = newest;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_compiler_that_maps_without_end_is_bounded() {
        let mut image = ProcessImage::new(Generation(1), Arc::default(), 0);
        for n in 0..30_000_u64 {
            let start = Va(0x1000 * (n % 12_000));
            let mapping = ImageMapping {
                start,
                end: Va(start.0 + 0x1000),
                offset: FileOff(0),
                file: FileIdx(0),
                from: n,
            };
            image.add(ImageMapping {
                file: FileIdx(u32::try_from(n % 7).expect("small")),
                ..mapping
            });
        }
        assert!(image.mappings().len() <= MAX_MAPPINGS);
        assert!(image.mappings().is_sorted_by_key(|m| (m.start, m.from)));
        assert!(
            image.mapping_at(Va(0x1000 * (29_999 % 12_000)), 60_000).is_some(),
            "the last one stays"
        );
    }

    proptest! {
        /// What is said to hold for other addresses and times is what they are asked for anew.
        #[test]
        fn a_mapping_is_the_same_where_it_is_said_to_be(
            drawn in prop::collection::vec((0u64..12, 1u64..8, 0u64..4), 1..12),
            at in 0u64..20,
            time in 0u64..5,
        ) {
            let mut image = ProcessImage::new(Generation(1), Arc::default(), 0);
            for ((start, len, from), file) in drawn.into_iter().zip(0..) {
                image.add(ImageMapping {
                    start: Va(start),
                    end: Va(start + len),
                    offset: FileOff(0),
                    file: FileIdx(file),
                    from,
                });
            }
            if let Some(mapping) = image.mapping_at(Va(at), time) {
                let (addresses, times) = image.same_mapping(mapping, Va(at), time);
                prop_assert!(addresses.contains(&Va(at)));
                for at in addresses.start.0..addresses.end.0 {
                    for time in times.start..times.end.min(6) {
                        prop_assert_eq!(image.mapping_at(Va(at), time), Some(mapping), "{} at {}", at, time);
                    }
                }
            }
        }
    }
}
