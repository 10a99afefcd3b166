//! Results of earlier lookups of addresses.
//!
//! Most counts of a drain run through few text ranges. A stream nearly always ends in the range of the last one, else
//! in a cached one.

use super::lookup_cache::{HeldText, LookupCache, Validity};
use super::raw::TaskKey;
use hbbp_model::addr::Va;

/// Slots of a cache, and the bytes (as a power of two) that share one: functions are about as long, and a drain runs
/// through few thousand of them.
const SLOTS: usize = 1 << 15;
const NEAR: u32 = 8;

/// Results of earlier lookups.
#[derive(Debug)]
pub(super) struct Lookups {
    /// Text of the kernel.
    pub(super) kernel: LookupCache<HeldText>,
    /// Text of processes.
    pub(super) user: LookupCache<HeldText>,
    /// The text of the last stream, which is that of the next as a rule.
    pub(super) last: (Validity, HeldText),
    /// How often processes had changed, and how many regions of the kernel there were, when these were found.
    pub(super) known_of: (u64, u64),
}

impl Default for Lookups {
    fn default() -> Self {
        Self {
            kernel: LookupCache::new(SLOTS, NEAR),
            user: LookupCache::new(SLOTS, NEAR),
            last: Default::default(),
            known_of: (0, 0),
        }
    }
}

impl Lookups {
    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.kernel.clear();
        self.user.clear();
        self.last = Default::default();
    }

    /// The text of the last stream, if it holds an address.
    #[inline]
    pub(super) fn last(&self, task: TaskKey, time: u64, at: Va) -> Option<HeldText> {
        let (validity, text) = &self.last;
        validity.covers(task, time, at).then_some(*text)
    }
}
