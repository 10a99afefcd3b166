//! The banks of counts: one is counted in, the other is read; the only reader of both.
//!
//! Between two drains, counts of kernel code can be cut: what is counted from then on stands apart ([`Banks::cut`]).
//!
//! Banks are read through a mapping: the only syscall of a drain is the update of the outer map, during which the kernel
//! skips programs on perf events on that CPU (kernel/events/core.c, `bpf_overflow_handler`). It returns when no program
//! uses the old bank any more, so what is read is quiescent.

use std::mem;
use std::ops::Range;

use anyhow::Context as _;
use aya::maps::{Array, MapData, PerCpuArray};
use hbbp_ebpf::bank::Bucket;
use hbbp_ebpf::combine::CombineTable;
use hbbp_ebpf::key::INTERVALS;
use hbbp_ebpf::{CountKey, Tally, name};

use super::mapped::Pair;
use super::object::Object;
use super::ordered::by_interval;

/// The two banks, and the combining tables in front of them where there are branch stacks.
pub struct Banks {
    banks: Pair<Bucket>,
    combiner: Option<Pair<CombineTable>>,
    /// The interval that is shown to the programs.
    interval: Array<MapData, u32>,
    /// The intervals since the last drain.
    intervals: Range<u32>,
    begun: PerCpuArray<MapData, u64>,
    /// What `begun` said at the last drain.
    begun_before: u64,
    /// Counts that a bank has room for.
    room: u64,
}

impl Banks {
    /// Takes the two banks of the object and shows one of them to the programs.
    pub fn open(object: &mut Object, room: u32) -> anyhow::Result<Self> {
        Ok(Self {
            banks: Pair::open(object, name::BANK, name::BANKS)?,
            combiner: None,
            interval: Array::try_from(object.take_map(name::INTERVAL)?)?,
            intervals: 0..1,
            begun: PerCpuArray::try_from(object.take_map(name::BEGUN)?)?,
            begun_before: 0,
            room: room.into(),
        })
    }

    /// Begins another interval for kernel code. Returns whether it could: a bank that is half full should be drained.
    pub fn cut(&mut self) -> anyhow::Result<bool> {
        let n_intervals = self.intervals.end.wrapping_sub(self.intervals.start);
        if self.room / 2 <= self.begun()?.wrapping_sub(self.begun_before) || n_intervals == INTERVALS {
            return Ok(false);
        }
        self.interval
            .set(0, self.intervals.end, 0)
            .context("failed to begin an interval of kernel code")?;
        self.intervals.end = self.intervals.end.wrapping_add(1);
        Ok(true)
    }

    fn begun(&self) -> anyhow::Result<u64> {
        let by_cpu = self
            .begun
            .get(&0, 0)
            .context("failed to read how full a bank is")?;
        Ok(by_cpu.iter().sum())
    }

    /// Puts combining tables in front of the banks, which programs on branch stacks need.
    pub fn combine(&mut self, object: &mut Object) -> anyhow::Result<()> {
        self.combiner = Some(Pair::open(object, name::COMBINE, name::COMBINES)?);
        Ok(())
    }

    /// Lets the programs count elsewhere from now on, and takes out what was counted: for each interval since the last
    /// drain, in their order. What has nothing to do with kernel code stands in the first.
    pub fn drain(&mut self) -> anyhow::Result<Vec<Vec<(CountKey, Tally)>>> {
        let begun = self.begun()?;
        // The tables go first: what they send to a bank until then still reaches this one.
        if let Some(combiner) = &mut self.combiner {
            combiner.flip()?;
        }
        self.banks.flip()?;
        let mut entries = Vec::new();
        for bucket in self.banks.spare() {
            take_bucket(bucket, &mut entries);
        }
        if let Some(combiner) = &mut self.combiner {
            for table in combiner.spare() {
                take_table(table, &mut entries);
            }
        }
        // The tables of several CPUs and the bank may hold the same key, and so may two slots of the bank.
        let parts = by_interval(entries, &self.intervals);
        self.intervals.start = self.intervals.end.wrapping_sub(1);
        self.begun_before = begun;
        Ok(parts)
    }
}

/// Takes the counts out of a bucket. Its slots are filled in order.
fn take_bucket(bucket: &mut Bucket, entries: &mut Vec<(CountKey, Tally)>) {
    let n = bucket.slots.iter().take_while(|slot| !slot.is_free()).count();
    for slot in bucket.slots.iter_mut().take(n) {
        let slot = mem::take(slot);
        push(
            (CountKey::of_words(&slot.key), slot.tally),
            slot.oldest(),
            entries,
        );
    }
}

/// Adds a count, and where it is one of streams those of the branch that led there in the oldest slot.
fn push((key, tally): (CountKey, Tally), oldest: u32, entries: &mut Vec<(CountKey, Tally)>) {
    entries.push((key, tally));
    if oldest != 0 {
        let hits = oldest.into();
        let weight = 0;
        let tally = Tally {
            hits,
            weight,
            ..tally
        };
        entries.push((key.of_oldest(), tally));
    }
}

/// Takes the counts out of a combining table: its streams, and those of the stacks that were kept whole.
fn take_table(table: &mut CombineTable, entries: &mut Vec<(CountKey, Tally)>) {
    let slots = table.slots.iter_mut().zip(&table.first_times);
    for (slot, first_time) in slots.filter(|(slot, _)| slot.hits != 0) {
        let slot = mem::take(slot);
        push(slot.count(*first_time), slot.oldest, entries);
    }
    for slot in table.stacks.iter_mut().filter(|slot| slot.fingerprint != 0) {
        let slot = mem::take(slot);
        if slot.hits != 0 {
            entries.extend(slot.counts());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_ebpf::bank::Slot;

    #[test]
    fn a_bucket_is_left_empty() {
        let mut bucket = Bucket::default();
        let slot = |address| Slot {
            head: 2,
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
