//! The thread of the segments: counts each interval in the metrics, writes it, merges segments into hours and days, and
//! removes the oldest.
//!
//! An interval that cannot be written waits in memory, and the next ones are united with it, as it will be written with
//! them in one segment. Only where those that wait need too much memory an interval is lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;

use super::counters::{Counter, Counters};
use super::metrics::Metrics;
use super::tell;
use crate::profile::Output;
use crate::segments::plan::{Limits, expired, superseded, to_merge};
use crate::segments::{Folder, Listing, Name};
use crate::snapshot::Snapshot;
use crate::snapshot::budget::used;
use crate::snapshot::file::{Compression, encode_runs};
use crate::snapshot::unite::united;

/// Memory of the intervals that wait because they could not be written.
const MAX_WAITING: usize = 128 << 20;

/// Segments that are merged between two intervals, so that the next one need not wait for long; an hour takes some steps.
const AT_ONCE: usize = 16;

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

/// Keeps segments in a folder.
#[derive(Debug)]
pub(super) struct Keeper {
    folder: Folder,
    limits: Limits,
    counters: Arc<Counters>,
    metrics: Option<Arc<Metrics>>,
    /// Number of the next interval.
    next: u64,
    /// What was not written yet: all of it becomes one segment.
    waiting: Option<(Name, Vec<Snapshot>)>,
    /// Segments that are not merged, because they cannot be read, or are too large together.
    left_alone: BTreeSet<Name>,
}

impl Keeper {
    /// Goes on where the last daemon ended.
    pub(super) fn open(
        folder: Folder,
        limits: Limits,
        counters: Arc<Counters>,
        metrics: Option<Arc<Metrics>>,
    ) -> anyhow::Result<Self> {
        let failed = || format!("cannot read the directory {}", folder.path().display());
        let listing = Listing::read(folder.path()).with_context(failed)?;
        let n_foreign = u64::try_from(listing.foreign.len()).unwrap_or(u64::MAX);
        if let Some(first) = listing.foreign.first() {
            tell(&format!(
                "{} holds files that are no segments, {n_foreign} in all, such as {first}: they are left alone",
                folder.path().display()
            ));
        }
        counters.add(Counter::ForeignFiles, n_foreign);
        let last = listing.segments.iter().map(|(name, _)| name.last).max();
        Ok(Self {
            next: last.map_or(0, |last| last.saturating_add(1)),
            folder,
            limits,
            counters,
            metrics,
            waiting: None,
            left_alone: BTreeSet::new(),
        })
    }

    /// Writes an interval, or lets it wait; then merges and removes what is due.
    pub(super) fn keep(&mut self, snapshot: Snapshot) {
        if let Some(metrics) = &self.metrics {
            metrics.add(&snapshot);
        }
        self.add(snapshot);
        let Some((name, runs)) = self.waiting.take() else {
            return;
        };
        let n_intervals = name.last - name.first + 1;
        match self.write(&name, &runs, Compression::Fast) {
            Ok(()) => {
                if 1 < n_intervals {
                    tell(&format!(
                        "segments are written again, {n_intervals} intervals in one"
                    ));
                }
                self.counters.add(Counter::SegmentsWritten, 1);
            }
            Err(error) => {
                if n_intervals == 1 {
                    tell(&format!(
                        "cannot write a segment; intervals wait in memory until it is possible: {error:#}"
                    ));
                }
                self.counters.add(Counter::WriteFailures, 1);
                self.waiting = Some((name, runs));
            }
        }
        if let Err(error) = self.tidy() {
            tell(&format!(
                "cannot look after {}: {error:#}",
                self.folder.path().display()
            ));
        }
    }

