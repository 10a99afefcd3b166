//! Segments are kept, merged and removed for what they hold.

use std::ops::Range;

use super::*;
use hbbp_model::snapshot::{Interval, Process};

#[test]
fn segments_are_merged_within_the_memory() {
    let name = |first: u64| Name {
        first,
        last: first,
        start: first,
        length: 1,
    };
    let group: Vec<Name> = (0..40).map(name).collect();
    let sizes = |bytes: u64| -> BTreeMap<Name, u64> { group.iter().map(|it| (*it, bytes)).collect() };
    let n = |bytes, memory| n_at_once(&group, &sizes(bytes), memory);
    assert_eq!(n(1_000, 1 << 20), AT_ONCE);
    assert_eq!(n(1_000, 20_000), 5);
    assert_eq!(n(1_000, 7_999), 1, "no two");
    assert_eq!(n(1_000, 0), 1);
    assert_eq!(n(u64::MAX, usize::MAX / 2), 1);
}

#[test]
fn damaged_segment_is_tried_and_counted_once() {
    let made = tempfile::tempdir().unwrap();
    let counters = Arc::new(Counters::default());
    // Two of an hour, and one of a later hour, after which the first two are merged.
    for (n, start) in [(0, 0), (1, 60_000), (2, 7_200_000)] {
        let name = Name {
            first: n,
            last: n,
            start,
            length: 60_000,
        };
        std::fs::write(made.path().join(name.to_string()), "damaged").unwrap();
    }
    let folder = Folder::open(made.path()).unwrap();
    let mut keeper = Keeper::open(folder, Limits::default(), 64 << 20, Arc::clone(&counters), None).unwrap();
    keeper.tidy().unwrap();
    keeper.tidy().unwrap();
    assert_eq!(counters.get(Counter::SegmentsUnreadable), 1);
}

const MINUTE: u64 = 60_000;

/// An interval of a minute, from this minute on.
fn minute(n: u64, host: &str) -> Snapshot {
    let ns = |minute: u64| minute * MINUTE * MS;
    let mut snapshot = Snapshot {
        processes: vec![Process::default()],
        intervals: vec![Interval {
            start: ns(n),
            end: ns(n + 1),
            ..Interval::default()
        }],
        ..Snapshot::default()
    };
    snapshot.run.host = host.to_owned();
    (snapshot.run.started, snapshot.run.duration) = (ns(n), ns(1));
    snapshot
}

fn name(first: u64, last: u64) -> Name {
    Name {
        first,
        last,
        start: first * MINUTE,
        length: (last + 1 - first) * MINUTE,
    }
}

/// What is in a folder of twenty-five minutes of this host and of other segments, after a keeper has kept these minutes.
fn left_beside(others: &[(Name, Vec<u8>)], minutes: Range<u64>) -> (Vec<Name>, Arc<Counters>) {
    let made = tempfile::tempdir().unwrap();
    let counters = Arc::new(Counters::default());
    let folder = Folder::open(made.path()).unwrap();
    for n in 0..25 {
        let bytes = encode_runs(&[minute(n, "here")], Compression::Fast).unwrap();
        folder.write(&name(n, n), &bytes).unwrap();
    }
    for (name, bytes) in others {
        std::fs::write(made.path().join(name.to_string()), bytes).unwrap();
    }
    let mut keeper = Keeper::open(folder, Limits::default(), 64 << 20, Arc::clone(&counters), None).unwrap();
    minutes.for_each(|n| keeper.keep(minute(n, "here")));
    let listing = Listing::read(made.path()).unwrap();
    (listing.names().into_iter().collect(), counters)
}

#[test]
fn segment_that_only_is_named_like_a_merged_one_removes_nothing() {
    let of = |runs: &[Snapshot]| encode_runs(runs, Compression::Fast).unwrap();
    let elsewhere: Vec<Snapshot> = united((0..60).map(|n| minute(n, "elsewhere")));
    let torn = of(&united((0..25).map(|n| minute(n, "here"))));
    let others = [
        Vec::new(),
        of(&elsewhere),
        torn[..torn.len() - 1].to_vec(),
        // Of the right host, and of another day.
        of(&[minute(1440, "here")]),
    ];
    for bytes in others {
        let (left, counters) = left_beside(&[(name(0, 59), bytes)], 25..27);
        assert_eq!(left.len(), 25 + 1 + 2, "{left:?}");
        assert_eq!(counters.get(Counter::SegmentsHeld), 0);
    }
}

