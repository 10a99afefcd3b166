//! Text that was mapped since records were applied last, so that it is noticed at once when a mapping replaces another one.
//!
//! Records are applied in the order of time, at a drain. A program that begins and has its libraries take turns until then would
//! be noticed too late.

use std::collections::{BTreeMap, HashSet};

use super::mapping::FileIdx;
use hbbp_model::addr::Va;
use hbbp_model::record::Mmap;

/// Mappings that are followed; of more, replacements are noticed when their records are applied.
const MAX_FRESH: usize = 1 << 14;

/// Mappings of all processes, and the processes whose older ones have gone.
#[derive(Debug, Default)]
pub(super) struct FreshMappings {
    /// By process and start.
    mapped: BTreeMap<(u32, Va), Fresh>,
    /// Those that started a program.
    execs: HashSet<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Fresh {
    end: Va,
    shows: Shown,
}

/// What a mapping shows at its addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Shown {
    /// A file, and the address of its first byte if it were mapped, modulo 2^64.
    File(FileIdx, u64),
    Memory,
}

/// What a mapping replaces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Before {
    /// What shows the same.
    Same,
    /// What shows something else, at least in part.
    Other,
    /// No fresh mapping covers all of it.
    Unknown,
}

impl FreshMappings {
    /// A process started a program, which has none of its mappings.
    pub(super) fn exec(&mut self, tgid: u32) {
        if self.execs.len() < MAX_FRESH {
            self.execs.insert(tgid);
        }
        let of_process = self.mapped.range((tgid, Va(0))..=(tgid, Va(u64::MAX)));
        let starts: Vec<(u32, Va)> = of_process.map(|(at, _)| *at).collect();
        for start in starts {
            self.mapped.remove(&start);
        }
    }

    /// Whether a process has the mappings that were known before.
    pub(super) fn keeps_older(&self, tgid: u32) -> bool {
        !self.execs.contains(&tgid)
    }

    /// Adds a mapping, of a file or of memory; what it replaces.
    pub(super) fn add(&mut self, mmap: &Mmap, file: Option<FileIdx>) -> Before {
        let end = Va(mmap.start.0.saturating_add(mmap.len));
        let base = mmap.start.0.wrapping_sub(mmap.offset.0);
        let shows = file.map_or(Shown::Memory, |file| Shown::File(file, base));
        let below = self.mapped.range((mmap.pid, Va(0))..(mmap.pid, end));
        let overlapping = below.rev().take_while(|(_, other)| mmap.start < other.end);
        let replaced: Vec<((u32, Va), Fresh)> = overlapping.map(|(at, other)| (*at, *other)).collect();
        let mut covered = 0;
        for (at, other) in &replaced {
            self.mapped.remove(at);
            covered += other.end.min(end).0 - at.1.max(mmap.start).0;
        }
        if self.mapped.len() < MAX_FRESH {
            self.mapped.insert((mmap.pid, mmap.start), Fresh { end, shows });
        }
        match replaced.iter().any(|(_, other)| other.shows != shows) {
            true => Before::Other,
            false if covered == mmap.len => Before::Same,
            false => Before::Unknown,
        }
    }

    /// Forgets all of it: the records were applied.
    pub(super) fn clear(&mut self) {
        self.mapped.clear();
        self.execs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::addr::FileOff;
    use hbbp_model::record::FileIdentity;

    fn map(pid: u32, start: u64, len: u64) -> Mmap {
        Mmap {
            pid,
            start: Va(start),
            len,
            offset: FileOff(0x1000),
            identity: FileIdentity::Unknown,
            shared: false,
            path: "".into(),
        }
    }

    #[test]
    fn another_file_at_the_same_addresses_replaces() {
        use Before::{Other, Same, Unknown};
        let (first, second) = (Some(FileIdx(1)), Some(FileIdx(2)));
        let mut fresh = FreshMappings::default();
        let mut add = |mmap, file| fresh.add(&mmap, file);
        assert_eq!(add(map(7, 0x10_0000, 0x3000), first), Unknown);
        assert_eq!(add(map(7, 0x10_3000, 0x1000), second), Unknown, "a neighbour");
        assert_eq!(add(map(8, 0x10_0000, 0x3000), second), Unknown, "another process");
        assert_eq!(add(map(7, 0x10_0000, 0x3000), first), Same);
        assert_eq!(add(map(7, 0x10_2000, 0x1000), second), Other, "a part");
        assert_eq!(add(map(7, 0x10_1000, 0x2000), first), Other, "and back");
        assert_eq!(add(map(8, 0x10_1000, 0x1000), None), Other, "memory");
        assert_eq!(add(map(8, 0x10_1000, 0x2000), None), Unknown, "more of it");
        assert_eq!(add(map(8, 0x10_1800, 0x800), None), Same, "less of it");
    }

    #[test]
    fn a_program_replaces_nothing_of_the_one_before() {
        let mut fresh = FreshMappings::default();
        fresh.add(&map(7, 0x10_0000, 0x3000), Some(FileIdx(1)));
        assert!(fresh.keeps_older(7));
        fresh.exec(7);
        assert!(!fresh.keeps_older(7) && fresh.keeps_older(8));
        let before = fresh.add(&map(7, 0x10_0000, 0x3000), Some(FileIdx(2)));
        assert_eq!(before, Before::Unknown);
        fresh.clear();
        assert!(fresh.keeps_older(7));
    }
}
