//! How branches and their weights are derived from streams.

use super::*;
use proptest::prelude::*;

const KERNEL: u64 = 0xffff_ffff_8100_0000;

fn stream(source: Option<u64>, start: u64, end: u64, hits: u64) -> StreamCount {
    StreamCount {
        event: EventIdx(0),
        process: ProcessIdx(1),
        start: Va(start),
        end: Va(end),
        source: source.map(Va),
        hits,
        weight: hits as f64,
        cycles: None,
    }
}

fn oldest(process: u32, from: u64, hits: u64) -> BranchCount {
    BranchCount {
        event: EventIdx(0),
        process: ProcessIdx(process),
        from: Va(from),
        to: Va(0),
        hits,
        oldest: hits,
        mispredicted: None,
    }
}

fn taken(intervals: Vec<Interval>) -> Vec<Vec<(u64, u64, u64, u64)>> {
    let snapshot = Snapshot {
        intervals,
        ..Snapshot::default()
    };
    let row = |WeighedBranch { count: b, .. }: &WeighedBranch| (b.from.0, b.to.0, b.hits, b.oldest);
    let all = snapshot.taken_branches();
    all.map(|branches| branches.iter().map(row).collect()).collect()
}

#[test]
fn ends_oldest_slots_and_what_led_to_a_stream() {
    let interval = Interval {
        streams: vec![
            stream(Some(0x1010), 0x1000, 0x1010, 28),
            stream(Some(0x2000), 0x1000, 0x1010, 2),
            stream(Some(0x1010), 0x1010, 0x1010, 4),
        ],
        branches: vec![oldest(1, 0x1010, 5)],
        ..Interval::default()
    };
    // 34 ends of streams and 5 oldest slots; in 32 of them the branch led to a stream.
    let expected = vec![
        (0x1010, 0, 7, 5),
        (0x1010, 0x1000, 28, 0),
        (0x1010, 0x1010, 4, 0),
        (0x2000, 0x1000, 2, 0),
    ];
    assert_eq!(taken(vec![interval]), [expected]);
}

/// The weights of branches and of their oldest slots, by source and target.
fn weights(streams: Vec<StreamCount>, branches: Vec<BranchCount>) -> Vec<(u64, u64, f64, f64)> {
    let interval = Interval {
        streams,
        branches,
        ..Interval::default()
    };
    let row = |b: &WeighedBranch| (b.count.from.0, b.count.to.0, b.weight, b.oldest_weight);
    taken_in(&[interval]).iter().flatten().map(row).collect()
}

#[test]
fn branches_have_the_weight_of_their_streams() {
    let weighing = |stream: StreamCount, each: f64| StreamCount {
        weight: stream.hits as f64 * each,
        ..stream
    };
    let found = weights(
        vec![
            // What two stacks saw of a loop, the denser one of twice as many rounds, each with the branch in one more slot: the
            // oldest, which leads to a stream as well.
            weighing(stream(Some(0x1010), 0x1000, 0x1010, 20), 1.0),
            weighing(stream(Some(0x1010), 0x1000, 0x1010, 10), 4.0),
            // Another that is known by what it led to alone.
            weighing(stream(Some(0x2000), 0x3000, 0x3010, 2), 7.0),
        ],
        vec![oldest(1, 0x1010, 3), oldest(1, 0x4000, 1)],
    );
    let mean = 74.0 / 32.0;
    let expected = [
        // Three hits are newest: the weight of its oldest slots, which is two each.
        (0x1010, 0, 6.0, 6.0),
        (0x1010, 0x1000, 60.0, 0.0),
        (0x2000, 0x3000, 14.0, 0.0),
        (0x3010, 0, 14.0, 0.0),
        (0x4000, 0, mean, mean),
    ];
    assert_eq!(found, expected);
}

#[test]
fn separate_counts_are_unchanged() {
    let branch = BranchCount {
        to: Va(0x1000),
        ..oldest(1, 0x1010, 5)
    };
    let interval = Interval {
        streams: vec![stream(None, 0x1000, 0x1010, 28)],
        branches: vec![branch],
        ..Interval::default()
    };
    assert_eq!(taken(vec![interval]), [[(0x1010, 0x1000, 5, 5)]]);
}

#[test]
fn a_branch_belongs_to_the_first_interval_of_its_drain() {
    let first = Interval {
        streams: vec![stream(Some(0), 0x1000, 0x1010, 3)],
        ..Interval::default()
    };
    let second = Interval {
        streams: vec![stream(Some(0x1010), 0x2000, 0x2010, 2)],
        continues: true,
        ..Interval::default()
    };
    let with_target = (0x1010, 0x2000, 2, 0);
    let both = taken(vec![first.clone(), second.clone()]);
    assert_eq!(
        both,
        [vec![(0x1010, 0, 1, 0)], vec![with_target, (0x2010, 0, 2, 0)]]
    );
    let next = Interval {
        continues: false,
        ..second
    };
    let apart = taken(vec![first, next]);
    assert_eq!(
        apart,
        [vec![(0x1010, 0, 3, 0)], vec![with_target, (0x2010, 0, 2, 0)]]
    );
}

