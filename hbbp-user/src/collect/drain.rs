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
use hbbp_ebpf::bank::{Bucket, FREE};
use hbbp_ebpf::combine::CombineTable;
use hbbp_ebpf::key::INTERVALS;
use hbbp_ebpf::{CountKey, Tally, is_kernel, name};

use super::mapped::Pair;
use super::object::Object;

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
        merge_equal(&mut entries);
        let parts = by_interval(entries, &self.intervals);
        self.intervals.start = self.intervals.end.wrapping_sub(1);
        self.begun_before = begun;
        Ok(parts)
    }
}

/// The counts of each of these intervals, without it in their keys, in the order that they come in.
fn by_interval(entries: Vec<(CountKey, Tally)>, intervals: &Range<u32>) -> Vec<Vec<(CountKey, Tally)>> {
    let n = intervals.end.wrapping_sub(intervals.start) as usize;
    let mut parts = vec![Vec::new(); n.max(1)];
    let mut was_late = false;
    for (mut key, tally) in entries {
        let part = key.event.interval().wrapping_sub(intervals.start) % INTERVALS;
        let mut part = if is_kernel(key.address | key.source) {
            part as usize
        } else {
            0
        };
        if n <= part {
            // A program that began before the last drain and ended after it.
            (part, was_late) = (0, true);
        }
        key.event = key.event.in_interval(0);
        if let Some(part) = parts.get_mut(part) {
            part.push((key, tally));
        }
    }
    if let Some(first) = parts.first_mut().filter(|_| was_late) {
        merge_equal(first);
    }
    parts
}

/// Takes the counts out of a bucket. Its slots are filled in order.
fn take_bucket(bucket: &mut Bucket, entries: &mut Vec<(CountKey, Tally)>) {
    let n = bucket.slots.iter().take_while(|slot| slot.state != FREE).count();
    for slot in bucket.slots.iter_mut().take(n) {
        let slot = mem::take(slot);
        entries.push((CountKey::of_words(&slot.key), slot.tally));
    }
}

/// Takes the counts out of a combining table: its streams, and those of the stacks that were kept whole.
fn take_table(table: &mut CombineTable, entries: &mut Vec<(CountKey, Tally)>) {
    let slots = table.slots.iter_mut().zip(&table.first_times);
    for (slot, first_time) in slots.filter(|(slot, _)| slot.hits != 0) {
        entries.push(mem::take(slot).count(*first_time));
    }
    for slot in table.stacks.iter_mut().filter(|slot| slot.fingerprint != 0) {
        let slot = mem::take(slot);
        if slot.hits != 0 {
            entries.extend(slot.counts());
        }
    }
}

/// The tables of several CPUs and the bank may hold the same key, and so may two slots of the bank. All counts of one
/// stream stand together afterwards.
fn merge_equal(entries: &mut Vec<(CountKey, Tally)>) {
    entries.sort_unstable_by_key(|(key, _)| {
        (
            key.address,
            key.length,
            key.event.0,
            key.tgid,
            key.exec_id,
            key.source,
        )
    });
    entries.dedup_by(|(key, tally), (kept, sum)| {
        let equal = key == kept;
        if equal {
            sum.hits += tally.hits;
            sum.weight += tally.weight;
            sum.first_time = sum.first_time.min(tally.first_time);
        }
        equal
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_ebpf::EventTag;
    use hbbp_ebpf::bank::Slot;

    #[test]
    fn kernel_code_is_told_apart_by_interval_and_user_code_is_not() {
        const KERNEL: u64 = 0xffff_ffff_8100_0000;
        let entry = |address, source, interval, hits| {
            let event = EventTag::stream(1).in_interval(interval);
            let key = CountKey {
                address,
                source,
                event,
                ..CountKey::default()
            };
            (
                key,
                Tally {
                    hits,
                    ..Tally::default()
                },
            )
        };
        let first = INTERVALS - 1;
        let entries = vec![
            entry(0x1000, 0x2000, 0, 1),
            entry(0x1000, KERNEL, first + 1, 2),
            entry(KERNEL, 0, first, 4),
            entry(KERNEL, 0, first + 1, 8),
            entry(KERNEL, 0, first - 1, 16),
        ];
        let parts = by_interval(entries, &(first..first + 2));
        let hits = |part: &[(CountKey, Tally)]| part.iter().map(|(_, tally)| tally.hits).collect::<Vec<_>>();
        assert_eq!([hits(&parts[0]), hits(&parts[1])], [vec![1, 20], vec![2, 8]]);
        assert!(
            parts
                .iter()
                .flatten()
                .all(|(key, _)| key.event == EventTag::stream(1))
        );
    }

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

    #[test]
    fn equal_keys_become_one_and_nothing_is_lost() {
        let entry = |address, hits, first_time| {
            let key = CountKey {
                address,
                ..CountKey::default()
            };
            (
                key,
                Tally {
                    hits,
                    weight: 2 * hits,
                    first_time,
                },
            )
        };
        let mut entries = vec![entry(7, 1, 30), entry(5, 2, 10), entry(7, 4, 20)];
        merge_equal(&mut entries);
        assert_eq!(entries, [entry(5, 2, 10), entry(7, 5, 20)]);
    }
}
