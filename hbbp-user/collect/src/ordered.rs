//! Puts the counts of a drain in order: equal keys are merged, and code that was executed close together is sorted
//! together.
//!
//! Rows are distinguished by 36 bytes, but the order asks for little: neighbouring addresses of one process image in a
//! row, so that each text range is looked up once and differences are short. So a number of 32 bits is sorted, made of
//! the offset within a MiB and a hash of that MiB; only where it is equal are whole keys compared. The order depends on
//! the keys alone, so that equal drains make equal snapshots.

use std::ops::Range;
use std::{iter, slice};

use hbbp_ebpf::key::INTERVALS;
use hbbp_ebpf::{CountKey, Tally, is_kernel};

/// Addresses whose lower bits alone are sorted by, as a power of two.
const NEAR: u32 = 20;
/// With fewer rows a sort by comparison costs less than the tables of digits.
const FEW: usize = 512;
/// Bits of a digit.
const DIGIT: u32 = 11;

/// The counts of a drain in order, interval by interval. They are stored in the order of arrival and merged while they
/// are read, as a copy of so large an array would need new memory from the kernel.
#[derive(Debug)]
pub struct Parts {
    counts: Vec<(CountKey, Tally)>,
    /// Their numbers, in the lower halves, in order.
    order: Vec<u64>,
    /// Where each interval ends in `order`.
    ends: Vec<usize>,
}

/// The counts of one interval in order, without it in their keys, each key once.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    counts: &'a [(CountKey, Tally)],
    order: slice::Iter<'a, u64>,
}

impl Parts {
    /// Of counts that may have some keys more than once, for these intervals.
    /// What has nothing to do with kernel code is in the first, and so does what is late: a program that began before
    /// the last drain and ended after it.
    pub(super) fn new(mut counts: Vec<(CountKey, Tally)>, intervals: &Range<u32>) -> Self {
        let n = intervals.end.wrapping_sub(intervals.start).max(1);
        let order = counts.iter_mut().zip(0u64..).map(|((key, _), idx)| {
            let part = key.event.interval().wrapping_sub(intervals.start) % INTERVALS;
            let part = if part < n && is_kernel(key.address | key.source) {
                part
            } else {
                0
            };
            key.event = key.event.in_interval(part);
            u64::from(neighbourhood(key)) << 32 | idx
        });
        let mut order: Vec<u64> = order.collect();
        sort(&mut order);
        for near in order.chunk_by_mut(|a, b| *a >> 32 == *b >> 32) {
            if 1 < near.len() {
                near.sort_unstable_by_key(|order| at(&counts, *order).map(|(key, _)| whole(key)));
            }
        }
        let mut ends = vec![order.len()];
        if 1 < n {
            let part = |order: &u64| at(&counts, *order).map_or(0, |(key, _)| key.event.interval());
            order.sort_by_key(part);
            ends = (0..n)
                .map(|n| order.partition_point(|order| part(order) <= n))
                .collect();
        }
        Self { counts, order, ends }
    }

    /// The intervals, in the order of time.
    pub fn iter(&self) -> impl Iterator<Item = Part<'_>> {
        let starts = iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| Part {
            counts: &self.counts,
            order: self.order.get(*start..*end).unwrap_or_default().iter(),
        })
    }
}

impl Iterator for Part<'_> {
    type Item = (CountKey, Tally);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (key, mut tally) = *at(self.counts, *self.order.next()?)?;
        while let Some((_, more)) = self
            .order
            .as_slice()
            .first()
            .and_then(|next| at(self.counts, *next))
            .filter(|(next, _)| *next == key)
        {
            add(&mut tally, more);
            self.order.next();
        }
        let event = key.event.in_interval(0);
        Some((CountKey { event, ..key }, tally))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.order.len()))
    }
}

#[inline(always)]
fn at(counts: &[(CountKey, Tally)], order: u64) -> Option<&(CountKey, Tally)> {
    counts.get(order as u32 as usize)
}

fn add(sum: &mut Tally, tally: &Tally) {
    sum.hits += tally.hits;
    sum.weight += tally.weight;
    sum.first_time = sum.first_time.min(tally.first_time);
}

/// Code that was executed close together has neighbouring numbers.
fn neighbourhood(key: &CountKey) -> u32 {
    /// The golden ratio as a fraction of 2^64: multiples of it spread evenly (Knuth vol. 3, 6.4).
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let far = (key.address >> NEAR ^ image(key).wrapping_mul(SPREAD)).wrapping_mul(SPREAD) >> (32 + NEAR);
    let near = key.address & ((1 << NEAR) - 1);
    (far << NEAR | near) as u32
}

/// The whole key, so that counts of one location and kind are adjacent.
fn whole(key: &CountKey) -> [u64; 5] {
    let kind = u64::from(key.event.0) | u64::from(key.length) << 32;
    [image(key), key.address, kind, key.source, key.tid.into()]
}

fn image(key: &CountKey) -> u64 {
    u64::from(key.tgid) | u64::from(key.exec_id) << 32
}

