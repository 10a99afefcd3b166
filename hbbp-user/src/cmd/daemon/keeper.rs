//! The thread of the segments: counts each interval in the metrics, writes it, merges segments into hours and days, and
//! removes the oldest.
//!
//! An interval that cannot be written waits in memory, and the next ones are united with it, as it will be written with
//! them in one segment. Only where those that wait need too much memory an interval is lost.

mod merging;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use super::counters::{Counter, Counters};
use super::feed::Feed;
use super::metrics::Metrics;
use super::service_log::tell;
use hbbp_model::profile::Output;
use hbbp_model::segments::plan::{Limits, Nest, expired, nests, to_merge};
use hbbp_model::segments::read::{Read, compare};
use hbbp_model::segments::{Folder, Listing, Moment, Name, TimeRange, read_range};
use hbbp_model::snapshot::Snapshot;
use hbbp_model::snapshot::budget::used;
use hbbp_model::snapshot::file::{Compression, encode_runs};
use hbbp_model::snapshot::unite::united;
use hbbp_resolve::clock::since_epoch;

/// Process images that a segment holds, about; beyond that, those with the fewest samples are joined by command name. A
/// build has some thousand a minute.
const MOST_IMAGES: usize = 1024;

/// Time after which a merge begins to read no further segment: intervals wait for it, and three of them can. What is left of
/// the group is merged after the next interval.
const LONGEST_READING: Duration = Duration::from_secs(3);

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

/// Keeps segments in a folder.
#[derive(Debug)]
pub(super) struct Keeper {
    folder: Folder,
    limits: Limits,
    counters: Arc<Counters>,
    feed: Option<Feed>,
    /// Number of the next interval.
    next: u64,
    /// The host of the last interval.
    host: Option<String>,
    /// What was not written yet: all of it becomes one segment.
    waiting: Option<(Name, Vec<Snapshot>)>,
    /// Whether what an earlier daemon merged was compared with what it left. What this one writes is held by nothing before it.
    is_settled: bool,
    /// Segments that are not merged: they cannot be read, are too large together, or are not what their names say.
    left_alone: BTreeSet<Name>,
    /// Memory in bytes for intervals that wait, and for segments that are merged.
    memory: usize,
    /// Time after which a merge begins to read no further segment.
    reading: Duration,
    /// Files that are no segments, when the folder was read last.
    n_foreign: usize,
}

impl Keeper {
    /// Goes on where the last daemon ended.
    pub(super) fn open(
        folder: Folder,
        limits: Limits,
        memory_budget: u64,
        counters: Arc<Counters>,
        metrics: Option<Arc<Metrics>>,
    ) -> anyhow::Result<Self> {
        let failed = || format!("cannot read the directory {}", folder.path().display());
        let listing = Listing::read(folder.path()).with_context(failed)?;
        let last = listing.segments.iter().map(|(name, _)| name.last).max();
        let mut keeper = Self {
            next: last.map_or(0, |last| last.saturating_add(1)),
            host: None,
            folder,
            limits,
            counters,
            feed: metrics.map(Feed::new),
            waiting: None,
            is_settled: false,
            left_alone: BTreeSet::new(),
            // The other half is what measuring takes.
            memory: usize::try_from(memory_budget / 2).unwrap_or(usize::MAX),
            reading: LONGEST_READING,
            n_foreign: 0,
        };
        keeper.count_foreign(&listing);
        Ok(keeper)
    }

    /// Counts files that are no segments as they come.
    fn count_foreign(&mut self, listing: &Listing) {
        let before = std::mem::replace(&mut self.n_foreign, listing.foreign.len());
        let more = self.n_foreign.saturating_sub(before);
        if let Some(first) = listing.foreign.first().filter(|_| 0 < more) {
            tell(&format!(
                "{} holds files that are no segments, {} in all, such as {first}: they are left alone",
                self.folder.path().display(),
                self.n_foreign
            ));
        }
        self.counters
            .add(Counter::ForeignFiles, u64::try_from(more).unwrap_or(u64::MAX));
    }

    /// The profile of the last seconds: the segments of that time as one file, at least the last segment.
    pub(super) fn profile(&self, seconds: u64) -> anyhow::Result<Vec<u8>> {
        let listing = Listing::read(self.folder.path())?;
        let now = since_epoch() / MS;
        let last = listing
            .segments
            .last()
            .map(|(name, _)| name)
            .map_or(now, |last| last.end().saturating_sub(1));
        let since = now.saturating_sub(seconds.saturating_mul(1000)).min(last);
        let wanted = listing.segments.iter().filter(|(name, _)| since < name.end());
        let size: u64 = wanted.map(|(_, size)| size).sum();
        anyhow::ensure!(
            reading(size) <= self.memory,
            "the segments of that time need more memory than the budget: ask for fewer seconds, or read the files"
        );
        let range = TimeRange {
            since: Some(Moment::At(since)),
            until: None,
        };
        let runs = read_range(self.folder.path(), range, now)?;
        Ok(encode_runs(&runs, Compression::Fast)?)
    }

    /// Writes an interval, or lets it wait; then estimates the mix of the metrics, merges and removes what is due.
    pub(super) fn keep(&mut self, snapshot: Snapshot) {
        let written = self.save(snapshot);
        if let Some(feed) = &mut self.feed
            && !written.is_empty()
        {
            feed.estimate(written);
        }
        if let Err(error) = self.tidy() {
            tell(&format!(
                "cannot look after {}: {error:#}",
                self.folder.path().display()
            ));
        }
    }

