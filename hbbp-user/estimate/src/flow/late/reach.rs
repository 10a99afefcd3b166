//! The reach of stacks: how many branches before a location have their stacks read after it.

use super::super::chain::{self, Chain, STEADY, add_at, add_later, add_row, later, row};
use super::super::graph::Edge;
use crate::sums::at;

/// Bins of time, of [`BIN`] cycles each.
pub(super) const BINS: usize = 31;

/// Cycles of a bin. Streams of two cycles are common, and have a part in two bins.
pub(super) const BIN: f64 = 4.0;

/// A number for each time.
type Row = chain::Row<BINS>;

/// Branches that are looked back over: as many hardly pass in the longest time.
const FARTHEST: usize = 30;

/// The time until stacks are read, in bins: any between is as likely.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Skid {
    pub(super) least: usize,
    pub(super) longest: usize,
}

impl Skid {
    /// In cycles.
    pub(super) fn cycles(self) -> (f64, f64) {
        (self.least as f64 * BIN, self.longest as f64 * BIN)
    }

    fn n_bins(self) -> usize {
        self.longest + 1 - self.least.min(self.longest)
    }

    /// The mean of what is known by time.
    fn mean(self, row: &Row) -> f64 {
        let n = self.n_bins();
        row.iter().skip(self.least).take(n).sum::<f64>() / n as f64
    }

    /// The same of a row whose numbers are sums of those of all times before and this one.
    fn mean_of_sums(self, sums: &Row) -> f64 {
        let sum = |n: usize| sums.get(n).copied().unwrap_or_default();
        let before = self.least.checked_sub(1).map_or(0.0, sum);
        (sum(self.longest) - before) / self.n_bins() as f64
    }
}

/// By time: branches before a place that are no longer ago.
pub(super) struct Reach {
    /// Before each branch.
    before: Vec<Row>,
    /// Before each start, the last branch included.
    starts: Vec<Row>,
    /// Stacks that end at each branch for one of its executions, were they read at that time: sums over all times before.
    ending: Vec<Row>,
}

fn with_itself(row: &Row) -> Row {
    row.map(|before| 1.0 + before)
}

impl Reach {
    pub(super) fn new(chain: &Chain<'_>) -> Self {
        let mut before = vec![[0.0; BINS]; chain.share.len()];
        let (mut starts, mut found) = (Vec::new(), 0.0);
        for _ in 0..FARTHEST {
            chain.to_starts(&before, &mut starts);
            starts.iter_mut().for_each(|start| *start = with_itself(start));
            let last = found;
            found = chain.mean_of_starts(&starts);
            if found - last < STEADY * found {
                break;
            }
            before.fill([0.0; BINS]);
            for (edge, duration, _, part) in chain.streams() {
                add_later(&mut before, edge.to, part, row(&starts, edge.from), duration);
            }
        }
        // By start: the part of its streams that takes each time.
        let mut taking = vec![[0.0; BINS]; starts.len()];
        for (edge, duration, part, _) in chain.streams() {
            if let Some(taking) = taking.get_mut(edge.from) {
                add_at(taking, duration, part);
            }
        }
        let mut behind = vec![[0.0; BINS]; before.len()];
        for (edge, part, _) in chain.branches() {
            let since = with_itself(row(&before, edge.from));
            add_row(
                &mut behind,
                edge.from,
                part,
                &folded(&since, row(&taking, edge.to)),
            );
        }
        let ending = before.iter().zip(&behind).map(|(before, behind)| {
            let mut sum = 0.0;
            let mut sums = [0.0; BINS];
            for (sums, (before, behind)) in sums.iter_mut().zip(before.iter().zip(behind)) {
                sum += 1.0 + before - behind;
                *sums = sum;
            }
            sums
        });
        let ending = ending.collect();
        Self {
            before,
            starts,
            ending,
        }
    }

