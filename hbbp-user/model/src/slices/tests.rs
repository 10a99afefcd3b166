//! Counts of slices, as drains bring them.

use super::*;
use hbbp_ebpf::EventTag;

fn count(address: u64, tid: u32, slice: u32, hits: u64) -> (CountKey, Tally) {
    let key = CountKey {
        address,
        tgid: 7,
        tid,
        event: EventTag::stream(1).in_interval(slice),
        length: 8,
        ..CountKey::default()
    };
    (
        key,
        Tally {
            hits,
            ..Tally::default()
        },
    )
}

type Shown = Vec<(u32, u32, Vec<(u32, u64)>)>;

fn shown(slices: &Slices) -> Shown {
    let mut shown = Vec::new();
    slices.each(|owner, slice, rows| shown.push((owner, slice, rows.to_vec())));
    shown
}

#[test]
fn a_slice_that_two_drains_saw_is_one() {
    let mut slices = Slices::new(ThreadCounts::Apart);
    slices.add(&[count(0x10, 8, 1, 300), count(0x20, 8, 0, 2), count(0x10, 9, 0, 5)]);
    slices.add(&[
        count(0x10, 8, 1, 1),
        count(0x10, 8, 1, 1),
        count(0x30, 8, 2, 1 << 40),
    ]);
    assert_eq!(
        shown(&slices),
        [
            (0, 0, vec![(1, 2)]),
            (0, 1, vec![(0, 300), (0, 2)]),
            (0, 2, vec![(3, 1 << 40)]),
            (1, 0, vec![(2, 5)]),
        ]
    );
    assert_eq!(slices.owners()[1], Owner { tgid: 7, tid: 9 });
    assert_eq!(slices.left_out(), LeftOut::default());
}

#[test]
fn owners_are_numbered_in_the_order_of_their_first_count() {
    let at = |tid, time| {
        let (key, tally) = count(0x10, tid, 0, 1);
        let first_time = time;
        (key, Tally { first_time, ..tally })
    };
    let mut slices = Slices::new(ThreadCounts::Apart);
    slices.add(&[at(9, 30), at(8, 20), at(9, 10)]);
    slices.add(&[at(7, 5)]);
    let tids: Vec<u32> = slices.owners().iter().map(|owner| owner.tid).collect();
    assert_eq!(tids, [9, 8, 7]);
}

/// Branches in oldest slots and refused stacks are no executions.
#[test]
fn oldest_slots_and_refused_stacks_have_no_executions() {
    let mut slices = Slices::new(ThreadCounts::Together);
    let (mut key, tally) = count(0x10, 0, 0, 1);
    for event in [EventTag::oldest(1), EventTag::refused(1)] {
        key.event = event;
        slices.add(&[(key, tally)]);
    }
    assert!(shown(&slices).is_empty());
}

#[test]
fn what_has_no_slice_is_in_none() {
    let mut slices = Slices::new(ThreadCounts::Apart);
    slices.add(&[
        count(0x10, 8, 0, 2),
        count(0x10, 9, NO_PLACE, 5),
        count(0x20, 8, BEHIND_LAST_SLICE, 7),
        count(0x20, 8, BEHIND_LAST_SLICE - 1, 1),
    ]);
    assert_eq!(
        shown(&slices),
        [(0, 0, vec![(0, 2)]), (0, BEHIND_LAST_SLICE - 1, vec![(2, 1)])]
    );
    let left_out = LeftOut {
        no_place: 5,
        behind_last: 7,
        memory: 0,
    };
    assert_eq!((slices.left_out(), slices.owners().len()), (left_out, 1));
    let mut outside: Vec<(u32, u64)> = slices.outside().collect();
    outside.sort_unstable();
    // Each thread has code of its own.
    assert_eq!(outside, [(1, 5), (2, 7)]);
}

/// An hour of slices of 100 million instructions: 36,000 with 800 streams and addresses each.
#[test]
fn an_hour_of_slices_takes_less_than_a_hundred_million_bytes() {
    let mut slices = Slices::new(ThreadCounts::Together);
    for drain in 0..3_600_u32 {
        let of = |slice: u32| {
            // A phase of 1000 blocks out of 20,000, most of them with few hits.
            let phase = u64::from(slice / 900 % 20);
            (0..800_u64).map(move |n| {
                count(
                    0x40_0000 + 16 * (phase * 1_000 + n * 5 / 4),
                    0,
                    slice,
                    1 + (n * 7 + u64::from(slice)) % 150,
                )
            })
        };
        let counts: Vec<_> = (0..10).flat_map(|n| of(drain * 10 + n)).collect();
        slices.add(&counts);
    }
    assert_eq!(slices.left_out(), LeftOut::default());
    let mut seen = 0;
    slices.each(|_, slice, rows| {
        assert_eq!((slice, rows.len()), (seen, 800));
        seen += 1;
    });
    assert_eq!(seen, 36_000);
    assert!(slices.memory() < 100_000_000, "{}", slices.memory());
}