#[test]
fn a_return_to_user_code_ends_a_stream_of_the_kernel() {
    let in_kernel = StreamCount {
        process: ProcessIdx::KERNEL,
        ..stream(Some(0), KERNEL, KERNEL + 8, 9)
    };
    let interval = Interval {
        streams: vec![in_kernel, stream(Some(KERNEL + 8), 0x1000, 0x1004, 4)],
        ..Interval::default()
    };
    let expected = vec![
        (KERNEL + 8, 0, 5, 0),
        (0x1004, 0, 4, 0),
        (KERNEL + 8, 0x1000, 4, 0),
    ];
    assert_eq!(taken(vec![interval]), [expected]);
}

proptest! {
    /// The table derived from branch stacks equals the one that counts every slot. A branch in any slot but the newest is known
    /// by its target, and the newest has none.
    #[test]
    fn every_slot_of_a_stack_is_counted_once(
        stacks in prop::collection::vec(prop::collection::vec((0u64..6, 0u64..6), 2..6), 1..20),
    ) {
        let mut interval = Interval::default();
        let mut expected: BTreeMap<(u64, u64), (u64, u64)> = BTreeMap::new();
        for stack in &stacks {
            // Newest first; addresses from 1 on, as 0 means none.
            let stack: Vec<(u64, u64)> = stack.iter().map(|(from, to)| (from + 1, to + 1)).collect();
            for pair in stack.windows(2) {
                let (newer, older) = (pair[0], pair[1]);
                interval.streams.push(stream(Some(older.0), older.1, newer.0, 1));
                expected.entry(older).or_default().0 += 1;
            }
            let (newest, last) = (stack[0], stack[stack.len() - 1]);
            expected.entry((newest.0, 0)).or_default().0 += 1;
            expected.entry((last.0, 0)).or_default().1 += 1;
            interval.branches.push(oldest(1, last.0, 1));
        }
        let expected: Vec<_> = expected
            .into_iter()
            .map(|((from, to), (hits, oldest))| (from, to, hits, oldest))
            .collect();
        prop_assert_eq!(taken(vec![interval]), [expected]);
    }

    /// The same as a table that is kept while counting: all ends and oldest slots, less what is known by its target.
    #[test]
    fn streams_give_the_table_of_branches(
        streams in prop::collection::vec((0u64..2, 0u64..5, 0u64..5, 0u64..5, 0u64..9), 0..30),
        slots in prop::collection::vec((0u64..2, 0u64..5, 1u64..9), 0..10),
    ) {
        let at = |kernel: u64, at: u64| kernel * KERNEL + at;
        let process = |at: u64| ProcessIdx(u32::from(at < KERNEL));
        let mut interval = Interval::default();
        for (kernel, source, start, len, hits) in streams {
            let (start, end) = (at(kernel, start + 1), at(kernel, start + 1 + len));
            // From either ring to user code, from the kernel to the kernel, or unknown.
            let source = if source < 2 { at(source, 3) } else { at(kernel, source - 2) };
            let source = if KERNEL <= start && source < KERNEL { 0 } else { source };
            let process = process(start);
            interval.streams.push(StreamCount { process, ..stream(Some(source), start, end, hits) });
        }
        for (kernel, from, hits) in slots {
            let from = at(kernel, from + 1);
            interval.branches.push(oldest(process(from).0, from, hits));
        }
        let mut table: BTreeMap<(ProcessIdx, u64, u64), (u64, u64)> = BTreeMap::new();
        for s in &interval.streams {
            table.entry((s.process, s.end.0, 0)).or_default().0 += s.hits;
            if let Some(Va(source)) = s.source.filter(|source| *source != Va(0)) {
                table.entry((s.process, source, s.start.0)).or_default().0 += s.hits;
            }
        }
        for b in &interval.branches {
            let (hits, oldest) = table.entry((b.process, b.from.0, 0)).or_default();
            (*hits, *oldest) = (*hits + b.hits, *oldest + b.oldest);
        }
        for ((process, from, to), (with_target, _)) in table.clone() {
            let owners = [process, ProcessIdx::KERNEL].map(|owner| (owner, from, 0));
            let owner = owners.into_iter().find(|any| to != 0 && table.contains_key(any));
            if let Some((any, _)) = owner.and_then(|any| table.get_mut(&any)) {
                *any = any.saturating_sub(with_target);
            }
        }
        table.retain(|_, (hits, oldest)| *hits != 0 || *oldest != 0);
        let expected: Vec<_> = table
            .into_iter()
            .map(|((_, from, to), (hits, oldest))| (from, to, hits, oldest))
            .collect();
        if !interval.streams.is_empty() {
            prop_assert_eq!(taken(vec![interval]), [expected]);
        }
    }
}
