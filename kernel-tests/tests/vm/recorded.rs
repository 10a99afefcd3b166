//! The stacks of one run, collected live and read as a recording: equal streams, branches, refusals and weights.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use hbbp_code::locate::{Discard, locate};
use hbbp_import::Sample;
use hbbp_import::count::{Counter, Owner, Use};
use hbbp_model::snapshot::{EventIdx, Loss, ProcessIdx, Snapshot, file};
use kernel_tests::trace::Stack;

/// A live profile keeps weights in 1/256 of a branch for each occurrence, rounded down; at a period of a thousand and 31
/// streams that is this share.
const ROUNDING: f64 = 1.2e-4;
/// Largest share of all weight that may be lost with short processes: all of their streams were refused, so none can carry it.
const ALONE: f64 = 1e-3;
/// `PERF_BR_SPEC_WRONG_PATH` in the flags of an entry.
const WRONG_PATH: u64 = 1 << 24;

/// What the branch stacks of a profile hold, over all processes: the trace of the stacks does not name their processes.
#[derive(Debug, Default)]
struct Counts {
    /// Hits and weight by start and end.
    streams: BTreeMap<(u64, u64), (u64, f64)>,
    /// Hits and hits in the oldest slot, by the address of the branch.
    branches: BTreeMap<u64, (u64, u64)>,
    /// Streams that cannot have run: crossing, backward, long.
    refused: [u64; 3],
}

impl Counts {
    fn of(snapshot: &Snapshot, refused: [u64; 3]) -> Self {
        let mut counts = Self {
            refused,
            ..Self::default()
        };
        for stream in snapshot.intervals.iter().flat_map(|interval| &interval.streams) {
            let (hits, weight) = counts.streams.entry((stream.start.0, stream.end.0)).or_default();
            (*hits, *weight) = (*hits + stream.hits, *weight + stream.weight);
        }
        for branch in snapshot.taken_branches().flatten().map(|branch| branch.count) {
            let (hits, oldest) = counts.branches.entry(branch.from.0).or_default();
            (*hits, *oldest) = (*hits + branch.hits, *oldest + branch.oldest);
        }
        counts
    }

    fn weight(&self) -> f64 {
        self.streams.values().map(|(_, weight)| weight).sum()
    }
}

/// The live profile with its counts taken from the stacks instead, as the import counts them.
fn imported(live: &Snapshot, stacks: &[Stack]) -> Snapshot {
    let event = live
        .run
        .events
        .iter()
        .position(|event| event.branch_stack)
        .unwrap();
    let mut counter = Counter::new(1).for_events(&live.run.events);
    let owner = Owner {
        event: EventIdx(u32::try_from(event).unwrap()),
        process: ProcessIdx::KERNEL,
        kernel: ProcessIdx::KERNEL,
        interval: 0,
    };
    for stack in stacks {
        let entry = |(n, entry): (usize, &kernel_tests::layout::Branch)| {
            let flags = if stack.wrong_path >> n & 1 == 1 {
                WRONG_PATH
            } else {
                0
            };
            [entry.from, entry.to, flags].map(u64::to_le_bytes).concat()
        };
        let bytes: Vec<u8> = stack.entries.iter().enumerate().flat_map(entry).collect();
        let sample = Sample {
            tgid: 0,
            tid: 0,
            time: 0,
            ip: None,
            period: Some(stack.period),
            stack: &bytes,
            times: 1,
        };
        let wanted = Use {
            ips: false,
            stacks: true,
        };
        counter.add(owner, &sample, stack.period, None, false, wanted);
    }
    Snapshot {
        intervals: counter.into_intervals(&[(0, 1)]),
        ..live.clone()
    }
}

/// Holds a live profile against its own stacks.
pub(crate) fn compare(profile: &Path, stacks: &[Stack]) {
    let live = file::parse(&fs::read(profile).unwrap()).unwrap();
    let recorded = imported(&live, stacks);
    let discarded = locate(&recorded).discarded;
    let refused = [Discard::Crossing, Discard::Backward, Discard::Long].map(|why| discarded.get(why).total());
    let lost = [Loss::Crossing, Loss::Backward, Loss::Long].map(|loss| live.losses.get(loss));
    let mut recorded = Counts::of(&recorded, refused);
    let live = Counts::of(&live, lost);
    assert_eq!(live.refused, recorded.refused);
    // The weight of all, the refused included, is that of the streams that a live profile keeps.
    let (all, live_all) = (recorded.weight(), live.weight());
    let bound = if refused == [0; 3] { ROUNDING } else { ALONE };
    assert!((live_all / all - 1.0).abs() < bound, "{live_all} {all}");

    recorded
        .streams
        .retain(|(start, end), _| is_possible(*start, *end));
    let hits = |counts: &Counts| -> Vec<_> {
        let streams = counts.streams.iter();
        streams.map(|(ends, (hits, _))| (*ends, *hits)).collect()
    };
    assert_eq!(hits(&live), hits(&recorded));
    if refused == [0; 3] {
        for (ends, (_, weight)) in &live.streams {
            let (_, expected) = recorded.streams[ends];
            let off = weight / expected - 1.0;
            assert!(off.abs() < ROUNDING, "{ends:x?}: {weight} {expected}");
        }
        // Ends of refused streams are no row of a live profile, which makes its branches of its streams.
        assert_eq!(live.branches, recorded.branches);
    }
    println!(
        "{} streams and {} branches are as in the recorded stacks, {refused:?} refused",
        live.streams.len(),
        live.branches.len()
    );
}

/// By the addresses of its ends, written anew.
fn is_possible(start: u64, end: u64) -> bool {
    start >> 63 == end >> 63 && start <= end && end - start < 64 << 10
}
