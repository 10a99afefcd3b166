//! Streams by hand, and against a plain walk through each stack.

use std::collections::BTreeMap;

use hbbp_ebpf::Tally;
use hbbp_ebpf::key::WEIGHT_ONE;
use proptest::prelude::*;

use super::table::FEW;
use super::*;

const KERNEL: u64 = 0xffff_ffff_8100_0000;
const SWITCH: (u64, u64) = (KERNEL + 0x100, 0x40);

/// A process.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
struct Process(u32);

impl Owner for Process {
    fn event(&self) -> u32 {
        0
    }

    fn of_kernel(&self, kernel: KernelCounts) -> Self {
        match kernel {
            KernelCounts::Together => Self(0),
            KernelCounts::ByProcess => *self,
        }
    }
}

type Counts = Streams<Process, Tally>;

fn entry(from: u64, to: u64) -> BranchEntry {
    BranchEntry { from, to, flags: 0 }
}

fn streams(quirks: Quirks) -> Counts {
    Streams::new(1 << 20, quirks)
}

/// Counts stacks of a process, at a period of 300.
fn count(streams: &mut Counts, stack: &[BranchEntry], process: u32, times: u64) {
    let taken = Taken {
        period: 300,
        times,
        time: 1,
    };
    streams.count(stack, Process(process), &taken);
}

/// Process, source, start and end of a stream, or process, zero, branch and zero of an oldest slot.
type Key = (u32, u64, u64, u64);

/// What was counted, equal keys together: hits and weight.
fn taken(streams: &mut Counts) -> BTreeMap<Key, (u64, u64)> {
    let mut sums = BTreeMap::new();
    streams.take_possible(|Process(process), counted, tally| {
        let key = match counted {
            Counted::Stream(Stream { from, start, end }) => (*process, from, start, end),
            Counted::Oldest(branch) => (*process, 0, branch, 0),
        };
        let (hits, weight) = sums.entry(key).or_insert((0, 0));
        *hits += tally.hits;
        *weight += tally.weight;
    });
    sums
}

#[test]
fn neighbours_make_streams_and_the_oldest_branch_is_counted() {
    let mut streams = streams(Quirks::default());
    // Kernel code that user code led to, and user code that it led to.
    let stack = [
        entry(0x1020, 0x9999),
        entry(KERNEL + 5, 0x1000),
        entry(0x2000, KERNEL),
    ];
    count(&mut streams, &stack, 7, 3);
    let expected = BTreeMap::from([
        ((7, KERNEL + 5, 0x1000, 0x1020), (3, 450 * WEIGHT_ONE)),
        ((0, 0x2000, KERNEL, KERNEL + 5), (3, 450 * WEIGHT_ONE)),
        ((7, 0, 0x2000, 0), (3, 0)),
    ]);
    assert_eq!(taken(&mut streams), expected);
    let stats = streams.stats(0);
    assert_eq!((stats.stacks, stats.entries, stats.streams), (3, 9, 6));
    assert!(taken(&mut streams).is_empty(), "it was taken out");
}

#[test]
fn what_is_counted_after_a_taking_has_its_owner() {
    let mut streams = streams(Quirks::default());
    let stack = [
        entry(KERNEL + 9, 0x50),
        entry(0x1010, KERNEL),
        entry(0x2000, 0x1000),
    ];
    let mut rows = || {
        count(&mut streams, &stack, 7, 1);
        taken(&mut streams)
    };
    let first = rows();
    assert_eq!(first.len(), 3);
    // The owner of the last stack is the one of the next.
    assert_eq!(rows(), first);
}

#[test]
fn a_stack_ends_at_its_first_empty_entry() {
    let mut streams = streams(Quirks::default());
    count(
        &mut streams,
        &[entry(30, 40), entry(20, 25), entry(0, 0), entry(0, 0)],
        7,
        1,
    );
    count(&mut streams, &[entry(0, 0), entry(0, 0)], 7, 1);
    let stats = streams.stats(0);
    assert_eq!((stats.stacks, stats.entries, stats.streams), (1, 2, 1));
}

