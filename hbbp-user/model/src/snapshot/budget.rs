//! What a profile may hold at most. What the collector made is never refused: it is made smaller, and what is left out
//! is counted.
//!
//! | what                         | bound                          | what happens beyond                                  |
//! |------------------------------|--------------------------------|------------------------------------------------------|
//! | counts                       | [`MAX_COUNTS`] in memory       | intervals are merged, then rows left out (`fold`)    |
//! | process images               | [`MAX_IMAGES`]                 | those with the fewest samples lose their mappings    |
//! | mappings                     | [`MAX_MAPPINGS`]               | the same                                             |
//! | modules                      | [`MAX_MODULES`]                | those that were seen last lose mappings and text     |
//! | text                         | [`MAX_TEXT`] bytes, [`MAX_TEXTS`] ranges | code of compilers at run time makes room for files, files for the kernel |
//! | names of functions           | [`MAX_NAMES`] bytes, [`MAX_SYMBOLS`] names | the modules with most names lose the excess |
//! | names of modules             | [`MAX_PATHS`] bytes            | the longest paths lose their first folders           |
//! | static branches              | [`MAX_BRANCHES`]               | none are held                                        |
//! | paths of cgroups             | [`MAX_CGROUPS`] bytes          | those of the last process images become unknown      |
//!
//! The bounds of modules hold for each alone: the same largest share for all is found that keeps the sum within the bound.
//! So one process that makes up code or names loses its own and not those of others. An hour of emulators and compilers
//! leaves six times the text that a profile may have, nearly all of it written at run time and rarely seen twice. The bound
//! of text holds while a run goes on, too: for that of files, and once more for what was written at run time.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::fold::{Boundaries, Intervals, MAX_COUNTS, memory, replaced_at};
use super::{Loss, Module, ModuleIdx, Process, ProcessIdx, Snapshot, StaticBranch, Symbol, Text};

/// Most process images.
pub const MAX_IMAGES: usize = 1 << 18;
/// Most mappings of all process images together.
pub(crate) const MAX_MAPPINGS: usize = 1 << 20;
/// Most modules.
pub const MAX_MODULES: usize = 1 << 16;
/// Most bytes of text.
pub const MAX_TEXT: usize = 96 << 20;
/// Most text ranges.
pub(crate) const MAX_TEXTS: usize = 1 << 20;
/// Most bytes of function names.
pub(crate) const MAX_NAMES: usize = 24 << 20;
/// Most functions.
pub(crate) const MAX_SYMBOLS: usize = 1 << 20;
/// Most bytes of names of modules.
pub const MAX_PATHS: usize = 8 << 20;

/// Most bytes of paths of cgroups.
pub(crate) const MAX_CGROUPS: usize = 4 << 20;

/// Most static branches: a kernel has a tenth of them.
pub(crate) const MAX_BRANCHES: usize = 1 << 17;

/// Memory that a snapshot within these bounds takes: what a reader grants to a file.
pub(super) const MAX_MEMORY: usize = MAX_COUNTS
    + MAX_TEXT
    + MAX_NAMES
    + MAX_PATHS
    + MAX_CGROUPS
    + size_of::<StaticBranch>() * MAX_BRANCHES
    + 96 * (MAX_IMAGES + MAX_MAPPINGS + MAX_MODULES + MAX_TEXTS + MAX_SYMBOLS);

/// Memory that a snapshot takes, as a reader counts it: rows with their names and bytes.
pub fn used(snapshot: &Snapshot) -> usize {
    let counts: usize = snapshot.intervals.iter().map(memory).sum();
    let text: usize = snapshot
        .text
        .iter()
        .map(|text| size_of::<Text>() + text.bytes.len())
        .sum();
    let symbol = |symbol: &Symbol| size_of::<Symbol>() + symbol.name.len();
    let modules = snapshot.modules.iter().map(|module| {
        let symbols: usize = module.symbols.iter().map(symbol).sum();
        size_of::<Module>() + module.name.len() + module.build_id.len() + symbols
    });
    let processes = snapshot.processes.iter().map(|process| {
        let names = process.comm.len() + process.thread.as_ref().map_or(0, |thread| thread.name.len());
        size_of::<Process>() + names + size_of_val(process.mappings.as_slice())
    });
    let branches = size_of_val(snapshot.static_branches.as_slice());
    counts
        + text
        + branches
        + modules.sum::<usize>()
        + processes.sum::<usize>()
        + cgroup_bytes(&snapshot.cgroups)
}

