//! Streams by hand, and against the plain walk that imports take.

use super::table::FEW;
use super::*;
use hbbp_ebpf::branch::{Step, Walk};
use hbbp_ebpf::{EventTag, is_kernel};
use proptest::prelude::*;
use std::collections::BTreeMap;

const KERNEL: u64 = 0xffff_ffff_8100_0000;
const SWITCH: (u64, u64) = (KERNEL + 0x100, 0x40);

fn entry(from: u64, to: u64) -> BranchEntry {
    BranchEntry { from, to, flags: 0 }
}

fn streams(habits: Habits) -> Streams {
    Streams::new(1 << 20, habits)
}

fn context(tgid: u32, interval: u32) -> Context {
    Context::new([tgid, 1], 0, interval, 300)
}

/// Address, source, thread group id, tag and length.
type Key = (u64, u64, u32, u32, u32);

/// What was counted, equal keys together: hits and weight.
fn taken(streams: &mut Streams) -> BTreeMap<Key, (u64, u64)> {
    let mut counts = Vec::new();
    streams.take(&mut counts);
    let mut sums = BTreeMap::new();
    for (key, tally) in counts {
        let key = (key.address, key.source, key.tgid, key.event.0, key.length);
        let (hits, weight) = sums.entry(key).or_insert((0, 0));
        *hits += tally.hits;
        *weight += tally.weight;
    }
    sums
}

#[test]
fn neighbours_make_streams_and_the_oldest_branch_is_counted() {
    let mut streams = streams(Habits::default());
    // Kernel code that user code led to, and user code that it led to.
    let stack = [
        entry(0x1020, 0x9999),
        entry(KERNEL + 5, 0x1000),
        entry(0x2000, KERNEL),
    ];
    streams.count(&stack, &context(7, 4), 3, 99);
    let expected = BTreeMap::from([
        (
            (0x1000, KERNEL + 5, 7, EventTag::stream(0).in_interval(4).0, 0x20),
            (3, 450 * WEIGHT_ONE),
        ),
        (
            (KERNEL, 0, 0, EventTag::stream(0).in_interval(4).0, 5),
            (3, 450 * WEIGHT_ONE),
        ),
        ((0x2000, 0, 7, EventTag::oldest(0).0, 0), (3, 0)),
    ]);
    assert_eq!(taken(&mut streams), expected);
    let stats = streams.stats(0);
    assert_eq!((stats.stacks, stats.entries, stats.streams), (3, 9, 6));
    assert!(taken(&mut streams).is_empty(), "it was taken out");
}

#[test]
fn a_stack_ends_at_its_first_empty_entry() {
    let mut streams = streams(Habits::default());
    streams.count(
        &[entry(30, 40), entry(20, 25), entry(0, 0), entry(0, 0)],
        &context(7, 0),
        1,
        1,
    );
    streams.count(&[entry(0, 0), entry(0, 0)], &context(7, 0), 1, 1);
    let stats = streams.stats(0);
    assert_eq!((stats.stacks, stats.entries, stats.streams), (1, 2, 1));
}

#[test]
fn what_cannot_have_run_is_refused_with_its_reason() {
    let mut streams = streams(Habits {
        switch: SWITCH,
        ..Habits::default()
    });
    let end = SWITCH.0 + 0x10;
    let stack = [
        entry(0x1010, 0x50),
        // Ends in the change of tasks: user code from here on is another process's, kernel code is the same.
        entry(end, 0x1000),
        entry(0x3010, SWITCH.0),
        entry(KERNEL + 0x20, 0x3000),
        entry(0x5000, KERNEL),
        // Backward, and nothing else is said of it.
        entry(0x4000, 0x5008),
        entry(0x1000, 0x200_0000),
    ];
    streams.count(&stack, &context(7, 0), 2, 1);
    let stats = streams.stats(0);
    let expected = StackStats {
        stacks: 2,
        entries: 14,
        streams: 6,
        backward: 4,
        switched: 2,
        ..StackStats::default()
    };
    assert_eq!(stats, expected);
    // Once more, as what was counted stands in the table now.
    streams.count(&stack, &context(7, 0), 2, 1);
    assert_eq!(streams.stats(0).switched, 4);
}

#[test]
fn a_repeated_newest_entry_makes_no_stream() {
    let stack = [entry(30, 40), entry(30, 40), entry(20, 25)];
    let mut repeats = streams(Habits {
        duplicated_heads: true,
        ..Habits::default()
    });
    repeats.count(&stack, &context(7, 0), 1, 1);
    let stats = repeats.stats(0);
    assert_eq!((stats.streams, stats.duplicated, stats.backward), (1, 1, 0));
    let mut others = streams(Habits::default());
    others.count(&stack, &context(7, 0), 1, 1);
    assert_eq!((others.stats(0).streams, others.stats(0).backward), (1, 1));
}

#[test]
fn a_stack_behind_a_far_branch_stands_for_the_one_that_could_not_be_taken_there() {
    let habits = Habits {
        near_only: 1,
        ..Habits::default()
    };
    let weight = |stack: &[BranchEntry]| {
        let mut streams = streams(habits);
        streams.count(stack, &context(7, 0), 1, 1);
        taken(&mut streams)
            .values()
            .map(|(_, weight)| weight)
            .sum::<u64>()
    };
    let near = [entry(30, 40), entry(20, 25), entry(10, 15)];
    let far = [entry(30, 40), entry(KERNEL, 25), entry(KERNEL - 9, KERNEL - 4)];
    assert_eq!(
        (weight(&near), weight(&far)),
        (300 * WEIGHT_ONE, 600 * WEIGHT_ONE)
    );
}

