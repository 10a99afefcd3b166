//! Time by the cycles in branch records: each record states the cycles since the branch before it, so a stream of straight code
//! has the cycles that it took (Intel SDM volume 3, "LBR_INFO": cycle count).
//!
//! They show the cycles of an execution without any sample of time. The cycles of a stream are shared equally among its
//! instructions, as nothing shows where in it they passed: a loop or a function has the right sum, a single instruction the mean
//! around it. Executions times cycles per execution are the time.

use std::collections::{BTreeMap, BTreeSet};

use super::{Spent, Time};
use hbbp_code::blocks::BlockMap;
use hbbp_code::locate::{AddressMap, TextIdx};
use hbbp_estimate::BlockCounts;
use hbbp_model::snapshot::{EventIdx, EventUnit, Snapshot, StreamCount};

/// What the streams through an instruction recorded.
#[derive(Clone, Copy, Debug, Default)]
struct Recorded {
    /// Streams.
    hits: f64,
    /// The parts of them that are this instruction's.
    parts: f64,
    /// Cycles.
    cycles: f64,
}

impl Recorded {
    fn add(&mut self, other: Self, sign: f64) {
        self.hits += sign * other.hits;
        self.parts += sign * other.parts;
        self.cycles += sign * other.cycles;
    }
}

/// By text, at each instruction the sum that begins there minus those that end before it.
type Changes = BTreeMap<TextIdx, Vec<Recorded>>;

impl Time {
    /// The time that branch records show; `None` if they hold no cycles.
    pub(super) fn of_branch_records(
        snapshot: &Snapshot,
        map: &BlockMap,
        counts: &BlockCounts,
    ) -> Option<Self> {
        let streams = || snapshot.intervals.iter().flat_map(|interval| &interval.streams);
        let with_cycles = streams().filter(|stream| stream.cycles.is_some());
        let events: BTreeSet<EventIdx> = with_cycles.map(|stream| stream.event).collect();
        if events.is_empty() {
            return None;
        }
        let (changes, n_streams) = changes(snapshot, map, &events);
        let recorded: BTreeMap<TextIdx, Vec<Recorded>> = changes
            .into_iter()
            .map(|(text, changes)| (text, sums(changes)))
            .collect();
        let mut spent = Vec::new();
        for part in &counts.parts {
            let Some(block) = counts.blocks.get(part.block) else {
                continue;
            };
            let text = block.block.text;
            let (Some(blocks), Some(recorded)) = (map.text(text), recorded.get(&text)) else {
                continue;
            };
            let all = block.chosen().count;
            for instruction in blocks.block(block.block.block) {
                let found = recorded.get(instruction as usize);
                let Some(found) = found.filter(|found| 0.5 <= found.hits && 0.0 < all) else {
                    continue;
                };
                spent.push(Spent {
                    text,
                    instruction,
                    process: part.process,
                    hits: found.parts * (part.count / all).min(1.0),
                    amount: part.count * found.cycles / found.hits,
                });
            }
        }
        spent.sort_by_key(|spent| (spent.text, spent.instruction, spent.process));
        (!spent.is_empty()).then(|| Self {
            unit: EventUnit::Cycles,
            events: events.into_iter().collect(),
            spent,
            samples: n_streams,
        })
    }
}

/// The streams of these events, and how many there are.
fn changes(snapshot: &Snapshot, map: &BlockMap, events: &BTreeSet<EventIdx>) -> (Changes, f64) {
    let (mut changes, mut n_streams) = (Changes::new(), 0.0);
    let mut addresses = AddressMap::new(snapshot);
    for (interval, n) in snapshot.intervals.iter().zip(0..) {
        addresses.set_interval(n);
        let counted = interval.streams.iter().filter(|it| events.contains(&it.event));
        for stream in counted {
            if add(&mut changes, stream, &mut addresses, map).is_some() {
                n_streams += stream.hits as f64;
            }
        }
    }
    (changes, n_streams)
}

/// Adds a stream; `None` unless it is straight code that is known.
fn add(
    changes: &mut Changes,
    stream: &StreamCount,
    addresses: &mut AddressMap<'_>,
    map: &BlockMap,
) -> Option<()> {
    let (start, end) = addresses.span(stream).ok()?;
    let text = map.text(start.text)?;
    let (first, last) = (text.find(start.addr).ok()?, text.find(end).ok()?);
    let n = f64::from(last.checked_sub(first)?) + 1.0;
    let hits = stream.hits as f64;
    let each = Recorded {
        hits,
        parts: hits / n,
        cycles: stream.cycles.map_or(0, std::num::NonZeroU64::get) as f64 / n,
    };
    let at = changes
        .entry(start.text)
        .or_insert_with(|| vec![Recorded::default(); text.n_instructions() + 1]);
    at.get_mut(first as usize)?.add(each, 1.0);
    at.get_mut(last as usize + 1)?.add(each, -1.0);
    Some(())
}

fn sums(mut changes: Vec<Recorded>) -> Vec<Recorded> {
    let mut sum = Recorded::default();
    for change in &mut changes {
        sum.add(*change, 1.0);
        *change = sum;
    }
    changes
}
