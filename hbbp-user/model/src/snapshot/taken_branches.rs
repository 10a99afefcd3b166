//! How often each taken branch was seen in any slot of a branch stack, derived from streams and oldest slots.
//!
//! A branch is in a stack as the end of a stream or in the oldest slot, never both, so its occurrences are the sum of
//! the two. In all slots but the newest it also precedes a stream, whose start is its target.
//! A recording counts each stream separately for the branch that precedes it, and as branches only those in the oldest
//! slot; the other branches are derived here, when a report asks for them.

use std::collections::BTreeMap;

use super::{BranchCount, EventIdx, Interval, ProcessIdx, Snapshot, StreamCount};
use crate::addr::Va;

/// A taken branch, and the weight of its occurrences as parts of their stacks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeighedBranch {
    /// The branch.
    pub count: BranchCount,
    /// The weight of its occurrences, in units of the event, as [`StreamCount::weight`].
    pub weight: f64,
    /// The weight of those in the oldest slot.
    pub oldest_weight: f64,
}

impl Snapshot {
    /// The taken branches of each interval, in the order of the intervals: those that were counted as branches, and
    /// those that are known from streams by their [`source`](StreamCount::source).
    ///
    /// Where any stream has a source, the rows are sorted by (event, process image, source, target) and unique.
    /// Occurrences with a known target have a row of their own, and the row with target 0 has the remainder.
    ///
    /// Their weight is that of the streams that they led to or ended. Oldest slots were counted without weights: they
    /// get the weight that the branch has in other slots with a successor, as it is equally likely in each slot.
    pub fn taken_branches(&self) -> impl Iterator<Item = Vec<WeighedBranch>> {
        self.intervals
            .chunk_by(|_, next| next.continues)
            .flat_map(taken_in)
    }
}

/// The taken branches of the intervals of one drain. A branch that ends a stream in one of them may lead to a stream in
/// another, and belongs to the first that it was seen in.
fn taken_in(drain: &[Interval]) -> Vec<Vec<WeighedBranch>> {
    let means = Means::new(drain);
    let has_source = |stream: &StreamCount| stream.source.is_some();
    if !drain
        .iter()
        .any(|interval| interval.streams.iter().any(has_source))
    {
        let weighed = |count: &BranchCount| means.weighed(*count);
        return drain
            .iter()
            .map(|interval| interval.branches.iter().map(weighed).collect())
            .collect();
    }
    let mut rows: Vec<Row> = Vec::new();
    for (nth, interval) in drain.iter().enumerate() {
        rows.extend(interval.branches.iter().map(|branch| Row {
            branch: *branch,
            of_streams: Weighed::default(),
            nth,
        }));
        for stream in &interval.streams {
            let Some(source) = stream.source else { continue };
            rows.push(row(stream, stream.end, Va(0), nth));
            if source != Va(0) {
                rows.push(row(stream, source, stream.start, nth));
            }
        }
    }
    let mut taken = vec![Vec::new(); drain.len()];
    for (branch, nth) in without_duplicates(summed(rows), &means) {
        if let Some(interval) = taken.get_mut(nth) {
            interval.push(branch);
        }
    }
    taken
}

/// Occurrences and their weight.
#[derive(Clone, Copy, Debug, Default)]
struct Weighed {
    hits: u64,
    weight: f64,
}

impl Weighed {
    fn add(&mut self, other: Self) {
        self.hits = self.hits.saturating_add(other.hits);
        self.weight += other.weight;
    }

    /// The weight of one; `None` of none.
    fn each(self) -> Option<f64> {
        (self.hits != 0).then(|| self.weight / self.hits as f64)
    }
}

/// The average weight of a stream of each event in a drain.
struct Means(BTreeMap<EventIdx, Weighed>);

impl Means {
    fn new(drain: &[Interval]) -> Self {
        let mut sums: BTreeMap<EventIdx, Weighed> = BTreeMap::new();
        for stream in drain.iter().flat_map(|interval| &interval.streams) {
            sums.entry(stream.event).or_default().add(of(stream));
        }
        Self(sums)
    }

