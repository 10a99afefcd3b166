//! Mappings that are known already: what /proc shows of processes that are in the index, and text that is mapped again.
//!
//! /proc and records describe one mapping differently: by inode or build id, in one part or several, and memory under
//! other names.

use std::collections::HashSet;
use std::mem;
use std::sync::Arc;

use super::fresh_mappings::Before;
use super::mapping::{Backing, ImageMapping};
use super::proc_scan::Scanned;
use super::process_image::ProcessImage;
use super::process_index::{ProcessIndex, Remapped};
use hbbp_model::addr::{FileOff, Va};
use hbbp_model::record::Mmap;

/// Mappings of the same text again that are noted between two drains.
const MAX_REMAPPED: usize = 4096;
/// Parts that what /proc shows as one mapping may consist of.
const MAX_PARTS: usize = 1024;

impl ProcessIndex {
    /// Applies what /proc shows of a process, as of `time` (0: since before the run).
    /// A process that is known already keeps its image and gains the mappings that it lacks, unless it runs another
    /// program by now: then the record of its exec was lost.
    /// A process that has ended and is waited for has no mappings any more, and is not another program.
    pub(crate) fn scanned(&mut self, scanned: &Scanned, time: u64) {
        let tgid = scanned.tgid;
        if scanned.mappings.is_empty() && self.processes.contains_key(&tgid) {
            return;
        }
        let live = self.live(tgid);
        if live.is_none_or(|image| self.is_other_program(image, scanned)) {
            let comm = Arc::from(scanned.comm.as_str());
            let mut image = ProcessImage::new(self.next_generation(), comm, time);
            image.parent = scanned.parent;
            image.n_threads = scanned.n_threads;
            self.insert(tgid, image);
        }
        for mmap in &scanned.mappings {
            let live = self.live(tgid);
            if !live.is_some_and(|image| self.is_mapped(image, mmap)) {
                self.map(mmap, time);
            }
        }
    }

    /// The same after records were lost: what is not mapped any more is hidden from now on, and tasks are counted anew.
    pub(crate) fn scanned_again(&mut self, scanned: &Scanned, time: u64) {
        self.scanned(scanned, time);
        if let Some(image) = self.image_at_mut(scanned.tgid, u64::MAX) {
            if scanned.whole {
                image.retain_mapped(&scanned.mappings, scanned.at);
            }
            image.n_threads = scanned.n_threads;
            image.counted = scanned.at;
            if *image.comm != *scanned.comm {
                image.comm = Arc::from(scanned.comm.as_str());
            }
        }
    }

    /// Ends, at `time`, the processes that are not among those that live: the records of their ends were lost.
    pub(crate) fn end_others(&mut self, live: &HashSet<u32>, time: u64) {
        let others = self.processes.iter_mut().filter(|(tgid, _)| !live.contains(tgid));
        for image in others.filter_map(|(_, images)| images.last_mut()) {
            if image.from < time {
                image.ended.get_or_insert(time);
            }
        }
    }

    /// Whether none of the files that a process maps now is where the image has it.
    fn is_other_program(&self, image: &ProcessImage, scanned: &Scanned) -> bool {
        let is_file = |m: &ImageMapping| self.file(m.file).is_some_and(|f| f.backing() == Backing::File);
        let mut now = scanned
            .mappings
            .iter()
            .filter(|mmap| Backing::of(&mmap.path) == Backing::File)
            .peekable();
        let stands = |mmap: &Mmap| {
            let there = image.mapping_at(mmap.start, u64::MAX);
            there.is_some_and(|there| self.is_same(there, mmap))
        };
        now.peek().is_some() && image.mappings().any(is_file) && !now.any(stands)
    }

    /// Whether all of a mapping is visible in an image, perhaps in several parts.
    fn is_mapped(&self, image: &ProcessImage, mmap: &Mmap) -> bool {
        let end = Va(mmap.start.0.saturating_add(mmap.len));
        let mut at = mmap.start;
        for _ in 0..MAX_PARTS {
            match image.visible_at(at, u64::MAX) {
                Some(visible) if self.is_same(visible.mapping, mmap) => at = visible.at.end,
                _ => return false,
            }
            if end <= at {
                return true;
            }
        }
        false
    }

