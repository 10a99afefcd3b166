//! Successive profiles of one measurement as one run: a range of time is read, annotated and exported like a single
//! recording. Shared text, names and mappings are stored once.
//!
//! [`super::merge`] puts runs side by side and is for any hosts and times. Here intervals follow each other on one
//! machine, between one boot and the next, with the same events and periods. Counts, counters and losses add up exactly;
//! text that changed from one profile to the next becomes a version of its range.

mod facts;
mod modules;
mod processes;
mod text;

use std::ops::Range;

use super::budget::used_percent;
use super::fold::{Boundaries, Intervals, replaced_at};
use super::{Interval, Snapshot};

/// The profiles, in the order of time, with those that continue each other as one.
pub fn united(profiles: impl IntoIterator<Item = Snapshot>) -> Vec<Snapshot> {
    let mut runs: Vec<Snapshot> = Vec::new();
    for next in profiles {
        match runs.last_mut() {
            Some(last) if next.continues(last) => last.append(next),
            _ => runs.push(next),
        }
    }
    runs
}

impl Snapshot {
    /// Whether both are parts of one measurement, this one after the other.
    ///
    /// The time of boot (of the wall clock minus CLOCK_MONOTONIC) may differ by what the wall clock was adjusted.
    /// After a suspend, which CLOCK_MONOTONIC leaves out, a new run begins.
    pub(crate) fn continues(&self, earlier: &Self) -> bool {
        facts::are_of_one_measurement(earlier, self)
    }

    /// Whether another profile was united into this one: it is of the same machine and boot, and within its time.
    pub(crate) fn holds(&self, part: &Self) -> bool {
        facts::is_of_the_time_of(part, self)
    }

    /// Appends a profile that [continues](Self::continues) this one. What becomes too large for a file is made to fit.
    pub(crate) fn append(&mut self, next: Self) {
        let Self {
            run,
            modules,
            processes,
            cgroups,
            text,
            static_branches,
            intervals,
            losses,
        } = next;
        let n_before = u32::try_from(self.intervals.len()).unwrap_or(u32::MAX);
        let began = intervals.first().map_or(0, |interval| interval.start);
        facts::add(&mut self.run, run);
        let became = modules::unite(self, modules, &text);
        let text = text.into_iter().filter_map(|mut text| {
            text.module = *became.get(text.module.0 as usize)?;
            text.since = text.since.saturating_add(n_before);
            Some(text)
        });
        self.text = text::unite(std::mem::take(&mut self.text), text.collect(), n_before);
        let branches = static_branches.into_iter().filter_map(|mut branch| {
            branch.module = *became.get(branch.module.0 as usize)?;
            Some(branch)
        });
        self.static_branches.extend(branches);
        self.static_branches.sort_unstable();
        self.static_branches
            .dedup_by_key(|branch| (branch.module, branch.addr));
        let cgroups = processes::unite_cgroups(&mut self.cgroups, cgroups);
        let became = processes::unite(&mut self.processes, processes, &became, &cgroups, began);
        let appended = intervals.into_iter().map(|mut interval| {
            let renumbered = |process: &mut super::ProcessIdx| {
                *process = became.get(process.0 as usize).copied().unwrap_or(*process);
            };
            let ips = interval.ips.iter_mut().chain(&mut interval.refused);
            ips.for_each(|it| renumbered(&mut it.process));
            interval
                .streams
                .iter_mut()
                .for_each(|it| renumbered(&mut it.process));
            interval
                .branches
                .iter_mut()
                .for_each(|it| renumbered(&mut it.process));
            interval
                .chains
                .iter_mut()
                .for_each(|it| renumbered(&mut it.process));
            interval
        });
        self.intervals.extend(appended);
        self.losses += &losses;
        if 100 < used_percent(self) {
            self.fit();
        }
    }

    /// The times that were measured, in ms since 1970. Intervals that follow each other without a [gap](GAP) are one time.
    pub(crate) fn covered(&self) -> Vec<Range<u64>> {
        const MS: u64 = 1_000_000;
        let booted = facts::booted(self);
        let parts = self.intervals.chunk_by(|a, b| !is_gap(a, b));
        let time = |part: &[Interval]| {
            let (first, last) = (part.first()?, part.last()?);
            let at = |monotonic: u64| booted.saturating_add(monotonic);
            Some(at(first.start) / MS..at(last.end).div_ceil(MS))
        };
        parts.filter_map(time).collect()
    }

    /// Merges intervals as far as no text version and no mapping begins between them, and none was missed: every report sums
    /// them up, so that nothing but resolution in time is lost.
    pub fn coarsen(&mut self) {
        let mappings = |process: &super::Process| {
            let mappings = process.mappings.iter();
            replaced_at(mappings.map(|it| (it.start..it.end, it.from))).collect::<Vec<u64>>()
        };
        let pairs = self.intervals.windows(2);
        let after_gaps = pairs.filter_map(|pair| match pair {
            [a, b] if is_gap(a, b) => Some(b.start),
            _ => None,
        });
        let replaced = self.processes.iter().flat_map(mappings);
        let boundaries = Boundaries {
            versions: self.text.iter().map(|text| text.since).collect(),
            mappings: replaced.chain(after_gaps).collect(),
        };
        let mut intervals = Intervals::default();
        self.intervals.drain(..).for_each(|it| intervals.push(it));
        intervals.merge_all(&boundaries);
        self.intervals = intervals.take(&mut self.text);
    }
}

/// Time in ns between two intervals from which on something was not measured. From one profile to the next sampling pauses
/// for as long as the counts are taken out, some ms.
pub(crate) const GAP: u64 = 1_000_000_000;

fn is_gap(a: &Interval, b: &Interval) -> bool {
    GAP < b.start.saturating_sub(a.end)
}

#[cfg(test)]
mod tests;
