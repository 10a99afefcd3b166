//! Segments are kept, merged and removed for what they hold.

mod mix;

use std::ops::Range;
use std::time::Duration;

use super::*;
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{Interval, Module, ModuleIdx, ModuleKind, Process, Text};

/// Bytes that do not compress, different for each seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = std::iter::repeat_with(|| {
        // xorshift64 (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    });
    next.take(len).collect()
}

/// A minute with ranges of text of these numbers.
fn minute_with_text(n: u64, texts: &[u64]) -> Snapshot {
    const LEN: usize = 64 << 10;
    let text = |seed: &u64| Text {
        module: ModuleIdx(0),
        start: ImageAddr(seed * LEN as u64 * 2),
        bytes: noise(*seed, LEN),
        since: 0,
    };
    Snapshot {
        modules: vec![Module {
            name: "cc1".to_owned(),
            kind: ModuleKind::Elf64,
            build_id: vec![1],
            symbols: Vec::new(),
        }],
        text: texts.iter().map(text).collect(),
        ..minute(n, "here")
    }
}

/// What is left of the segments of an hour, and the counters, after a keeper with this memory for merging has kept some later ones.
fn left_of(hour: &[(Name, Snapshot)], memory: usize) -> (Vec<Name>, Arc<Counters>) {
    let made = tempfile::tempdir().unwrap();
    let counters = Arc::new(Counters::default());
    let folder = Folder::open(made.path()).unwrap();
    for (name, snapshot) in hour {
        let bytes = encode_runs(std::slice::from_ref(snapshot), Compression::Fast).unwrap();
        folder.write(name, &bytes).unwrap();
    }
    let mut keeper = Keeper::open(folder, Limits::default(), 0, Arc::clone(&counters), None).unwrap();
    keeper.memory = memory;
    (300..310).for_each(|n| keeper.keep(minute(n, "here")));
    let listing = Listing::read(made.path()).unwrap();
    let hour = listing
        .names()
        .into_iter()
        .filter(|name| name.start < 60 * MINUTE);
    (hour.collect(), counters)
}

/// Minutes from the beginning of an hour on, each with the text that `texts` gives.
fn minutes_with_text(n: u64, texts: impl Fn(u64) -> Range<u64>) -> Vec<(Name, Snapshot)> {
    let minute = |n| (name(n, n), minute_with_text(n, &texts(n).collect::<Vec<u64>>()));
    (0..n).map(minute).collect()
}

/// What the segments hold together is bounded, not the length of their files: those of a machine that compiles were never merged.
#[test]
fn segments_with_the_same_text_are_merged_in_little_memory() {
    // 256 KiB of text held, and read once more.
    let (left, counters) = left_of(&minutes_with_text(40, |_| 1..5), 2 << 20);
    assert_eq!(left, [name(0, 39)]);
    assert_eq!(counters.get(Counter::SegmentsMerged), 40);
    assert_eq!(counters.get(Counter::SegmentsLarge), 0);
    // A new range in each.
    let (left, _) = left_of(&minutes_with_text(20, |n| n..n + 4), 4 << 20);
    assert_eq!(left, [name(0, 19)]);
}

#[test]
fn segments_are_merged_within_the_memory() {
    // Each range in one segment alone.
    let others = minutes_with_text(40, |n| 4 * n..4 * n + 4);
    let (left, counters) = left_of(&others, 4 << 20);
    assert!((2..20).contains(&left.len()), "{left:?}");
    assert!(left.iter().flat_map(Name::intervals).eq(0..40));
    assert!(0 < counters.get(Counter::SegmentsLarge));
    let (left, counters) = left_of(&others, 1 << 20);
    assert_eq!(left.len(), 40, "no two");
    assert_eq!(counters.get(Counter::SegmentsMerged), 0);
}

/// They are compared one after the other, as they would not fit into memory together.
#[test]
fn what_a_killed_daemon_had_merged_is_removed_in_little_memory() {
    let mut hour = minutes_with_text(40, |_| 1..5);
    let merged = united(hour.iter().map(|(_, snapshot)| snapshot.clone()));
    hour.push((name(0, 39), merged[0].clone()));
    let (left, counters) = left_of(&hour, 2 << 20);
    assert_eq!(left, [name(0, 39)]);
    assert_eq!(counters.get(Counter::SegmentsHeld), 40);
}

/// Two are read at least, or no merge would ever end.
#[test]
fn merge_that_takes_long_goes_on_after_the_next_interval() {
    let made = tempfile::tempdir().unwrap();
    let counters = Arc::new(Counters::default());
    let folder = Folder::open(made.path()).unwrap();
    for n in 0..20 {
        let bytes = encode_runs(&[minute(n, "here")], Compression::Fast).unwrap();
        folder.write(&name(n, n), &bytes).unwrap();
    }
    let mut keeper = Keeper::open(folder, Limits::default(), 64 << 20, Arc::clone(&counters), None).unwrap();
    keeper.reading = Duration::ZERO;
    let hour = || {
        let names = Listing::read(made.path()).unwrap().names();
        names.into_iter().filter(|name| name.start < 60 * MINUTE)
    };
    for n in 0..25 {
        keeper.keep(minute(300 + n, "here"));
        assert!(hour().flat_map(|name| name.intervals()).eq(0..20), "{n}");
        let expected = 20_u64.saturating_sub(n + 1).max(1);
        assert_eq!(hour().count() as u64, expected, "two become one each time");
    }
    assert_eq!(counters.get(Counter::MergesFailed), 0);
    assert_eq!(counters.get(Counter::SegmentsLarge), 0);
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
    snapshot.run.host.name = host.to_owned();
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