    /// Writes an interval, or lets it wait, and no more, as the daemon ends: on a busy machine an estimate takes minutes, and whoever
    /// asked for the end kills what does not. The next daemon merges and removes.
    pub(super) fn keep_last(&mut self, snapshot: Snapshot) {
        self.save(snapshot);
    }

    /// Writes an interval and what waits, or lets it wait. Returns what was written.
    fn save(&mut self, mut snapshot: Snapshot) -> Vec<Snapshot> {
        snapshot.join_images(MOST_IMAGES);
        self.host = Some(snapshot.run.host.name.clone());
        if let Some(feed) = &self.feed {
            feed.count(&snapshot);
        }
        self.add(snapshot);
        let Some((name, runs)) = self.waiting.take() else {
            return Vec::new();
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
                runs
            }
            Err(error) => {
                if n_intervals == 1 {
                    tell(&format!(
                        "cannot write a segment; intervals wait in memory until it is possible: {error:#}"
                    ));
                }
                self.counters.add(Counter::WriteFailures, 1);
                self.waiting = Some((name, runs));
                Vec::new()
            }
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
        let is_full = self.memory < runs.iter().map(used).sum::<usize>() + used(&snapshot);
        if is_full {
            self.counters.add(Counter::IntervalsDropped, 1);
            let lost = snapshot.run.duration;
            note_lost_after(runs.last_mut(), lost, "could not be written for long");
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

    /// Removes what is too old, and merges some segments.
    fn tidy(&mut self) -> anyhow::Result<()> {
        let listing = Listing::read(self.folder.path())?;
        self.count_foreign(&listing);
        let sizes: BTreeMap<Name, u64> = listing.segments.iter().copied().collect();
        let mut names = listing.names();
        for nest in nests(&names).into_iter().filter(|nest| !nest.inner.is_empty()) {
            if !self.is_settled {
                for held in self.settle(&nest, &sizes)? {
                    names.remove(&held);
                }
            } else if self.left_alone.insert(nest.outer) {
                tell(&format!(
                    "{} is named as if it held segments of this daemon: it is left alone, and compared at the next start",
                    nest.outer
                ));
            }
        }
        self.is_settled = true;
        let kept = listing
            .segments
            .into_iter()
            .filter(|(name, _)| names.contains(name));
        for name in expired(&kept.collect::<Vec<_>>(), self.limits, since_epoch() / MS) {
            self.folder.remove(&name)?;
            names.remove(&name);
            self.counters.add(Counter::SegmentsExpired, 1);
        }
        if let Some(group) = to_merge(&names, &self.left_alone) {
            self.merge(&group, &sizes)?;
        }
        Ok(())
    }

    /// Removes what a merged segment holds, as the daemon that merged it was killed before it could; returns their names. What it only
    /// seems to hold, by its name, stays and is never merged, nor is the segment itself.
    fn settle(&mut self, nest: &Nest, sizes: &BTreeMap<Name, u64>) -> anyhow::Result<Vec<Name>> {
        let names = || nest.inner.iter().chain([&nest.outer]);
        let largest = names().filter_map(|name| sizes.get(name)).max();
        let fits = largest.is_none_or(|largest| reading(*largest) <= self.memory);
        let Read { held, damaged, .. } = if fits {
            match compare(self.folder.path(), nest) {
                Some(read) => read,
                // Somebody removed one: what is left is looked at after the next start.
                None => return Ok(Vec::new()),
            }
        } else {
            Read::default()
        };
        for name in &held {
            self.folder.remove(name)?;
        }
        self.counters.add(
            Counter::SegmentsHeld,
            u64::try_from(held.len()).unwrap_or(u64::MAX),
        );
        let n_damaged = u64::try_from(damaged.len()).unwrap_or(u64::MAX);
        self.counters.add(Counter::SegmentsUnreadable, n_damaged);
        let n_left = nest.inner.len() - held.len();
        if !held.is_empty() {
            tell(&format!(
                "removed {} segments that {} holds as well",
                held.len(),
                nest.outer
            ));
        }
        if 0 < n_left {
            let why = match damaged.first() {
                Some((_, why)) => format!("damaged: {why}"),
                None if fits => "it is of another measurement".to_owned(),
                None => "comparing them would need more memory than the budget".to_owned(),
            };
            tell(&format!(
                "{n_left} segments stay, although {} is named as if it held them ({why})",
                nest.outer
            ));
            let left = names().filter(|name| !held.contains(name));
            self.left_alone.extend(left);
        }
        Ok(held)
    }
}

/// Memory that reading files of this size takes, in bytes: the file, what is decompressed, and its rows. Text of compilers is
/// 1.32 times as long as its fast compression, and 1.75 times as long as the small one of merged segments.
fn reading(size: u64) -> usize {
    usize::try_from(size).map_or(usize::MAX, |size| size.saturating_mul(9) / 2)
}

/// Says in a run that an interval of this length after it is lost.
fn note_lost_after(run: Option<&mut Snapshot>, lost: u64, why: &str) {
    if let Some(run) = run {
        let note = format!("intervals after this one are lost: they {why}");
        run.run.note_unmeasured(note, lost);
    }
}

#[cfg(test)]
mod tests;