    /// Whether a mapping shows at its addresses what `mmap` does: the same part of the same file, or memory.
    fn is_same(&self, mapping: &ImageMapping, mmap: &Mmap) -> bool {
        let Some(file) = self.file(mapping.file) else {
            return false;
        };
        let base = |start: Va, offset: FileOff| start.0.wrapping_sub(offset.0);
        match (file.backing(), Backing::of(&mmap.path)) {
            (Backing::File, Backing::File) => {
                file.may_be(&mmap.path, &mmap.identity)
                    && base(mapping.start, mapping.offset) == base(mmap.start, mmap.offset)
            }
            (known, new) => known == new,
        }
    }

    /// What a mapping, made at `time`, replaces: another one has gone without a record.
    pub(super) fn before(&self, mmap: &Mmap, time: u64) -> Before {
        let Some(image) = self.image_at(mmap.pid, time) else {
            return Before::Unknown;
        };
        let range = mmap.start..Va(mmap.start.0.saturating_add(mmap.len));
        let mut earlier = image.within(&range).filter(|mapping| mapping.from <= time);
        if earlier.any(|before| !self.is_same(before, mmap)) {
            return Before::Other;
        }
        match image.mapping_at(mmap.start, time) {
            Some(_) => Before::Same,
            None => Before::Unknown,
        }
    }

    /// Notes that text is mapped where text was mapped before, the same or another one. Call it before the mapping is added.
    pub(super) fn note_before(&mut self, mmap: &Mmap, time: u64) {
        match self.before(mmap, time) {
            Before::Same if may_be_patched(mmap) && self.remapped.len() < MAX_REMAPPED => {
                if let Some(image) = self.image_at(mmap.pid, time) {
                    let end = Va(mmap.start.0.saturating_add(mmap.len));
                    let (generation, at) = (image.generation, mmap.start..end);
                    self.remapped.push(Remapped { generation, at, time });
                }
            }
            Before::Other if self.replaced.len() < MAX_REMAPPED => self.replaced.push(time),
            _ => {}
        }
    }

    /// When mappings replaced others since the last call.
    pub(crate) fn take_replaced(&mut self) -> Vec<u64> {
        mem::take(&mut self.replaced)
    }

    /// The text that was mapped again since the last call, in the order of the records.
    pub(crate) fn take_remapped(&mut self) -> Vec<Remapped> {
        mem::take(&mut self.remapped)
    }
}