/// Memory of the paths of cgroups.
fn cgroup_bytes(paths: &[String]) -> usize {
    paths.iter().map(|path| cgroup_size(path)).sum()
}

const fn cgroup_size(path: &str) -> usize {
    size_of::<String>() + path.len()
}

/// The greatest share of its bound that a snapshot uses, in percent.
pub fn used_percent(snapshot: &Snapshot) -> usize {
    let counts: usize = snapshot.intervals.iter().map(memory).sum();
    let mappings = snapshot
        .processes
        .iter()
        .map(|process| process.mappings.len())
        .sum();
    let symbols = || snapshot.modules.iter().flat_map(|module| &module.symbols);
    let uses: [(usize, usize); 11] = [
        (counts, MAX_COUNTS),
        (snapshot.processes.len(), MAX_IMAGES),
        (mappings, MAX_MAPPINGS),
        (snapshot.modules.len(), MAX_MODULES),
        (snapshot.text.iter().map(|text| text.bytes.len()).sum(), MAX_TEXT),
        (snapshot.text.len(), MAX_TEXTS),
        (symbols().map(|symbol| symbol.name.len()).sum(), MAX_NAMES),
        (symbols().count(), MAX_SYMBOLS),
        (
            snapshot.modules.iter().map(|module| module.name.len()).sum(),
            MAX_PATHS,
        ),
        (cgroup_bytes(&snapshot.cgroups), MAX_CGROUPS),
        (snapshot.static_branches.len(), MAX_BRANCHES),
    ];
    let percent = |(used, max): (usize, usize)| used.saturating_mul(100).div_ceil(max);
    uses.into_iter().map(percent).max().unwrap_or(0)
}

impl Snapshot {
    /// Makes the snapshot small enough for a file: see the table above. A note says so where something is left out.
    pub fn fit(&mut self) {
        let used = used_percent(self);
        if 100 < used {
            self.run.notes.push(format!(
                "the profile reached {used} % of the size that a profile may have; what is beyond 100 % is left out \
                 and counted: record for a shorter time, or sample more rarely"
            ));
            self.fit_counts();
            self.fit_processes();
            self.fit_cgroups();
            self.fit_static_branches();
            self.fit_modules();
            self.fit_text();
            self.fit_names();
        }
    }

    fn fit_counts(&mut self) {
        if self.intervals.iter().map(memory).sum::<usize>() <= MAX_COUNTS {
            return;
        }
        let boundaries = Boundaries {
            versions: self.text.iter().map(|text| text.since).collect(),
            mappings: self.processes.iter().flat_map(replaced).collect(),
        };
        let mut intervals = Intervals::default();
        self.intervals
            .drain(..)
            .for_each(|interval| intervals.push(interval));
        intervals.fold(&boundaries, &mut self.losses);
        self.intervals = intervals.take(&mut self.text);
    }

