//! The count maps: one is counted in, the other is read; the only reader of both.
//!
//! Between two drains, counts of kernel code can be cut: what is counted from then on is separate ([`CountMaps::cut`]).
//!
//! CountMaps are read through a mapping: the only syscall of a drain is the update of the outer map, during which the kernel
//! skips programs on perf events on that CPU (kernel/events/core.c, `bpf_overflow_handler`). It returns when no program
//! uses the old count map any more, so what is read is quiescent.

use std::mem;
use std::ops::Range;

use hbbp_ebpf::count_map::Bucket;
use hbbp_ebpf::key::INTERVALS;
use hbbp_ebpf::{CountKey, Tally, name};

use super::cpus::Cpus;
use super::mapped::Pair;
use super::object::Object;
use super::ordered::Parts;
use super::stacks::Stacks;
use hbbp_model::slices::Slices;

/// The two count maps.
pub(crate) struct CountMaps {
    maps: Pair<Bucket>,
    /// The intervals since the last drain.
    intervals: Range<u32>,
    /// How many counts had been begun at the last drain.
    begun_before: u64,
    /// Capacity of a count map, in counts.
    capacity: u64,
    /// What was counted in each slice, where these are distinguished.
    slices: Option<Slices>,
}

impl CountMaps {
    /// Takes the two count maps of the object and shows one of them to the programs.
    pub(crate) fn open(object: &mut Object, capacity: u32, slices: Option<Slices>) -> anyhow::Result<Self> {
        Ok(Self {
            maps: Pair::open(object, name::COUNTS, name::COUNT_MAPS)?,
            intervals: 0..1,
            begun_before: 0,
            capacity: capacity.into(),
            slices,
        })
    }

    /// Begins another interval for kernel code. Returns whether it could: a count map that is half full should be
    /// drained, and so should one whose counts have slices instead of intervals.
    pub(crate) fn cut(&mut self, cpus: &Cpus) -> bool {
        let n_intervals = self.intervals.end.wrapping_sub(self.intervals.start);
        if self.slices.is_some()
            || self.capacity / 2 <= cpus.begun().wrapping_sub(self.begun_before)
            || n_intervals == INTERVALS
        {
            return false;
        }
        cpus.begin_interval(self.intervals.end);
        self.intervals.end = self.intervals.end.wrapping_add(1);
        true
    }

    /// Lets the programs count elsewhere from now on, and takes out what was counted, with the streams of `stacks`: for each
    /// interval since the last drain, in their order. What has nothing to do with kernel code is in the first.
    pub(crate) fn drain(&mut self, cpus: &Cpus, stacks: Option<&mut Stacks>) -> anyhow::Result<Parts> {
        let begun = cpus.begun();
        self.maps.flip()?;
        let mut entries = Vec::new();
        for bucket in self.maps.spare() {
            take_bucket(bucket, &mut entries);
        }
        if let Some(stacks) = stacks {
            stacks.drain(&mut entries)?;
        }
        if let Some(slices) = &mut self.slices {
            slices.add(&entries);
        }
        // Two slots of the count map may hold the same key, and so may two of the streams.
        let parts = Parts::new(entries, &self.intervals);
        self.intervals.start = self.intervals.end.wrapping_sub(1);
        self.begun_before = begun;
        Ok(parts)
    }

    /// What was counted in each slice; nothing from then on.
    pub(crate) fn take_slices(&mut self) -> Option<Slices> {
        self.slices.take()
    }

    /// Whether slices are distinguished.
    pub(crate) const fn has_slices(&self) -> bool {
        self.slices.is_some()
    }
}

/// Takes the counts out of a bucket. Its slots are filled in order.
fn take_bucket(bucket: &mut Bucket, entries: &mut Vec<(CountKey, Tally)>) {
    let n = bucket.slots.iter().take_while(|slot| !slot.is_free()).count();
    for slot in bucket.slots.iter_mut().take(n) {
        let slot = mem::take(slot);
        entries.push((CountKey::of_words(&slot.key), slot.tally));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_ebpf::count_map::Slot;

    #[test]
    fn a_bucket_is_left_empty() {
        let mut bucket = Bucket::default();
        let slot = |address| Slot {
            state: 2,
            key: [address, 0, 0, 0],
            ..Slot::default()
        };
        (bucket.slots[0], bucket.slots[1]) = (slot(7), slot(5));
        let mut entries = Vec::new();
        take_bucket(&mut bucket, &mut entries);
        let taken: Vec<u64> = entries.iter().map(|(key, _)| key.address).collect();
        assert_eq!(taken, [7, 5]);
        assert!(bucket.slots.iter().all(|slot| *slot == Slot::default()));
    }
}