/// Whether a process that maps this again may have written to it in between: a private mapping of a file.
pub(super) fn may_be_patched(mmap: &Mmap) -> bool {
    !mmap.shared && Backing::of(&mmap.path) == Backing::File
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::record::{BuildId, FileIdentity, Record, Timed};

    fn map(start: u64, len: u64, path: &str) -> Mmap {
        Mmap {
            pid: 1,
            start: Va(start),
            len,
            offset: FileOff(start & 0xf_ffff),
            identity: FileIdentity::Unknown,
            shared: false,
            path: path.into(),
        }
    }

    fn scanned(mappings: Vec<Mmap>) -> Scanned {
        Scanned {
            tgid: 1,
            comm: "sh".to_owned(),
            parent: 0,
            n_threads: 3,
            at: 100,
            mappings,
            whole: true,
        }
    }

    fn path_at(index: &ProcessIndex, time: u64, at: u64) -> Option<&str> {
        let mapping = index.image_at(1, time)?.mapping_at(Va(at), time)?;
        Some(&index.file(mapping.file)?.path)
    }

    fn apply(index: &mut ProcessIndex, time: u64, record: Record) {
        index.apply(&Timed { time, record });
    }

    #[test]
    fn what_is_scanned_again_adds_what_is_missing() {
        let mut index = ProcessIndex::default();
        let shell = map(0x10_0000, 0x1000, "/bin/sh");
        index.scanned(&scanned(vec![shell.clone()]), 0);
        // The same by another name of its identity.
        let identity = FileIdentity::BuildId(BuildId::new(&[1]).unwrap());
        let same = Mmap {
            identity,
            ..shell.clone()
        };
        index.scanned(&scanned(vec![same]), 50);
        let n_mappings = |index: &ProcessIndex| index.image_at(1, 99).map(|image| image.mappings().count());
        assert_eq!(n_mappings(&index), Some(1));
        index.scanned(&scanned(vec![shell, map(0x90_0000, 0x1000, "/lib/a")]), 70);
        assert_eq!(n_mappings(&index), Some(2));
        assert_eq!(path_at(&index, 60, 0x90_0000), None);
        assert_eq!(path_at(&index, 80, 0x90_0000), Some("/lib/a"));
    }

    #[test]
    fn lost_records_of_an_exec_and_an_end_are_made_up_for() {
        let mut index = ProcessIndex::default();
        index.scanned(&scanned(vec![map(0x10_0000, 0x1000, "/bin/sh")]), 0);
        index.scanned_again(&scanned(vec![map(0x20_0000, 0x1000, "/bin/cc")]), 50);
        assert_eq!(path_at(&index, 40, 0x10_0000), Some("/bin/sh"));
        assert_eq!(path_at(&index, 60, 0x20_0000), Some("/bin/cc"));
        assert_eq!(path_at(&index, 60, 0x10_0000), None, "another program");
        // A task that began before it was counted is not counted twice.
        let fork = Record::Fork {
            pid: 1,
            tid: 9,
            parent_pid: 1,
        };
        apply(&mut index, 90, fork);
        assert_eq!(index.live(1).map(|image| image.n_threads), Some(3));
        index.end_others(&HashSet::from([1]), 200);
        assert!(index.live(1).is_some());
        index.end_others(&HashSet::new(), 200);
        assert!(index.live(1).is_none());
    }

    #[test]
    fn what_ended_and_is_waited_for_keeps_its_mappings() {
        let mut index = ProcessIndex::default();
        index.scanned(&scanned(vec![map(0x10_0000, 0x1000, "/bin/sh")]), 0);
        index.end_others(&HashSet::new(), 90);
        // /proc still has it; its samples of before are looked up.
        for scan in [ProcessIndex::scanned, ProcessIndex::scanned_again] {
            scan(&mut index, &scanned(Vec::new()), 40);
            assert_eq!(path_at(&index, 60, 0x10_0000), Some("/bin/sh"));
        }
    }

    #[test]
    fn what_is_not_mapped_any_more_is_hidden() {
        let mut index = ProcessIndex::default();
        let all = [
            map(0x10_0000, 0x1000, "/bin/sh"),
            map(0x20_0000, 0x1000, "//anon"),
        ];
        index.scanned(&scanned(all.to_vec()), 0);
        index.scanned_again(&scanned(all[..1].to_vec()), 50);
        assert_eq!(path_at(&index, 40, 0x20_0000), Some("//anon"));
        assert_eq!(path_at(&index, 100, 0x20_0000), None);
        assert_eq!(path_at(&index, 100, 0x10_0000), Some("/bin/sh"));
    }

    #[test]
    fn only_the_same_text_at_its_address_is_mapped_again() {
        let mut index = ProcessIndex::default();
        index.scanned(&scanned(vec![map(0x10_0000, 0x3000, "/bin/sh")]), 0);
        let records = [
            map(0x10_1000, 0x1000, "/bin/sh"),
            map(0x10_1000, 0x1000, "/bin/ls"),
            map(0x50_0000, 0x1000, "/bin/sh"),
            map(0x10_1000, 0x1000, "//anon"),
            // What others write to it shows without another mapping.
            Mmap {
                shared: true,
                ..map(0x10_2000, 0x1000, "/bin/sh")
            },
        ];
        for (mmap, time) in records.into_iter().zip(7..) {
            apply(&mut index, time, Record::Mmap(mmap));
        }
        let noted: Vec<_> = index
            .take_remapped()
            .into_iter()
            .map(|r| (r.at, r.time))
            .collect();
        assert_eq!(noted, [(Va(0x10_1000)..Va(0x10_2000), 7)]);
        assert!(index.take_remapped().is_empty());
    }
}
