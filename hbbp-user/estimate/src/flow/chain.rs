//! The recorded flow as a Markov chain: which stream follows a branch, which branch was before it, and what both take.
//!
//! Not every edge is recorded: what leads to a start that no branch led to, and what follows a branch that was never followed, is the
//! mean of all.

use super::graph::{Edge, FlowGraph};
use crate::sums::{add, at, over};

/// A number for each bin of time: what is in one has the time of its lower end. Between two bins both have a part, so that sums are
/// those of the times.
pub(super) type Row<const BINS: usize> = [f64; BINS];

/// What is found by looking back over one branch more is too little to go on, as a share of all that was found. Of four loads of the
/// emulated machine, the error of the mix is the same to 0.0001 points as with all branches.
pub(super) const STEADY: f64 = 1e-3;

/// The chain.
pub(super) struct Chain<'a> {
    pub(super) graph: &'a FlowGraph,
    /// By stream: what it takes, in bins.
    durations: Vec<f64>,
    /// By stream: its part of what begins where it does, and of what ends where it does.
    streams: Vec<(f64, f64)>,
    /// By edge from a branch to a start: its part of what follows the branch, and of what leads to the start.
    branches: Vec<(f64, f64)>,
    /// By branch: its part of all streams.
    pub(super) share: Vec<f64>,
    /// By branch: whether anything that follows it was recorded.
    is_followed: Vec<bool>,
    /// By start: the part of what leads there that was not recorded.
    outside: Vec<f64>,
}

/// The row `bins` later: each entry moves by as many bins.
pub(super) fn later<const BINS: usize>(row: &Row<BINS>, bins: f64) -> Row<BINS> {
    let mut later = [0.0; BINS];
    add_moved(&mut later, 1.0, row, bins);
    later
}

/// Adds a part of a row, `bins` later.
pub(super) fn add_later<const BINS: usize>(
    sums: &mut [Row<BINS>],
    n: usize,
    part: f64,
    row: &Row<BINS>,
    bins: f64,
) {
    if let Some(sum) = sums.get_mut(n) {
        add_moved(sum, part, row, bins);
    }
}

fn add_moved<const BINS: usize>(sum: &mut Row<BINS>, part: f64, row: &Row<BINS>, bins: f64) {
    let (whole, after) = whole_bins(bins, BINS);
    let (before, after) = (part * (1.0 - after), part * after);
    for (sum, now) in sum.iter_mut().skip(whole).zip(row) {
        *sum += before * now;
    }
    for (sum, now) in sum.iter_mut().skip(whole + 1).zip(row) {
        *sum += after * now;
    }
}

/// Adds an amount at a time, in bins.
pub(super) fn add_at<const BINS: usize>(row: &mut Row<BINS>, bins: f64, amount: f64) {
    let (whole, after) = whole_bins(bins, BINS);
    add(row, whole, amount * (1.0 - after));
    add(row, whole + 1, amount * after);
}

/// The bins before a time, `most` of them at most, and the part of the next one.
#[expect(
    clippy::cast_sign_loss,
    reason = "the time is positive, and a number of bins that is too large is none"
)]
fn whole_bins(bins: f64, most: usize) -> (usize, f64) {
    let whole = bins.floor();
    ((whole as usize).min(most), bins - whole)
}

/// Adds a part of a row.
pub(super) fn add_row<const BINS: usize>(sums: &mut [Row<BINS>], n: usize, part: f64, row: &Row<BINS>) {
    if let Some(sum) = sums.get_mut(n) {
        sum.iter_mut().zip(row).for_each(|(sum, row)| *sum += part * row);
    }
}

/// The row at an index; zeros where there is none.
pub(super) fn row<const BINS: usize>(rows: &[Row<BINS>], n: usize) -> &Row<BINS> {
    rows.get(n).unwrap_or(const { &[0.0; BINS] })
}

impl<'a> Chain<'a> {
    /// The chain of a graph whose streams take as long, in bins.
    pub(super) fn new(graph: &'a FlowGraph, durations: Vec<f64>) -> Self {
        let (mut ends, mut followed) = (vec![0.0; graph.sources.len()], vec![0.0; graph.sources.len()]);
        for edge in &graph.streams {
            add(&mut ends, edge.to, edge.amount);
        }
        let mut into = vec![0.0; graph.starts.len()];
        for edge in &graph.branches {
            add(&mut followed, edge.from, edge.amount);
            add(&mut into, edge.to, edge.amount);
        }
        let leads = |start: usize| at(&into, start).max(at(&graph.inflow, start));
        let stream = |edge: &Edge| {
            let forward = over(edge.amount, at(&graph.inflow, edge.from));
            (forward, over(edge.amount, at(&ends, edge.to)))
        };
        let branch = |edge: &Edge| {
            let forward = over(edge.amount, at(&followed, edge.from));
            (forward, over(edge.amount, leads(edge.to)))
        };
        let all: f64 = ends.iter().sum();
        let outside = |(start, into): (usize, &f64)| 1.0 - over(*into, leads(start));
        Self {
            durations,
            streams: graph.streams.iter().map(stream).collect(),
            branches: graph.branches.iter().map(branch).collect(),
            share: ends.iter().map(|ends| over(*ends, all)).collect(),
            is_followed: followed.iter().map(|followed| 0.0 < *followed).collect(),
            outside: into.iter().enumerate().map(outside).collect(),
            graph,
        }
    }