/// Sorts numbers that differ in their upper halves, or whose lower halves ascend already: digit by digit, from the
/// lowest of the upper half on.
fn sort(order: &mut Vec<u64>) {
    if order.len() < FEW {
        order.sort_unstable();
        return;
    }
    let mut sorted = vec![0; order.len()];
    for shift in (32..u64::BITS).step_by(DIGIT as usize) {
        let digit = |number: u64| (number >> shift) as usize & ((1 << DIGIT) - 1);
        let mut places = [0_usize; 1 << DIGIT];
        for number in order.iter() {
            if let Some(n) = places.get_mut(digit(*number)) {
                *n += 1;
            }
        }
        let mut place = 0;
        for n in &mut places {
            (*n, place) = (place, place + *n);
        }
        for number in order.iter() {
            if let Some(place) = places.get_mut(digit(*number)) {
                if let Some(to) = sorted.get_mut(*place) {
                    *to = *number;
                }
                *place += 1;
            }
        }
        std::mem::swap(order, &mut sorted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_ebpf::EventTag;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn all(counts: Vec<(CountKey, Tally)>, intervals: &Range<u32>) -> Vec<Vec<(CountKey, Tally)>> {
        let parts = Parts::new(counts, intervals);
        parts.iter().map(Iterator::collect).collect()
    }

    #[test]
    fn only_kernel_code_is_separated_by_interval() {
        const KERNEL: u64 = 0xffff_ffff_8100_0000;
        let entry = |address, source, interval, hits| {
            let key = CountKey {
                address,
                source,
                event: EventTag::stream(1).in_interval(interval),
                ..CountKey::default()
            };
            let tally = Tally {
                hits,
                ..Tally::default()
            };
            (key, tally)
        };
        let first = INTERVALS - 1;
        let entries = vec![
            entry(0x1000, 0x2000, 0, 1),
            entry(0x1000, KERNEL, first + 1, 2),
            entry(KERNEL, 0, first, 4),
            entry(KERNEL, 0, first + 1, 8),
            entry(KERNEL, 0, first - 1, 16),
        ];
        let parts = all(entries, &(first..first + 2));
        let mut hits: Vec<Vec<u64>> = parts
            .iter()
            .map(|part| part.iter().map(|(_, tally)| tally.hits).collect())
            .collect();
        hits.iter_mut().for_each(|part| part.sort_unstable());
        assert_eq!(hits, [vec![1, 20], vec![2, 8]]);
        assert!(
            parts
                .iter()
                .flatten()
                .all(|(key, _)| key.event == EventTag::stream(1))
        );
    }

    #[test]
    fn neighbours_are_adjacent() {
        let entry = |tgid, address| {
            let key = CountKey {
                address,
                tgid,
                ..CountKey::default()
            };
            (key, Tally::default())
        };
        let entries = (0..3000_u64)
            .map(|n| entry((n % 3) as u32, 0x7000_0000 + n * 7919 % 3000))
            .collect();
        let parts = all(entries, &(0..1));
        let keys: Vec<_> = parts[0].iter().map(|(key, _)| (key.tgid, key.address)).collect();
        let runs: Vec<_> = keys.chunk_by(|a, b| a.0 == b.0 && a.1 < b.1).collect();
        assert_eq!(runs.len(), 3);
    }

    /// Address, source, ids of the process and of its thread, length, hits, first time.
    type Drawn = (u64, u64, (u32, u32), u32, u64, u64);

    proptest! {
        #[test]
        fn equal_keys_become_one_and_nothing_is_lost(
            drawn in prop::collection::vec((0u64..40, 0u64..3, (0u32..3, 0u32..2), 0u32..2, 1u64..9, 0u64..9), 0..900),
        ) {
            let entry = |&(address, source, (tgid, tid), length, hits, first_time): &Drawn| {
                let address = address * 0x1_0001;
                let key = CountKey { address, source, tgid, tid, length, ..CountKey::default() };
                (key, Tally { hits, weight: 2 * hits, first_time })
            };
            let entries: Vec<_> = drawn.iter().map(entry).collect();
            let mut expected: HashMap<CountKey, Tally> = HashMap::new();
            for (key, tally) in &entries {
                expected
                    .entry(*key)
                    .and_modify(|sum| add(sum, tally))
                    .or_insert(*tally);
            }
            let mut reversed = entries.clone();
            reversed.reverse();
            let parts = all(entries, &(0..1));
            prop_assert_eq!(&parts, &all(reversed, &(0..1)));
            prop_assert_eq!(parts[0].len(), expected.len());
            for (key, tally) in &parts[0] {
                prop_assert_eq!(expected.get(key), Some(tally));
            }
        }

        #[test]
        fn digits_sort_as_comparisons_do(drawn in prop::collection::vec(any::<u32>(), 0..2000)) {
            let mut order: Vec<u64> = drawn
                .iter()
                .zip(0u64..)
                .map(|(upper, idx)| u64::from(*upper) << 32 | idx)
                .collect();
            let mut expected = order.clone();
            expected.sort_unstable();
            sort(&mut order);
            prop_assert_eq!(order, expected);
        }
    }
}
