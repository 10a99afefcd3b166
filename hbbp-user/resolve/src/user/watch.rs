//! Notices between two drains that memory changed which has no records: code caches of compilers.
//!
//! Counts have only the time of their first sample, so the sooner a change is followed by a drain, the fewer of them are
//! taken for the other bytes.

use super::image_set::ImageSet;
use super::process_memory::ProcessMemory;
use super::space::{Origin, UserSpace};

/// Images that are read at one time, and their bytes: some tens of microseconds, twenty times a second.
const MAX_IMAGES: usize = 16;
const MAX_BYTES: usize = 128 << 10;

/// How far memory was watched.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The image to begin with.
    next: usize,
    /// Whether the last look saw everything that may change, so that what changes later is newer than that.
    saw_all: bool,
}

impl UserSpace {
    /// Looks whether memory or shared files that were hit have changed since they were read.
    pub fn has_memory_changed(&mut self) -> bool {
        let Origin::Live(live) = &mut self.origin else {
            return false;
        };
        self.images.notice_writes();
        let index = &self.index;
        let is_live = |tgid, generation| index.is_live(tgid, Some(generation));
        let changing = self.images.changing(is_live);
        let has_changed = live.watch.look(&changing, &self.images, &mut live.memory);
        // Process ids may be used again until the next time.
        live.memory.close();
        has_changed
    }

    /// Whether the last look saw everything that may change.
    pub fn is_watched(&self) -> bool {
        matches!(&self.origin, Origin::Live(live) if live.watch.saw_all)
    }
}

impl Watch {
    fn look(&mut self, changing: &[usize], images: &ImageSet, memory: &mut ProcessMemory) -> bool {
        let n_before = changing.partition_point(|nth| *nth < self.next);
        let (before, after) = changing.split_at(n_before);
        let mut left = MAX_BYTES;
        let mut has_changed = false;
        let in_turn = after.iter().chain(before);
        let mut n_seen = 0;
        for nth in in_turn.take(MAX_IMAGES) {
            self.next = nth + 1;
            has_changed |= images.differs(*nth, &mut left, memory);
            if left == 0 {
                break;
            }
            n_seen += 1;
        }
        self.saw_all = n_seen == changing.len();
        has_changed
    }
}
