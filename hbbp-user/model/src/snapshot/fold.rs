//! Intervals in bounded memory: neighbouring ones are merged, and rows with the fewest hits are left out at the end.
//!
//! Counts of several intervals are summed by every report, so merging costs only resolution in time, as long as no text
//! version and no mapping begins between them. Only where all that can be merged is merged and the counts are still too
//! large, rows are left out, and counted as [`Loss::SamplesLeftOut`], [`Loss::StreamsLeftOut`],
//! [`Loss::BranchesLeftOut`] and [`Loss::ChainsLeftOut`].

use std::collections::BTreeSet;
use std::mem;
use std::ops::Range;

use super::row::{Row, merge_rows};
use super::{Interval, Loss, Losses, Text};
use crate::addr::Va;

/// Memory in bytes that the counts of a run may take: four million streams, or six million addresses.
/// In the file they take an eighth of that.
pub const MAX_COUNTS: usize = 256 << 20;

/// Memory that an interval is assumed to need in addition to its rows.
const INTERVAL: usize = 256;

/// The latest intervals are never merged: text versions that begin in them may still be found.
const LATEST: usize = 16;

/// Where intervals must not be merged.
#[derive(Clone, Debug, Default)]
pub struct Boundaries {
    /// Numbers of the intervals in which a text version begins.
    pub versions: BTreeSet<u32>,
    /// Times at which a mapping replaced another one, in ns of CLOCK_MONOTONIC.
    pub mappings: BTreeSet<u64>,
}

/// Times at which a mapping replaced another one; the mappings, with their times, are sorted by start.
pub fn replaced_at(mappings: impl Iterator<Item = (Range<Va>, u64)>) -> impl Iterator<Item = u64> {
    let mut last = (Va(0), 0);
    mappings.filter_map(move |(range, from)| {
        let (end, last_from) = last;
        last = last.max((range.end, from));
        (range.start < end).then_some(from.max(last_from))
    })
}

/// The intervals of a run, in the order of time, each with the number that text versions refer to.
#[derive(Debug)]
pub struct Intervals {
    merged: Vec<Merged>,
    /// The number of the next interval.
    next: u32,
    /// Memory in bytes that they take.
    used: usize,
    max: usize,
}

/// An interval, which may be several that were merged.
#[derive(Debug)]
struct Merged {
    numbers: Range<u32>,
    interval: Interval,
}

impl Default for Intervals {
    fn default() -> Self {
        Self::with_max(MAX_COUNTS)
    }
}

impl Intervals {
    /// No interval yet, and memory for `max` bytes of counts.
    pub const fn with_max(max: usize) -> Self {
        Self {
            merged: Vec::new(),
            next: 0,
            used: 0,
            max,
        }
    }

    /// The number that the next interval will have.
    pub const fn next(&self) -> u32 {
        self.next
    }

    /// Memory in bytes that they take.
    pub const fn used(&self) -> usize {
        self.used
    }

    /// Whether [`Self::fold`] has something to do.
    pub const fn is_full(&self) -> bool {
        self.max < self.used
    }

    /// Appends an interval.
    pub fn push(&mut self, interval: Interval) {
        self.used += memory(&interval);
        let numbers = self.next..self.next.saturating_add(1);
        self.next = numbers.end;
        self.merged.push(Merged { numbers, interval });
    }

    /// Makes them small enough: merges pairs of neighbours until half of the memory is free again, or no pair is left,
    /// and then leaves out the rows with the fewest hits.
    pub fn fold(&mut self, boundaries: &Boundaries, losses: &mut Losses) {
        if !self.is_full() {
            return;
        }
        let half = self.max / 2;
        let mut latest = LATEST;
        while half < self.used {
            if self.merge_pairs(boundaries, latest) {
                continue;
            }
            if latest == 0 || self.used <= self.max {
                break;
            }
            latest = 0;
        }
        if self.is_full() {
            self.leave_out(self.max / 4 * 3, losses);
        }
    }

    /// Merges all that may be merged.
    pub(crate) fn merge_all(&mut self, boundaries: &Boundaries) {
        while self.merge_pairs(boundaries, 0) {}
    }

    /// Merges each interval with an even index with the next one, where that is allowed, and says whether any was.
    fn merge_pairs(&mut self, boundaries: &Boundaries, latest: usize) -> bool {
        let n_before = self.merged.len();
        let n_early = n_before.saturating_sub(latest);
        let mut all = mem::take(&mut self.merged).into_iter().enumerate().peekable();
        while let Some((_, mut first)) = all.next() {
            let next = all.next_if(|(i, next)| *i < n_early && may_merge(&first, next, boundaries));
            if let Some((_, next)) = next {
                first.numbers.end = next.numbers.end;
                merge(&mut first.interval, next.interval);
            }
            self.merged.push(first);
        }
        self.used = self.merged.iter().map(|merged| memory(&merged.interval)).sum();
        self.merged.len() < n_before
    }