/// Streams that cannot have run are discarded with their reasons, and the others carry their weight.
#[test]
fn take_possible_redistributes_weight() {
    let mut streams = streams(Quirks::default());
    let stack = [
        entry(0x1010, 0x50),
        entry(0x2000, 0x1000),
        // Backward.
        entry(0x10_0000, 0x2008),
        // Long.
        entry(0x1400, 0x3000),
        // Crossing.
        entry(KERNEL + 0x20, KERNEL + 0x500),
        entry(0x5000, KERNEL),
    ];
    count(&mut streams, &stack, 7, 2);
    let rows = taken(&mut streams);
    let expected = StackStats {
        stacks: 2,
        entries: 12,
        streams: 4,
        backward: 2,
        long: 2,
        crossing: 2,
        ..StackStats::default()
    };
    assert_eq!(streams.stats(0), expected);
    let weight = |address| {
        let row = rows
            .iter()
            .find(|((_, _, start, end), _)| *start == address && *end != 0);
        row.map(|(_, (hits, weight))| (*hits, *weight / WEIGHT_ONE))
    };
    // Each of five streams has the weight 60, twice. The user's streams share the weight of the backward and the long
    // one, the kernel's that of the one that begins there and ends in user code.
    assert_eq!(weight(0x1000), Some((2, 360)));
    assert_eq!(weight(KERNEL), Some((2, 240)));
}

#[test]
fn the_weight_of_a_context_without_a_possible_stream_is_lost() {
    let mut streams = streams(Quirks::default());
    count(&mut streams, &[entry(0x1000, 0x50), entry(0x2000, 0x1008)], 7, 1);
    count(&mut streams, &[entry(0x1010, 0x50), entry(0x2000, 0x1000)], 8, 1);
    let weights: Vec<_> = taken(&mut streams)
        .into_values()
        .filter(|(_, weight)| 0 < *weight)
        .collect();
    assert_eq!(weights, [(1, 300 * WEIGHT_ONE)]);
}

#[test]
fn user_streams_from_before_a_context_switch_are_set_aside() {
    let mut streams = streams(Quirks {
        switch: SWITCH,
        ..Quirks::default()
    });
    let end = SWITCH.0 + 0x10;
    let stack = [
        entry(0x1010, 0x50),
        // Ends in the change of tasks: user code from here on is another process's, kernel code is the same.
        entry(end, 0x1000),
        entry(0x3010, SWITCH.0),
        entry(KERNEL + 0x20, 0x3000),
        entry(0x5000, KERNEL),
        // Before the switch, whatever else may be said of it.
        entry(0x4000, 0x5008),
        entry(0x1000, 0x200_0000),
    ];
    // Twice, as what was counted is in the table then.
    for _ in 0..2 {
        count(&mut streams, &stack, 7, 2);
    }
    let rows = taken(&mut streams);
    let expected = StackStats {
        stacks: 4,
        entries: 28,
        streams: 12,
        switched: 12,
        ..StackStats::default()
    };
    assert_eq!(streams.stats(0), expected);
    let of_kernel: u64 = rows
        .iter()
        .filter(|((_, _, start, _), _)| is_kernel(*start))
        .map(|(_, (_, weight))| weight / WEIGHT_ONE)
        .sum();
    assert_eq!(of_kernel, 4 * 50 * 5, "with that of three streams of each stack");
}