    /// The process images with the fewest samples become one without mappings, so that their samples stay counted.
    fn fit_processes(&mut self) {
        let n_mappings = |process: &Process| process.mappings.len();
        let all: usize = self.processes.iter().map(n_mappings).sum();
        if self.processes.len() <= MAX_IMAGES && all <= MAX_MAPPINGS {
            return;
        }
        let mut by_samples = self.samples_by_process();
        by_samples.sort_unstable_by_key(|(process, n)| (*process != ProcessIdx::KERNEL, Reverse(*n)));
        let mut left = MAX_MAPPINGS;
        let kept = by_samples.iter().take(MAX_IMAGES - 1).take_while(|(process, _)| {
            let needed = self.processes.get(process.0 as usize).map_or(0, n_mappings);
            let fits = needed <= left;
            left = left.saturating_sub(needed);
            fits
        });
        let kept: BTreeSet<ProcessIdx> = kept.map(|(process, _)| *process).collect();
        let others = u32::try_from(kept.len()).unwrap_or(u32::MAX);
        let became: Vec<ProcessIdx> = (0..)
            .zip(&self.processes)
            .scan(0, |next, (old, _)| {
                let is_kept = kept.contains(&ProcessIdx(old));
                let new = if is_kept { *next } else { others };
                *next += u32::from(is_kept);
                Some(ProcessIdx(new))
            })
            .collect();
        let mut n_left_out = 0;
        let mut old = became.iter();
        self.processes.retain(|process| {
            let is_kept = old.next().is_some_and(|new| new.0 < others);
            n_left_out += if is_kept { 0 } else { count(n_mappings(process)) };
            is_kept
        });
        self.processes.push(Process {
            tgid: u32::MAX,
            comm: "[other processes]".to_owned(),
            ..Process::default()
        });
        let renumber = |process: &mut ProcessIdx| {
            *process = became.get(process.0 as usize).copied().unwrap_or(*process);
        };
        for interval in &mut self.intervals {
            let ips = interval.ips.iter_mut().chain(&mut interval.refused);
            ips.for_each(|c| renumber(&mut c.process));
            interval.streams.iter_mut().for_each(|c| renumber(&mut c.process));
            interval
                .branches
                .iter_mut()
                .for_each(|c| renumber(&mut c.process));
            interval.chains.iter_mut().for_each(|c| renumber(&mut c.process));
        }
        self.losses.add(Loss::RegionsLeftOut, n_left_out);
    }

    /// Cgroups beyond the bound become unknown.
    fn fit_cgroups(&mut self) {
        let mut left = MAX_CGROUPS;
        let fits = |path: &&String| {
            let size = cgroup_size(path);
            let fits = size <= left;
            left = left.saturating_sub(size);
            fits
        };
        let kept = self.cgroups.iter().take_while(fits).count();
        if kept == self.cgroups.len() {
            return;
        }
        self.losses
            .add(Loss::NamesLeftOut, count(self.cgroups.len() - kept));
        self.cgroups.truncate(kept);
        for process in &mut self.processes {
            process.cgroup = process.cgroup.filter(|cgroup| (cgroup.0 as usize) < kept);
        }
    }

    /// Static branches of more than any kernel are none.
    fn fit_static_branches(&mut self) {
        if MAX_BRANCHES < self.static_branches.len() {
            self.losses
                .add(Loss::NamesLeftOut, count(self.static_branches.len()));
            self.static_branches.clear();
        }
    }

    /// Samples and streams of each process image.
    fn samples_by_process(&self) -> Vec<(ProcessIdx, u64)> {
        let mut samples: Vec<(ProcessIdx, u64)> = (0..)
            .zip(&self.processes)
            .map(|(idx, _)| (ProcessIdx(idx), 0))
            .collect();
        for interval in &self.intervals {
            let ips = interval.ips.iter().map(|c| (c.process, c.hits));
            let streams = interval.streams.iter().map(|c| (c.process, c.hits));
            for (process, hits) in ips.chain(streams) {
                if let Some((_, n)) = samples.get_mut(process.0 as usize) {
                    *n = n.saturating_add(hits);
                }
            }
        }
        samples
    }

    /// Modules beyond the bound lose their mappings and their text.
    fn fit_modules(&mut self) {
        self.modules.truncate(MAX_MODULES);
        let mut n_left_out = 0;
        let mut is_kept = |module: ModuleIdx| {
            let is_kept = (module.0 as usize) < MAX_MODULES;
            n_left_out += u64::from(!is_kept);
            is_kept
        };
        self.static_branches
            .retain(|branch| (branch.module.0 as usize) < MAX_MODULES);
        for process in &mut self.processes {
            process.mappings.retain(|mapping| is_kept(mapping.module));
        }
        self.text.retain(|text| is_kept(text.module));
        self.losses.add(Loss::RegionsLeftOut, n_left_out);
    }
}

fn replaced(process: &Process) -> impl Iterator<Item = u64> {
    replaced_at(process.mappings.iter().map(|m| (m.start..m.end, m.from)))
}

pub(super) fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
