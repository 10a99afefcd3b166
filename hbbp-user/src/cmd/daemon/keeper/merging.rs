//! Merging segments in bounded memory.

use std::collections::BTreeMap;
use std::time::Instant;

use super::super::counters::Counter;
use super::super::service_log::tell;
use super::{Keeper, MOST_IMAGES, reading};
use hbbp_model::segments::Name;
use hbbp_model::snapshot::Snapshot;
use hbbp_model::snapshot::budget::used;
use hbbp_model::snapshot::file::{Compression, encode_runs};
use hbbp_model::snapshot::unite::united;

/// Segments that are merged at once: an hour of a minute each.
const AT_ONCE: usize = 64;

impl Keeper {
    /// Merges the first segments of a group, up to the first that does not fit into memory: writes one of all, and removes them. One where no
    /// two fit is left alone. What counts is what they hold together: the text of one minute is nearly that of the next.
    pub(super) fn merge(&mut self, group: &[Name], sizes: &BTreeMap<Name, u64>) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut runs: Vec<Snapshot> = Vec::new();
        let mut n_read = 0;
        for name in group.iter().take(AT_ONCE) {
            let size = sizes.get(name).copied().unwrap_or(u64::MAX);
            let is_late = 1 < n_read && self.reading < began.elapsed();
            if is_late || self.memory < merging(runs.iter().map(used).sum(), size) {
                break;
            }
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
            let is_own = |run: &Snapshot| self.host.as_ref().is_none_or(|own| run.run.host.name == *own);
            if !read.iter().all(is_own) {
                tell(&format!("{name} stays as it is: it is of another host"));
                self.left_alone.insert(*name);
                return Ok(());
            }
            read.iter_mut().for_each(Snapshot::coarsen);
            runs = united(runs.into_iter().chain(read));
            runs.iter_mut().for_each(|run| run.join_images(MOST_IMAGES));
            n_read += 1;
        }
        if n_read < 2 {
            self.counters.add(Counter::SegmentsLarge, 1);
            self.left_alone.extend(group.first());
            return Ok(());
        }
        let group = group.get(..n_read).unwrap_or(group);
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
        // Until all are removed: what stays is compared with it.
        self.is_settled = false;
        for name in group {
            self.folder.remove(name)?;
        }
        self.is_settled = true;
        let n_merged = u64::try_from(group.len()).unwrap_or(u64::MAX);
        self.counters.add(Counter::SegmentsMerged, n_merged);
        Ok(())
    }
}

/// Memory that merging a segment whose file has this size takes in addition to those that are `held` already: to read it, or to
/// encode all if it holds nothing that they do. Text is compressed to 0.6 of its length as it is encoded.
fn merging(held: usize, size: u64) -> usize {
    let read = reading(size);
    let all = held.saturating_add(read / 2);
    held.saturating_add(read).max(all.saturating_add(all / 5 * 3))
}