#[test]
fn the_newest_entry_is_left_out_where_it_may_be_a_copy() {
    let sound = [entry(30, 40), entry(20, 25), entry(10, 15)];
    let repeated = [sound[0], sound[0], sound[1], sound[2]];
    let quirks = Quirks {
        repeats_newest: true,
        ..Quirks::default()
    };
    let mut of_skylake = streams(quirks);
    count(&mut of_skylake, &repeated, 7, 1);
    let mut of_others = streams(Quirks::default());
    count(&mut of_others, &sound, 7, 1);
    assert_eq!(taken(&mut of_skylake), taken(&mut of_others));
    let (stats, others) = (of_skylake.stats(0), of_others.stats(0));
    assert_eq!((stats.newest_unused, others.newest_unused), (1, 0));
    assert_eq!(
        (stats.stacks, stats.entries, stats.streams),
        (others.stacks, others.entries, others.streams)
    );
    // All that such a stack has.
    count(&mut of_skylake, &sound[..1], 7, 1);
    assert_eq!(
        (of_skylake.stats(0).newest_unused, of_skylake.stats(0).stacks),
        (2, 1)
    );
}

/// Stacks of a program that goes round one loop of one block, then another one, and back: with copies of newest entries and
/// without, each stream has its share.
#[test]
fn copies_of_newest_entries_move_no_share() {
    /// Rounds of each loop, and branches of the whole.
    const ROUNDS: [usize; 2] = [3, 11];
    let mut history = Vec::new();
    for (rounds, at) in ROUNDS.into_iter().zip([0x1000, 0x2000]) {
        history.extend(vec![entry(at + 0x10, at); rounds]);
        history.push(entry(at + 0x20, if at == 0x1000 { 0x2000 } else { 0x1000 }));
    }
    history.reverse();
    let around: Vec<_> = history.iter().cycle().take(3 * history.len()).copied().collect();
    let mut streams = streams(Quirks {
        repeats_newest: true,
        ..Quirks::default()
    });
    for at in 0..history.len() {
        for copies in [0, 1, 0, 0] {
            let newest = vec![around[at]; copies];
            let stack = [&newest, around.get(at..at + 16 - copies).unwrap()].concat();
            count(&mut streams, &stack, 7, 1);
        }
    }
    let mut weights: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for ((_, _, start, end), (_, weight)) in taken(&mut streams) {
        *weights.entry((start, end)).or_default() += weight;
    }
    let all: u64 = weights.values().sum();
    for (rounds, at) in ROUNDS.into_iter().zip([0x1000, 0x2000]) {
        let share = weights[&(at, at + 0x10)] as f64 / all as f64;
        let exact = rounds as f64 / history.len() as f64;
        assert!((share / exact - 1.0).abs() < 1e-3, "{share} is not {exact}");
    }
}