/// Found by a soak: each interval was compared with it again, and merging stopped.
#[test]
fn later_segment_named_like_a_merged_one_changes_nothing() {
    let of = |runs: &[Snapshot]| encode_runs(runs, Compression::Fast).unwrap();
    let others = [
        // Names that hold all to come, and one that holds what would be merged first.
        (name(0, 9_000), Vec::new()),
        (name(0, 9_000), of(&[minute(1440, "here")])),
        (name(0, 100), of(&[minute(3, "elsewhere")])),
        (name(0, 15), Vec::new()),
    ];
    for (planted, bytes) in others {
        let made = tempfile::tempdir().unwrap();
        let counters = Arc::new(Counters::default());
        let folder = Folder::open(made.path()).unwrap();
        let mut keeper =
            Keeper::open(folder, Limits::default(), 64 << 20, Arc::clone(&counters), None).unwrap();
        keeper.keep(minute(0, "here"));
        let path = made.path().join(planted.to_string());
        std::fs::write(&path, &bytes).unwrap();
        (1..40)
            .chain(100..105)
            .for_each(|n| keeper.keep(minute(n, "here")));
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{planted}");
        let listing = Listing::read(made.path()).unwrap();
        let kept: BTreeSet<u64> = listing.names().iter().flat_map(Name::intervals).collect();
        assert!((0..45).all(|n| kept.contains(&n)), "{planted}: {kept:?}");
        assert_eq!(counters.get(Counter::SegmentsHeld), 0);
        // The first minute is on the other side of it.
        assert!(39 <= counters.get(Counter::SegmentsMerged), "{planted}");
    }
}

#[test]
fn what_a_killed_daemon_had_merged_is_removed() {
    let merged = united((0..20).map(|n| minute(n, "here")));
    let merged = encode_runs(&merged, Compression::Small).unwrap();
    let (left, counters) = left_beside(&[(name(0, 19), merged)], 25..27);
    let intervals: Vec<u64> = left.iter().flat_map(Name::intervals).collect();
    assert_eq!(intervals[..25], (0..25).collect::<Vec<u64>>());
    assert_eq!((left.len(), counters.get(Counter::SegmentsHeld)), (1 + 5 + 2, 20));
}

#[test]
fn segments_of_another_host_are_not_merged() {
    let elsewhere = encode_runs(&[minute(30, "elsewhere")], Compression::Fast).unwrap();
    // A segment of a later hour: the whole first hour is merged, in several steps.
    let (left, counters) = left_beside(&[(name(30, 30), elsewhere)], 300..305);
    assert_eq!(left[..2], [name(0, 24), name(30, 30)], "{left:?}");
    assert!(25 <= counters.get(Counter::SegmentsMerged));
}

#[test]
fn next_daemon_continues_after_the_last_interval() {
    let made = tempfile::tempdir().unwrap();
    let open = || {
        let folder = Folder::open(made.path()).unwrap();
        Keeper::open(folder, Limits::default(), 64 << 20, Arc::default(), None).unwrap()
    };
    assert_eq!(open().next, 0);
    let name = Name {
        first: 3,
        last: 7,
        start: 0,
        length: 1,
    };
    std::fs::write(made.path().join(name.to_string()), "").unwrap();
    assert_eq!(open().next, 8);
}

#[test]
fn foreign_files_are_counted_as_they_come() {
    let made = tempfile::tempdir().unwrap();
    let counters = Arc::new(Counters::default());
    let folder = Folder::open(made.path()).unwrap();
    let mut keeper = Keeper::open(folder, Limits::default(), 64 << 20, Arc::clone(&counters), None).unwrap();
    let foreign = || counters.get(Counter::ForeignFiles);
    std::fs::write(made.path().join("a.txt"), "").unwrap();
    keeper.tidy().unwrap();
    keeper.tidy().unwrap();
    assert_eq!(foreign(), 1);
    std::fs::write(made.path().join("b.txt"), "").unwrap();
    keeper.tidy().unwrap();
    std::fs::remove_file(made.path().join("b.txt")).unwrap();
    keeper.tidy().unwrap();
    assert_eq!(foreign(), 2);
}