    /// Leaves out rows, those with the fewest hits first, until no more than `most` bytes are used.
    fn leave_out(&mut self, most: usize, losses: &mut Losses) {
        let mut by_hits = [0_usize; FEW];
        for Interval {
            ips,
            streams,
            branches,
            chains,
            refused,
            ..
        } in self.merged.iter().map(|merged| &merged.interval)
        {
            add_sizes(ips, &mut by_hits);
            add_sizes(streams, &mut by_hits);
            add_sizes(branches, &mut by_hits);
            add_sizes(chains, &mut by_hits);
            add_sizes(refused, &mut by_hits);
        }
        let mut excess = self.used.saturating_sub(most);
        let mut threshold = 0;
        while let Some(size) = by_hits.get(threshold).filter(|size| **size <= excess) {
            excess -= size;
            threshold += 1;
        }
        let mut filter = Filter {
            threshold,
            excess,
            of: by_hits.get(threshold).copied().unwrap_or(0),
            error: 0,
        };
        for Merged { interval, .. } in &mut self.merged {
            losses.add(Loss::SamplesLeftOut, filter.apply(&mut interval.ips));
            losses.add(Loss::StreamsLeftOut, filter.apply(&mut interval.streams));
            losses.add(Loss::BranchesLeftOut, filter.apply(&mut interval.branches));
            losses.add(Loss::ChainsLeftOut, filter.apply(&mut interval.chains));
            // Lost they are already; it is no longer known where.
            filter.apply(&mut interval.refused);
        }
        self.used = self.merged.iter().map(|merged| memory(&merged.interval)).sum();
    }

    /// Hands over the intervals since the last call; text versions get the indexes of those in which they begin.
    /// Numbers go on.
    pub fn take(&mut self, text: &mut [Text]) -> Vec<Interval> {
        for version in text.iter_mut().filter(|text| text.since != 0) {
            let before = self
                .merged
                .partition_point(|merged| merged.numbers.end <= version.since);
            version.since = u32::try_from(before).unwrap_or(u32::MAX);
        }
        self.used = 0;
        let merged = mem::take(&mut self.merged).into_iter();
        merged.map(|merged| merged.interval).collect()
    }
}

/// Rows with at least this many hits are never left out.
const FEW: usize = 1 << 10;

/// Hits of a row, as an index below [`FEW`] or beyond.
fn few(row: &impl Row) -> usize {
    usize::try_from(row.hits()).unwrap_or(usize::MAX)
}

fn add_sizes<R: Row>(rows: &[R], by_hits: &mut [usize; FEW]) {
    for row in rows {
        if let Some(size) = by_hits.get_mut(few(row)) {
            *size += row.size();
        }
    }
}

/// Which rows are left out: all with fewer hits than the threshold, and of those with as many an even share.
struct Filter {
    threshold: usize,
    excess: usize,
    of: usize,
    error: usize,
}

impl Filter {
    /// Leaves out rows, and returns their hits.
    fn apply<R: Row>(&mut self, rows: &mut Vec<R>) -> u64 {
        let mut left_out = 0_u64;
        rows.retain(|row| {
            let hits = few(row);
            let keep = self.threshold < hits || self.threshold == hits && !self.is_next();
            if !keep {
                left_out = left_out.saturating_add(row.hits());
            }
            keep
        });
        rows.shrink_to_fit();
        left_out
    }

    /// Whether the next row with as many hits as the threshold is left out, so that `excess` of each `of` bytes are.
    const fn is_next(&mut self) -> bool {
        if self.of == 0 {
            return false;
        }
        self.error += self.excess;
        let is_next = self.of <= self.error;
        if is_next {
            self.error -= self.of;
        }
        is_next
    }
}

/// Memory in bytes that an interval takes.
pub(super) fn memory(interval: &Interval) -> usize {
    INTERVAL
        + size_of_val(interval.ips.as_slice())
        + size_of_val(interval.streams.as_slice())
        + size_of_val(interval.branches.as_slice())
        + interval.chains.iter().map(Row::size).sum::<usize>()
        + size_of_val(interval.refused.as_slice())
}

fn may_merge(first: &Merged, next: &Merged, boundaries: &Boundaries) -> bool {
    let until = first.interval.end..next.interval.end.max(first.interval.end);
    !boundaries.versions.contains(&next.numbers.start) && boundaries.mappings.range(until).next().is_none()
}

fn merge(into: &mut Interval, next: Interval) {
    into.end = into.end.max(next.end);
    merge_rows(&mut into.ips, next.ips);
    merge_rows(&mut into.streams, next.streams);
    merge_rows(&mut into.branches, next.branches);
    merge_rows(&mut into.chains, next.chains);
    merge_rows(&mut into.refused, next.refused);
}