/// A stack right after a far branch also has the weight of the one that could not be taken there.
#[test]
fn stack_after_a_far_branch_has_double_weight() {
    let quirks = Quirks {
        near_only: 1,
        ..Quirks::default()
    };
    let weight = |stack: &[BranchEntry]| {
        let mut streams = streams(quirks);
        count(&mut streams, stack, 7, 1);
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
    let copied = [far[0], far[0], far[1], far[2]];
    assert_eq!(weight(&copied), 600 * WEIGHT_ONE);
}

#[test]
fn a_full_table_refuses_what_is_new_and_counts_what_is_not() {
    let mut streams = Counts::new(2, Quirks::default());
    let stack = [entry(30, 40), entry(20, 25), entry(10, 15)];
    for _ in 0..3 {
        count(&mut streams, &stack, 7, 1);
    }
    assert!(streams.is_half_full());
    count(&mut streams, &[entry(130, 140), entry(120, 125)], 7, 1);
    let stats = streams.stats(0);
    assert_eq!((stats.streams, stats.refused), (6, 1));
    assert_eq!(stats.refused_oldest, 1);
    assert_eq!(stats.entries, stats.stacks + stats.streams + stats.refused);
}

/// Streams that are made for one slot are refused after a while.
#[test]
fn streams_with_colliding_hashes_are_refused() {
    let mut streams = streams(Quirks::default());
    // The same sum of start and eight times the end.
    for n in 0..2000 {
        let end = 0x1000_0000 + n;
        let stack = [entry(end, 0x50), entry(0x2000, 0x1000_0000 - 8 * n)];
        count(&mut streams, &stack, 7, 1);
    }
    let n: u64 = taken(&mut streams).values().map(|(hits, _)| hits).sum();
    let stats = streams.stats(0);
    assert_eq!(stats.entries, stats.stacks + stats.streams + stats.refused);
    assert_eq!(stats.refused, 2000 - 1024);
    assert_eq!(n, stats.streams + stats.stacks - stats.refused_oldest);
}

/// Kernel code is counted once for all processes, unless it is split by process.
#[test]
fn kernel_code_is_counted_once_unless_split() {
    for (kernel, n) in [(KernelCounts::Together, 1), (KernelCounts::ByProcess, 2)] {
        let mut streams = streams(Quirks {
            kernel,
            ..Quirks::default()
        });
        for tgid in [7, 8] {
            let stack = [entry(KERNEL + 9, 40), entry(KERNEL + 50, KERNEL)];
            count(&mut streams, &stack, tgid, 1);
        }
        let rows = taken(&mut streams);
        let of_streams = rows.keys().filter(|key| key.3 != 0);
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
    /// Against a plain walk, with each stream judged by itself.
    #[test]
    fn streams_are_what_a_plain_walk_gives(stacks in stacks()) {
        let mut streams = streams(Quirks { switch: SWITCH, ..Quirks::default() });
        let mut expected: BTreeMap<(u64, u64, u32), u64> = BTreeMap::new();
        let mut refused = 0;
        let mut n_entries = 0;
        for (stack, tgid, times) in &stacks {
            count(&mut streams, stack, *tgid, *times);
            n_entries += times * stack.len() as u64;
            let mut switched = false;
            for pair in stack.windows(2) {
                let [younger, older] = pair else { continue };
                let stream = Stream { from: older.from, start: older.to, end: younger.from };
                switched |= stream.end.wrapping_sub(SWITCH.0) < SWITCH.1;
                let is_of_other = switched && !is_kernel(stream.start);
                if is_of_other || stream.refusal().is_some() {
                    refused += times;
                    continue;
                }
                let owner = if is_kernel(stream.start) { 0 } else { *tgid };
                *expected.entry((stream.start, stream.end, owner)).or_default() += times;
            }
        }
        let rows = taken(&mut streams);
        let stats = streams.stats(0);
        let discarded = stats.backward + stats.crossing + stats.long + stats.switched;
        prop_assert_eq!(discarded, refused);
        prop_assert_eq!(stats.entries, n_entries);
        prop_assert_eq!(stats.entries, stats.stacks + stats.streams + discarded + stats.refused);
        let mut counted: BTreeMap<(u64, u64, u32), u64> = BTreeMap::new();
        let mut oldest = 0;
        for ((process, _, start, end), (hits, _)) in rows {
            if end == 0 {
                oldest += hits;
            } else {
                *counted.entry((start, end, process)).or_default() += hits;
            }
        }
        prop_assert_eq!(counted, expected);
        prop_assert_eq!(oldest, stats.stacks, "each stack has one branch in its oldest slot");
    }

    /// More streams than there are slots at the start.
    #[test]
    fn a_table_that_grows_loses_nothing(seed in 0u64..1000) {
        let mut streams = streams(Quirks::default());
        let n = FEW as u64 + 1;
        for i in (0..n).chain(0..n / 2) {
            let start = KERNEL + (i ^ seed) * 64;
            count(&mut streams, &[entry(start + 9, KERNEL), entry(KERNEL + seed, start)], 7, 1);
        }
        let rows = taken(&mut streams);
        let of_streams: Vec<_> = rows.iter().filter(|(key, _)| key.3 != 0).collect();
        prop_assert_eq!(of_streams.len() as u64, n);
        prop_assert_eq!(of_streams.iter().map(|(_, (hits, _))| hits).sum::<u64>(), n + n / 2);
    }
}