#[test]
fn a_full_table_refuses_what_is_new_and_counts_what_is_not() {
    let mut streams = Streams::new(2, Habits::default());
    let stack = [entry(30, 40), entry(20, 25), entry(10, 15)];
    for _ in 0..3 {
        streams.count(&stack, &context(7, 0), 1, 1);
    }
    assert!(streams.is_half_full());
    streams.count(&[entry(130, 140), entry(120, 125)], &context(7, 0), 1, 1);
    let stats = streams.stats(0);
    assert_eq!((stats.streams, stats.refused), (6, 1));
    assert_eq!(stats.refused_oldest, 1);
    assert_eq!(stats.entries, stats.stacks + stats.streams + stats.refused);
}

#[test]
fn streams_that_are_made_for_one_place_are_refused_after_a_while() {
    let mut streams = streams(Habits::default());
    // The same sum of start and eight times the end.
    for n in 0..2000 {
        let end = 0x1000_0000 + n;
        let stack = [entry(end, 0x50), entry(0x2000, 0x1000_0000 - 8 * n)];
        streams.count(&stack, &context(7, 0), 1, 1);
    }
    let stats = streams.stats(0);
    assert_eq!(stats.entries, stats.stacks + stats.streams + stats.refused);
    assert_eq!(stats.refused, 2000 - 1024);
    let n: u64 = taken(&mut streams).values().map(|(hits, _)| hits).sum();
    assert_eq!(n, stats.streams + stats.stacks - stats.refused_oldest);
}

#[test]
fn kernel_code_is_counted_once_for_all_unless_it_is_to_be_kept_apart() {
    for (kernel, n) in [(KernelCounts::Together, 1), (KernelCounts::ByProcess, 2)] {
        let mut streams = streams(Habits {
            kernel,
            ..Habits::default()
        });
        for tgid in [7, 8] {
            let stack = [entry(KERNEL + 9, 40), entry(KERNEL + 50, KERNEL)];
            streams.count(&stack, &context(tgid, 0), 1, 1);
        }
        let rows = taken(&mut streams);
        let of_streams = rows.keys().filter(|key| !EventTag(key.3).is_oldest());
        assert_eq!(of_streams.count(), n);
    }
}

/// Entries close together, so that streams repeat, and now and then one that does not fit.
fn stacks() -> impl Strategy<Value = Vec<(Vec<BranchEntry>, u32, u64)>> {
    let address = prop_oneof![
        8 => (0u64..40).prop_map(|n| 0x40_0000 + 4 * n),
        4 => (0u64..40).prop_map(|n| KERNEL + 16 * n),
        1 => Just(0x4000_0000u64),
    ];
    let entry = (address.clone(), address).prop_map(|(from, to)| entry(from, to));
    let stack = (prop::collection::vec(entry, 1..32), 1u32..4, 1u64..3);
    prop::collection::vec(stack, 1..60)
}

proptest! {
    /// Against the plain walk that imports take, with each stream judged by itself.
    #[test]
    fn it_is_what_the_plain_walk_gives(stacks in stacks()) {
        let mut streams = streams(Habits { switch: SWITCH, ..Habits::default() });
        let mut expected: BTreeMap<(u64, u64, u32), u64> = BTreeMap::new();
        let mut refused = 0;
        let mut n_entries = 0;
        for (stack, tgid, times) in &stacks {
            streams.count(stack, &context(*tgid, 0), *times, 1);
            let mut walk = Walk::default();
            let mut switched = false;
            for entry in stack {
                n_entries += times;
                let Step::Stream(stream) = walk.step(*entry) else { continue };
                switched |= stream.end.wrapping_sub(SWITCH.0) < SWITCH.1;
                if refusal(stream.start, stream.end, switched).is_some() {
                    refused += times;
                    continue;
                }
                let owner = if is_kernel(stream.start) { 0 } else { *tgid };
                *expected.entry((stream.start, stream.end, owner)).or_default() += times;
            }
        }
        let stats = streams.stats(0);
        let discarded = stats.duplicated + stats.backward + stats.crossing + stats.long + stats.switched;
        prop_assert_eq!(discarded, refused);
        prop_assert_eq!(stats.entries, n_entries);
        prop_assert_eq!(stats.entries, stats.stacks + stats.streams + discarded + stats.refused);
        let mut counted: BTreeMap<(u64, u64, u32), u64> = BTreeMap::new();
        let mut oldest = 0;
        for ((address, _, tgid, tag, length), (hits, _)) in taken(&mut streams) {
            if EventTag(tag).is_oldest() {
                oldest += hits;
            } else {
                *counted.entry((address, address + u64::from(length), tgid)).or_default() += hits;
            }
        }
        prop_assert_eq!(counted, expected);
        prop_assert_eq!(oldest, stats.stacks, "each stack has one branch in its oldest slot");
    }

    /// More streams than there are slots at the start.
    #[test]
    fn a_table_that_grows_loses_nothing(seed in 0u64..1000) {
        let mut streams = streams(Habits::default());
        let n = FEW as u64 + 1;
        for i in (0..n).chain(0..n / 2) {
            let start = KERNEL + (i ^ seed) * 64;
            streams.count(&[entry(start + 9, KERNEL), entry(KERNEL + seed, start)], &context(7, 0), 1, 1);
        }
        let rows = taken(&mut streams);
        let of_streams: Vec<_> = rows.iter().filter(|(key, _)| !EventTag(key.3).is_oldest()).collect();
        prop_assert_eq!(of_streams.len() as u64, n);
        prop_assert_eq!(of_streams.iter().map(|(_, (hits, _))| hits).sum::<u64>(), n + n / 2);
    }
}
