//! Patches of text, their records and the bytes that are read: which were there when.

use super::*;
use proptest::prelude::*;

const START: ImageAddr = ImageAddr(0x1000);

fn poke(time: u64, at: u64, old: &[u8], new: &[u8]) -> Poke {
    Poke {
        time,
        start: ImageAddr(at),
        old: old.to_vec(),
        new: new.to_vec(),
    }
}

fn read_at(bytes: Vec<u8>, time: u64) -> TextVersions {
    let mut all = TextVersions::read_first(bytes);
    all.date(time);
    all
}

fn found(versions: &TextVersions) -> Vec<(u32, Vec<u8>)> {
    versions
        .iter()
        .map(|(since, bytes)| (since, bytes.to_vec()))
        .collect()
}

#[test]
fn a_patch_that_a_reading_saw_before_its_record() {
    let far = 10 * STEPS;
    for seen in [[7, 7], [0xcc, 1], [0xcc, 7]] {
        let mut all = read_at([&[0][..], &seen, &[3]].concat(), far);
        assert_eq!(
            all.patch(START, &poke(far - 5, 0x1001, &[1, 1], &[7, 7]), 4),
            Patched::Yes
        );
        assert_eq!(found(&all), [(0, vec![0, 1, 1, 3]), (4, vec![0, 7, 7, 3])]);
    }
    let mut all = read_at(vec![0, 7, 7, 3], far);
    let late = poke(far + 2 * STEPS, 0x1001, &[1, 1], &[8, 8]);
    assert_eq!(all.patch(START, &late, 4), Patched::Unexpected);
    assert_eq!(found(&all), [(0, vec![0, 7, 7, 3]), (4, vec![0, 8, 8, 3])]);
}

#[test]
fn differences_wait_for_their_record_where_records_come() {
    let mut all = read_at(vec![1, 2], 0);
    assert_eq!(all.compare(vec![9, 2], 5, 3, Records::Come), Compared::Ambiguous);
    assert_eq!(all.patch(START, &poke(6, 0x1000, &[1], &[9]), 4), Patched::Yes);
    assert_eq!(all.compare(vec![9, 2], 7, 4, Records::Come), Compared::Same);
    assert!(!all.settle());
    assert_eq!(all.compare(vec![9, 8], 8, 5, Records::Come), Compared::Ambiguous);
    assert_eq!(
        all.compare(vec![9, 8], 9, 6, Records::Come),
        Compared::Changed,
        "none came"
    );
    assert_eq!(all.compare(vec![1, 8], 9, 7, Records::Come), Compared::Ambiguous);
    assert!(all.settle(), "none will come");
    let expected = [(0, vec![1, 2]), (4, vec![9, 2]), (5, vec![9, 8]), (7, vec![1, 8])];
    assert_eq!(found(&all), expected);
    let mut without_records = read_at(vec![1], 0);
    assert_eq!(
        without_records.compare(vec![2], 5, 3, Records::NoneYet),
        Compared::Changed
    );
}

#[test]
fn odd_patches() {
    let mut all = read_at(vec![1, 2, 3, 4], 0);
    for outside in [
        poke(9, 0x0ffe, &[0; 2], &[5; 2]),
        poke(9, 0x1004, &[0], &[5]),
        poke(9, u64::MAX, &[], &[]),
    ] {
        assert_eq!(all.patch(START, &outside, 1), Patched::No);
    }
    assert_eq!(
        all.patch(START, &poke(9, 0x0ffe, &[0, 0, 1], &[5, 5, 6]), 1),
        Patched::Yes
    );
    assert_eq!(
        all.patch(START, &poke(9, 0x1003, &[4, 0], &[8, 9]), 1),
        Patched::Yes
    );
    assert_eq!(
        all.patch(START, &poke(9, 0x1001, &[], &[7]), 2),
        Patched::Yes,
        "new text"
    );
    assert_eq!(
        found(&all),
        [
            (0, vec![1, 2, 3, 4]),
            (1, vec![6, 2, 3, 8]),
            (2, vec![6, 7, 3, 8])
        ]
    );
}

#[test]
fn the_next_range_has_a_version_too() {
    let mut all = read_at(vec![1], 0);
    all.patch(START, &poke(STEPS + 1, 0x1000, &[1], &[2]), 3);
    let mut next = read_at(vec![5], 0);
    next.patch(ImageAddr(0x1001), &poke(STEPS + 1, 0x1001, &[5], &[6]), 4);
    all.append(&next);
    assert_eq!(found(&all), [(0, vec![1, 5]), (3, vec![2, 5]), (4, vec![2, 6])]);
}

proptest! {
    /// Text of eight bytes that is patched at random, read between any two patches, before or after their records: in
    /// every interval the bytes are those of that time.
    #[test]
    fn histories_are_those_that_were(
        patches in prop::collection::vec((0u64..8, 1u8..4), 0..12),
        read_after in 0usize..12,
    ) {
        let mut states = vec![vec![0u8; 8]];
        let mut pokes = Vec::new();
        for (n, (at, new)) in (1u64..).zip(&patches) {
            let mut next = states.last().unwrap().clone();
            let old = next[*at as usize];
            next[*at as usize] = *new;
            pokes.push(poke(n * 3 * STEPS, 0x1000 + at, &[old], &[*new]));
            states.push(next);
        }
        let read_after = read_after.min(patches.len());
        let mut bytes = states[read_after].clone();
        let mut all = read_at(bytes.clone(), 3 * STEPS * read_after as u64);
        rewind(START, &mut bytes, pokes[..read_after].iter().rev());
        prop_assert_eq!(&bytes, &states[0]);
        for (n, poke) in (1u32..).zip(&pokes) {
            prop_assert_ne!(all.patch(START, poke, n), Patched::Unexpected);
        }
        for (n, state) in (0u32..).zip(&states) {
            prop_assert_eq!(all.at(n), state.as_slice());
        }
    }
}
