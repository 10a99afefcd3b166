//! A cache of lookups by address: most counts run through few text ranges.
//!
//! Each result has a validity range, the addresses and times for which it is the result, so that a cached lookup never
//! differs from a new one. A slot is found by the address and may be overwritten at any time: adversarial collisions
//! only degrade to uncached lookups.

use std::ops::Range;

use hbbp_model::addr::Va;
use hbbp_model::snapshot::ProcessIdx;

use super::raw::TaskKey;

/// The tasks, addresses and times for which a result is valid.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Validity {
    /// The task; [`TaskKey::KERNEL`] where it does not matter.
    pub task: TaskKey,
    /// Addresses.
    pub at: Range<Va>,
    /// Times in ns.
    pub time: Range<u64>,
}

impl Validity {
    /// The same for the part of the addresses that lies in `at`.
    pub(crate) fn within(self, at: Range<Va>) -> Self {
        let at = self.at.start.max(at.start)..self.at.end.min(at.end);
        Self { at, ..self }
    }

    /// Whether it covers this lookup.
    pub(crate) fn covers(&self, task: TaskKey, time: u64, at: Va) -> bool {
        self.at.contains(&at) && self.time.contains(&time) && self.task == task
    }
}

/// A text range that is in the snapshot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct HeldText {
    /// The running process image.
    pub process: ProcessIdx,
    /// The first address after it.
    pub end: Va,
}

impl Default for HeldText {
    /// No text at all.
    fn default() -> Self {
        Self {
            process: ProcessIdx::KERNEL,
            end: Va(0),
        }
    }
}

/// Results by address.
#[derive(Debug)]
pub(crate) struct LookupCache<T> {
    /// The number of a result by slot. It may be any: each result has its validity.
    slots: Vec<u32>,
    results: Vec<(Validity, T)>,
    /// Addresses that share all but this number of lower bits share a slot.
    near: u32,
}

/// Slots on either side that take a result over.
const REACH: u64 = 16;

impl<T: Copy> LookupCache<T> {
    /// With `n` slots, a power of two, for addresses that share all but their lower `near` bits.
    pub(crate) fn new(n: usize, near: u32) -> Self {
        Self {
            slots: vec![0; n],
            results: Vec::new(),
            near,
        }
    }

    /// What is known of an address.
    #[inline]
    pub(crate) fn get(&self, task: TaskKey, time: u64, at: Va) -> Option<&(Validity, T)> {
        let nth = *self.slots.get(self.slot(task, at))?;
        let result = self.results.get(nth as usize)?;
        result.0.covers(task, time, at).then_some(result)
    }

    /// Adds the result of a lookup of `at`, for all addresses of its validity that are near.
    pub(crate) fn add(&mut self, at: Va, validity: &Validity, result: T) {
        if self.slots.len() <= self.results.len() {
            self.results.clear();
        }
        let Ok(nth) = u32::try_from(self.results.len()) else {
            return;
        };
        self.results.push((validity.clone(), result));
        let reach = REACH << self.near;
        let first = validity.at.start.0.max(at.0.saturating_sub(reach)) >> self.near;
        let last = validity
            .at
            .end
            .0
            .saturating_sub(1)
            .min(at.0.saturating_add(reach))
            >> self.near;
        for far in first..=last.max(at.0 >> self.near) {
            let slot = self.slot(validity.task, Va(far << self.near));
            if let Some(slot) = self.slots.get_mut(slot) {
                *slot = nth;
            }
        }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.results.clear();
    }

    fn slot(&self, task: TaskKey, at: Va) -> usize {
        let far = (at.0 >> self.near) as usize;
        (far ^ far >> 10 ^ task.tgid as usize) & self.slots.len().wrapping_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However results displace each other, none is returned outside of its validity.
        #[test]
        fn cached_results_are_returned_only_where_they_are_valid(
            added in prop::collection::vec((0u32..3, 0u64..64, 1u64..9, 0u64..4), 0..30),
            asked in prop::collection::vec((0u32..3, 0u64..80, 0u64..6), 1..30),
        ) {
            let task = |tgid| TaskKey { tgid, exec_id: 0 };
            let mut cache = LookupCache::new(8, 2);
            let mut given: Vec<Validity> = Vec::new();
            for (tgid, start, len, from) in added {
                let validity = Validity {
                    task: task(tgid),
                    at: Va(start)..Va(start + len),
                    time: from..from + 2,
                };
                given.push(validity.clone());
                cache.add(Va(start), &validity, given.len() - 1);
                for at in start..(start + len).min(start + 16) {
                    let found = cache.get(task(tgid), from, Va(at));
                    prop_assert_eq!(found.map(|(_, nth)| *nth), Some(given.len() - 1));
                }
            }
            for (tgid, at, time) in asked {
                if let Some((_, nth)) = cache.get(task(tgid), time, Va(at)) {
                    prop_assert!(given[*nth].covers(task(tgid), time, Va(at)));
                }
            }
            cache.clear();
            prop_assert!(cache.get(task(0), 0, Va(0)).is_none());
        }
    }
}