    /// How many times its share among all branches each one has in the newest slot.
    pub(super) fn newest(&self, skid: Skid) -> impl Iterator<Item = f64> {
        self.ending.iter().map(move |sums| skid.mean_of_sums(sums))
    }
}

/// Both one after the other: of what the first has by a time, the second lets a part pass after a time of its own.
fn folded(first: &Row, second: &Row) -> Row {
    let mut both = [0.0; BINS];
    for (after, part) in second.iter().enumerate().filter(|(_, part)| 0.0 < **part) {
        both.iter_mut()
            .skip(after)
            .zip(first)
            .for_each(|(both, first)| *both += part * first);
    }
    both
}

/// Reach at places, less that of as many branches further on as a stack has streams.
pub(super) struct Reached<'a> {
    reach: &'a Reach,
    skid: Skid,
    /// By branch and by start: reach as many branches further on, of triggers after this place.
    ahead: [Vec<f64>; 2],
    /// By branch and by start, and by time: the part of the ways on that takes no longer for as many branches.
    whole: [Vec<Row>; 2],
}

impl<'a> Reached<'a> {
    pub(super) fn new(chain: &Chain<'_>, reach: &'a Reach, skid: Skid, depth: f64) -> Self {
        let n_starts = chain.graph.starts.len();
        let (mut within, mut starts) = (vec![[1.0; BINS]; chain.share.len()], Vec::new());
        let (mut ahead, mut ahead_of_starts) = (vec![[0.0; BINS]; chain.share.len()], Vec::new());
        let mut n = 0.0;
        while n < depth.round().max(1.0) {
            starts = vec![[0.0; BINS]; n_starts];
            ahead_of_starts = vec![[0.0; BINS]; n_starts];
            for (edge, duration, part, _) in chain.streams() {
                add_later(&mut starts, edge.from, part, row(&within, edge.to), duration);
                add_row(&mut ahead_of_starts, edge.from, part, row(&ahead, edge.to));
            }
            for (ahead, passed) in ahead_of_starts.iter_mut().zip(&starts) {
                ahead
                    .iter_mut()
                    .zip(passed)
                    .for_each(|(ahead, passed)| *ahead += passed);
            }
            within = chain.to_branches(&starts);
            ahead = chain.to_branches(&ahead_of_starts);
            n += 1.0;
        }
        let means = |rows: &[Row]| rows.iter().map(|row| skid.mean(row)).collect();
        Self {
            reach,
            skid,
            ahead: [means(&ahead), means(&ahead_of_starts)],
            whole: [within, starts],
        }
    }

    /// Triggers before a branch that are after it by less than the skid after as many branches more.
    fn far(&self, before: &Row, whole: &Row) -> f64 {
        let mut ago = *before;
        for (ago, earlier) in ago.iter_mut().skip(1).zip(before) {
            *ago -= earlier;
        }
        self.skid.mean(&folded(whole, &ago))
    }

    /// By stream.
    pub(super) fn of_streams(&self, chain: &Chain<'_>) -> Vec<f64> {
        let [ahead, _] = &self.ahead;
        let [whole, _] = &self.whole;
        let far: Vec<f64> = self
            .reach
            .before
            .iter()
            .zip(whole)
            .map(|(before, whole)| self.far(before, whole))
            .collect();
        let of = |(edge, duration, ..): (&Edge, f64, f64, f64)| {
            let here = self
                .skid
                .mean(&later(row(&self.reach.starts, edge.from), duration));
            here - at(ahead, edge.to) - at(&far, edge.to)
        };
        chain.streams().map(of).collect()
    }

    /// By edge from a branch to a start.
    pub(super) fn of_branches(&self, chain: &Chain<'_>) -> Vec<f64> {
        let [_, ahead] = &self.ahead;
        let [_, whole] = &self.whole;
        let of = |(edge, ..): (&Edge, f64, f64)| {
            let before = row(&self.reach.before, edge.from);
            self.skid.mean(before) - at(ahead, edge.to) - self.far(before, row(whole, edge.to))
        };
        chain.branches().map(of).collect()
    }
}