    /// One where the event has no stream: then nothing is compared.
    fn of(&self, event: EventIdx) -> f64 {
        let sum = self.0.get(&event).copied().unwrap_or_default();
        sum.each().unwrap_or(1.0)
    }

    /// A branch without streams.
    fn weighed(&self, count: BranchCount) -> WeighedBranch {
        let each = self.of(count.event);
        WeighedBranch {
            count,
            weight: count.hits as f64 * each,
            oldest_weight: count.oldest as f64 * each,
        }
    }
}

const fn of(stream: &StreamCount) -> Weighed {
    Weighed {
        hits: stream.hits,
        weight: stream.weight,
    }
}

/// Occurrences of a branch.
#[derive(Clone, Copy, Debug)]
struct Row {
    branch: BranchCount,
    /// Those of them that are known by streams: by the one that they led to where the target is known, and then they are ends of
    /// streams or oldest slots as well; else by the one that they ended.
    of_streams: Weighed,
    /// The interval, counted from the first one of its drain.
    nth: usize,
}

fn row(stream: &StreamCount, from: Va, to: Va, nth: usize) -> Row {
    Row {
        branch: BranchCount {
            event: stream.event,
            process: stream.process,
            from,
            to,
            hits: stream.hits,
            oldest: 0,
            mispredicted: None,
        },
        of_streams: of(stream),
        nth,
    }
}

fn key(row: &Row) -> (EventIdx, ProcessIdx, Va, Va) {
    let branch = &row.branch;
    (branch.event, branch.process, branch.from, branch.to)
}

/// Each branch once, sorted by key.
fn summed(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort_unstable_by_key(key);
    rows.dedup_by(|row, sum| {
        let equal = key(row) == key(sum);
        if equal {
            let (sum_of, of) = (&mut sum.branch, &row.branch);
            sum_of.hits = sum_of.hits.saturating_add(of.hits);
            sum_of.oldest = sum_of.oldest.saturating_add(of.oldest);
            let both = sum_of.mispredicted.zip(of.mispredicted);
            sum_of.mispredicted = both.map(|(sum, n)| sum.saturating_add(n));
            sum.of_streams.add(row.of_streams);
            sum.nth = sum.nth.min(row.nth);
        }
        equal
    });
    rows
}

/// Takes the occurrences with a known target off those with any: they were counted there too. A branch from the kernel
/// to user code is counted with the process, and as the end of a kernel stream in older profiles once for all processes.
fn without_duplicates(rows: Vec<Row>, means: &Means) -> Vec<(WeighedBranch, usize)> {
    let mut led_to = vec![Weighed::default(); rows.len()];
    for row in rows.iter().filter(|row| row.branch.to != Va(0)) {
        let (event, process, from, _) = key(row);
        let owner = [process, ProcessIdx::KERNEL].into_iter().find_map(|owner| {
            let any = (event, owner, from, Va(0));
            rows.binary_search_by_key(&any, key).ok()
        });
        if let Some(any) = owner.and_then(|owner| led_to.get_mut(owner)) {
            any.add(row.of_streams);
        }
    }
    let branches = rows.into_iter().zip(led_to);
    let branches = branches.map(|(row, led_to)| (row.weighed(led_to, means.of(row.branch.event)), row.nth));
    let mut branches: Vec<(WeighedBranch, usize)> = branches.collect();
    branches.retain(|(branch, _)| branch.count.hits != 0 || branch.count.oldest != 0);
    branches
}

impl Row {
    /// Its remainder without those that `led_to` streams, where occurrences without a stream have the weight `mean`.
    fn weighed(self, led_to: Weighed, mean: f64) -> WeighedBranch {
        let Self {
            branch, of_streams, ..
        } = self;
        let each = led_to.each().or(of_streams.each()).unwrap_or(mean);
        let alone = branch.hits.saturating_sub(of_streams.hits) as f64 * each;
        let hits = branch.hits.saturating_sub(led_to.hits);
        let weight = (of_streams.weight + alone - led_to.weight).max(0.0);
        WeighedBranch {
            count: BranchCount { hits, ..branch },
            weight: if hits == 0 { 0.0 } else { weight },
            oldest_weight: branch.oldest as f64 * each,
        }
    }
}

#[cfg(test)]
mod tests;