    /// Streams take as long now, in bins.
    pub(super) fn set_durations(&mut self, durations: Vec<f64>) {
        self.durations = durations;
    }

    /// The streams: edge, duration in bins, part of what begins there, part of what ends there.
    pub(super) fn streams(&self) -> impl Iterator<Item = (&'a Edge, f64, f64, f64)> {
        let parts = self.durations.iter().zip(&self.streams);
        let edges = self.graph.streams.iter().zip(parts);
        edges.map(|(edge, (duration, (forward, backward)))| (edge, *duration, *forward, *backward))
    }

    /// Where a stream starts.
    pub(super) fn start_of(&self, stream: usize) -> usize {
        self.graph.streams.get(stream).map_or(0, |edge| edge.from)
    }

    /// The edges from branches to starts: edge, part of what follows, part of what leads there.
    pub(super) fn branches(&self) -> impl Iterator<Item = (&'a Edge, f64, f64)> {
        let edges = self.graph.branches.iter().zip(&self.branches);
        edges.map(|(edge, (forward, backward))| (edge, *forward, *backward))
    }

    /// From what is known of branches, the mean of each start over those that lead there, in place of what `starts` held.
    pub(super) fn to_starts<const BINS: usize>(
        &self,
        of_branches: &[Row<BINS>],
        starts: &mut Vec<Row<BINS>>,
    ) {
        let mut mean = [[0.0; BINS]];
        for (share, row) in self.share.iter().zip(of_branches) {
            add_row(&mut mean, 0, *share, row);
        }
        let [mean] = mean;
        starts.clear();
        starts.extend(self.outside.iter().map(|part| mean.map(|mean| part * mean)));
        for (edge, _, part) in self.branches() {
            add_row(starts, edge.to, part, row(of_branches, edge.from));
        }
    }

    /// The sum of a row, in the mean over all executions of starts.
    pub(super) fn mean_of_starts<const BINS: usize>(&self, starts: &[Row<BINS>]) -> f64 {
        let rows = self.graph.inflow.iter().zip(starts);
        let sum: f64 = rows.map(|(inflow, row)| inflow * row.iter().sum::<f64>()).sum();
        over(sum, self.graph.inflow.iter().sum())
    }

    /// From what is known of starts, the mean of each branch over those that follow it.
    pub(super) fn to_branches<const BINS: usize>(&self, of_starts: &[Row<BINS>]) -> Vec<Row<BINS>> {
        let mut branches = vec![[0.0; BINS]; self.share.len()];
        for (edge, part, _) in self.branches() {
            add_row(&mut branches, edge.from, part, row(of_starts, edge.to));
        }
        let (mut mean, mut weight) = ([[0.0; BINS]], 0.0);
        let followed = |n: usize| self.is_followed.get(n).copied().unwrap_or_default();
        for (n, (share, row)) in self.share.iter().zip(&branches).enumerate() {
            if followed(n) {
                add_row(&mut mean, 0, *share, row);
                weight += share;
            }
        }
        let [mean] = mean.map(|mean| mean.map(|sum| over(sum, weight)));
        for (n, branch) in branches.iter_mut().enumerate() {
            if !followed(n) {
                *branch = mean;
            }
        }
        branches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINS: usize = 31;

    #[test]
    fn rows_move_by_parts_of_bins() {
        let mut now = [0.0; BINS];
        now[0] = 1.0;
        let moved = later(&now, 2.25);
        assert_eq!((moved[2], moved[3]), (0.75, 0.25));
        assert_eq!(moved.iter().sum::<f64>(), 1.0);
        assert_eq!(later(&now, 1e9), [0.0; BINS]);
        assert_eq!(later(&now, 0.0), now);
        let mut sums = [moved];
        add_later(&mut sums, 0, 2.0, &now, 3.5);
        add_at(&mut sums[0], 29.5, 4.0);
        add_at(&mut sums[0], 30.5, 4.0);
        add_at(&mut sums[0], 1e9, 1.0);
        assert_eq!(sums[0][..5], [0.0, 0.0, 0.75, 1.25, 1.0]);
        assert_eq!(sums[0][29..], [2.0, 4.0]);
    }
}