    /// Ends: what still waits is saved in a temporary directory where it cannot be written now.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        let Some((name, runs)) = self.waiting.take() else {
            return Ok(());
        };
        let Err(error) = self.write(&name, &runs, Compression::Fast) else {
            return Ok(());
        };
        let elsewhere = std::env::temp_dir().join(name.to_string());
        let saved = Output::open(&elsewhere)
            .and_then(|output| output.save(&runs, Compression::Fast, &mut std::io::sink()));
        saved.with_context(|| format!("the last intervals are lost: {error:#}"))?;
        tell(&format!(
            "the last intervals were saved as {} instead: {error:#}",
            elsewhere.display()
        ));
        Ok(())
    }

    /// Adds an interval to what waits.
    fn add(&mut self, snapshot: Snapshot) {
        let name = Name {
            first: self.next,
            last: self.next,
            start: snapshot.run.started / MS,
            length: snapshot.run.duration.div_ceil(MS),
        };
        self.next += 1;
        let Some((first, mut runs)) = self.waiting.take() else {
            self.waiting = Some((name, vec![snapshot]));
            return;
        };
        let is_full = MAX_WAITING < runs.iter().map(used).sum::<usize>() + used(&snapshot);
        if is_full {
            self.counters.add(Counter::IntervalsDropped, 1);
            self.waiting = Some((first, runs));
            return;
        }
        runs.push(snapshot);
        let mut runs = united(runs);
        runs.iter_mut().for_each(Snapshot::coarsen);
        self.waiting = Name::of_all(&[first, name]).map(|name| (name, runs));
    }

    fn write(&self, name: &Name, runs: &[Snapshot], compression: Compression) -> anyhow::Result<()> {
        let bytes = encode_runs(runs, compression)?;
        self.folder.write(name, &bytes)
    }

    /// Removes what was merged or is too old, and merges some segments.
    fn tidy(&mut self) -> anyhow::Result<()> {
        let listing = Listing::read(self.folder.path())?;
        let all: BTreeSet<Name> = listing.segments.iter().map(|(name, _)| *name).collect();
        for name in superseded(&all) {
            self.folder.remove(&name)?;
        }
        let names = listing.names();
        let kept = listing
            .segments
            .iter()
            .copied()
            .filter(|(name, _)| names.contains(name));
        let kept: Vec<(Name, u64)> = kept.collect();
        let expired = expired(&kept, self.limits, now());
        for name in &expired {
            self.folder.remove(name)?;
            self.counters.add(Counter::SegmentsExpired, 1);
        }
        let names = names.into_iter().filter(|name| !expired.contains(name)).collect();
        if let Some(mut group) = to_merge(&names, &self.left_alone) {
            group.truncate(AT_ONCE);
            self.merge(&group)?;
        }
        Ok(())
    }

    /// Merges segments: writes one of all, and removes them.
    fn merge(&mut self, group: &[Name]) -> anyhow::Result<()> {
        let mut runs: Vec<Snapshot> = Vec::new();
        for name in group {
            let mut read = match self.folder.read(name) {
                Ok(read) => read,
                Err(error) => {
                    tell(&format!("skipped a damaged segment: {error:#}"));
                    self.counters.add(Counter::SegmentsUnreadable, 1);
                    self.left_alone.insert(*name);
                    // The others are merged next time.
                    return Ok(());
                }
            };
            read.iter_mut().for_each(Snapshot::coarsen);
            runs = united(runs.into_iter().chain(read));
        }
        let Some(merged) = Name::of_all(group) else {
            return Ok(());
        };
        let bytes = match encode_runs(&runs, Compression::Small) {
            Ok(bytes) => bytes,
            Err(error) => {
                tell(&format!("{} segments stay as they are: {error}", group.len()));
                self.counters.add(Counter::MergesFailed, 1);
                self.left_alone.extend(group);
                return Ok(());
            }
        };
        if let Err(error) = self.folder.write(&merged, &bytes) {
            self.counters.add(Counter::MergesFailed, 1);
            return Err(error.context("cannot write merged segments"));
        }
        for name in group {
            self.folder.remove(name)?;
        }
        let n_merged = u64::try_from(group.len()).unwrap_or(u64::MAX);
        self.counters.add(Counter::SegmentsMerged, n_merged);
        Ok(())
    }
}

/// Now in ms since 1970.
fn now() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since_epoch.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}
