//! Notices between two drains that memory changed which has no records: code caches of compilers.
//!
//! Counts have only the time of their first sample, so the sooner a change is followed by a drain, the fewer of them are
//! taken for the other bytes.

use super::image_set::ImageSet;
use super::process_memory::ProcessMemory;

/// Images that are read at one time, and their bytes: some tens of microseconds, twenty times a second.
const MAX_IMAGES: usize = 16;
const MAX_BYTES: usize = 128 << 10;

/// How far memory was watched.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The image to begin with.
    next: usize,
    /// Whether the last look saw everything that may change, so that what changes later is newer than that.
    pub(super) saw_all: bool,
}

impl Watch {
    /// Looks at some of the images that may change; says whether one differs from what was read of it.
    pub(super) fn look(&mut self, changing: &[usize], images: &ImageSet, memory: &mut ProcessMemory) -> bool {
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
