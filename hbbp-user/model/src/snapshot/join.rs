//! Process images that are counted together: a build runs thousands of short-lived ones, of which each has a sample or two.
//!
//! Where many of one command name and cgroup have ended, they become one ([`Snapshot::join_ended`]): a minute of
//! compiling is one `cc1` and not two hundred, a report of which takes a fifth of the time and a quarter of the memory.
//! Where there are more images than a profile is to hold, so do those with the fewest samples
//! ([`Snapshot::join_images`]). Executed text is unchanged, as each of their addresses becomes the address of the same
//! byte of the same module; only which of the processes executed it is lost. The joined image has a layout of its own:
//!
//! ```text
//! true (7)     [ /bin/true ]          [ libc.so ]
//! true (8)             [ /bin/true ]                 [ libc.so ]
//! joined       [ /bin/true ][ libc.so ]
//! ```
//!
//! An image is not joined if the mapping of a row is not known, if its mappings changed, or if it is a thread.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::mem;
use std::ops::Range;

use super::row::merge_rows;
use super::{CgroupIdx, Interval, Mapping, ModuleIdx, Process, ProcessIdx, Snapshot};
use crate::addr::{ImageAddr, Ring, Va};

/// Where the layout of a joined image begins, and what its modules are aligned to.
const FIRST: u64 = 1 << 16;
const PAGE: u64 = 1 << 12;
/// The layout ends here at the latest: user code has 47 bits (Documentation/arch/x86/x86_64/mm.rst).
const LAST: u64 = 1 << 46;

/// Most images of one command name and cgroup that have ended and are not joined: a user looks at some runs of a
/// program one by one.
const MOST_ALIKE: usize = 16;

/// The name of joined images whose own names are too many.
const OTHERS: &str = "[other processes]";

/// Images that become one, by the name and cgroup that they will have.
type Groups = BTreeMap<(String, Option<CgroupIdx>), Group>;

impl Snapshot {
    /// Joins the process images of these that have the command name and cgroup of many others of them.
    pub fn join_ended(&mut self, ended: &[ProcessIdx]) {
        if ended.len() <= MOST_ALIKE {
            return;
        }
        let ended: HashSet<usize> = ended.iter().map(|idx| idx.0 as usize).collect();
        let mut candidates = self.candidates();
        candidates.retain(|(idx, _)| ended.contains(idx));
        let mut groups = self.alike(candidates);
        groups.retain(|_, group| MOST_ALIKE < group.images.len());
        self.join(groups);
    }

    /// Joins process images where there are more than `most`, until about three quarters of that are left.
    pub fn join_images(&mut self, most: usize) {
        if self.processes.len() <= most {
            return;
        }
        let mut candidates = self.candidates();
        candidates.sort_by_key(|(_, hits)| *hits);
        let few = candidates.len().saturating_sub(most / 2);
        candidates.truncate(few);
        self.join(fewer(self.alike(candidates), most / 4));
    }

    /// Images by command name and cgroup.
    fn alike(&self, candidates: Vec<(usize, u64)>) -> Groups {
        let mut groups = Groups::new();
        for (idx, hits) in candidates {
            let Some(image) = self.processes.get(idx) else {
                continue;
            };
            let group = groups.entry((image.comm.clone(), image.cgroup)).or_default();
            group.images.push(idx);
            group.hits = group.hits.saturating_add(hits);
        }
        groups
    }

    /// Makes each group of more than one image one.
    fn join(&mut self, groups: Groups) {
        let mut joined: Vec<Process> = Vec::new();
        let mut moved: HashMap<usize, (usize, Places)> = HashMap::new();
        for ((comm, cgroup), Group { images, .. }) in groups {
            let Some((layout, mappings)) = self.laid_out(&images).filter(|_| 1 < images.len()) else {
                continue;
            };
            for idx in images {
                moved.insert(idx, (joined.len(), self.places(idx, &layout)));
            }
            joined.push(Process {
                tgid: Process::JOINED,
                exec_id: 0,
                comm,
                mappings,
                cgroup,
                thread: None,
            });
        }
        self.replace(joined, &moved);
    }

    /// The images that may be joined, with their hits.
    fn candidates(&self) -> Vec<(usize, u64)> {
        let may_be = |image: &Process| {
            let mut pairs = image.mappings.windows(2);
            let overlap = |pair: &[Mapping]| matches!(pair, [a, b] if b.start < a.end);
            image.thread.is_none() && !pairs.any(overlap)
        };
        let mut hits: Vec<Option<u64>> = self.processes.iter().map(|it| may_be(it).then_some(0)).collect();
        let mut add = |process: ProcessIdx, n: u64, is_known: bool| {
            if let Some(sum) = hits.get_mut(process.0 as usize) {
                *sum = sum.filter(|_| is_known).map(|sum| sum.saturating_add(n));
            }
        };
        for interval in &self.intervals {
            for row in interval.ips.iter().chain(&interval.refused) {
                add(row.process, row.hits, self.is_known(row.process, row.ip));
            }
            for row in &interval.streams {
                let source = row.source.is_none_or(|source| self.is_known(row.process, source));
                let ends = [row.start, row.end].map(|at| self.module(row.process, at));
                let is_known = ends[0].is_some() && ends[0] == ends[1] && source;
                add(row.process, row.hits, is_known);
            }
            for row in &interval.chains {
                let is_known = |at: &Va| self.is_known(row.process, *at);
                add(
                    row.process,
                    row.hits,
                    is_known(&row.ip) && is_known(&row.top) && row.frames.iter().all(is_known),
                );
            }
            for row in &interval.branches {
                let is_known = self.is_known(row.process, row.from) && self.is_known(row.process, row.to);
                add(row.process, row.hits, is_known);
            }
        }
        let hits = hits.into_iter().enumerate().skip(1);
        hits.filter_map(|(idx, hits)| Some((idx, hits?))).collect()
    }

    fn is_known(&self, process: ProcessIdx, at: Va) -> bool {
        self.module(process, at).is_some()
    }

    /// The module of an address; the kernel for its own, and for the address 0 of what is not known.
    fn module(&self, process: ProcessIdx, at: Va) -> Option<Option<ModuleIdx>> {
        if stays(at) {
            return Some(None);
        }
        let image = self.processes.get(process.0 as usize)?;
        Some(Some(mapping_at(&image.mappings, at)?.module))
    }

    /// A layout of all that is mapped into these images: where each module would have its address 0, and the mappings.
    /// `None` if it is too large.
    fn laid_out(&self, images: &[usize]) -> Option<(HashMap<ModuleIdx, u64>, Vec<Mapping>)> {
        let mut parts: BTreeMap<ModuleIdx, Range<u64>> = BTreeMap::new();
        let images = images.iter().filter_map(|idx| self.processes.get(*idx));
        for mapping in images.flat_map(|image| &image.mappings) {
            let start = mapping.image_start.0;
            let end = start.checked_add(mapping.end.since(mapping.start)?)?;
            let part = parts.entry(mapping.module).or_insert(start..end);
            *part = part.start.min(start)..part.end.max(end);
        }
        let (mut at, mut bases, mut mappings) = (FIRST, HashMap::new(), Vec::new());
        for (module, part) in parts {
            // The same offset in its page, as in the images.
            let start = at + part.start % PAGE;
            let end = start
                .checked_add(part.end - part.start)
                .filter(|end| *end < LAST)?;
            bases.insert(module, start.wrapping_sub(part.start));
            mappings.push(Mapping {
                start: Va(start),
                end: Va(end),
                module,
                image_start: ImageAddr(part.start),
                from: 0,
            });
            at = end.next_multiple_of(PAGE) + PAGE;
        }
        Some((bases, mappings))
    }

    /// Where the mappings of an image go.
    fn places(&self, idx: usize, bases: &HashMap<ModuleIdx, u64>) -> Places {
        let mappings = self.processes.get(idx).map_or(&[][..], |it| &it.mappings);
        let place = |mapping: &Mapping| {
            let base = bases.get(&mapping.module)?;
            let start = base.wrapping_add(mapping.image_start.0);
            Some((mapping.start..mapping.end, Va(start)))
        };
        Places(mappings.iter().filter_map(place).collect())
    }

    /// Replaces the images that moved by the joined ones, and adds up their rows.
    fn replace(&mut self, joined: Vec<Process>, moved: &HashMap<usize, (usize, Places)>) {
        if joined.is_empty() {
            return;
        }
        let mut became = Vec::with_capacity(self.processes.len());
        let mut left = Vec::new();
        for (idx, image) in mem::take(&mut self.processes).into_iter().enumerate() {
            became.push(left.len());
            if !moved.contains_key(&idx) {
                left.push(image);
            }
        }
        let n_left = left.len();
        left.extend(joined);
        self.processes = left;
        let index = |idx: usize| ProcessIdx(u32::try_from(idx).unwrap_or(u32::MAX));
        let moved = |process: &mut ProcessIdx, addresses: &mut [&mut Va]| {
            let idx = process.0 as usize;
            match moved.get(&idx) {
                Some((nth, places)) => {
                    *process = index(n_left + nth);
                    addresses.iter_mut().for_each(|at| **at = places.of(**at));
                }
                None => *process = became.get(idx).map_or(*process, |idx| index(*idx)),
            }
        };
        for interval in &mut self.intervals {
            move_rows(interval, moved);
        }
    }
}

/// Images that become one.
#[derive(Debug, Default)]
struct Group {
    images: Vec<usize>,
    hits: u64,
}

/// The groups with the most hits, at most `most`, and of the others one for each cgroup.
fn fewer(groups: Groups, most: usize) -> Groups {
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.hits));
    let others = groups.split_off(most.min(groups.len()));
    let mut fewer: Groups = groups.into_iter().collect();
    for ((_, cgroup), group) in others {
        let one = fewer.entry((OTHERS.to_owned(), cgroup)).or_default();
        one.images.extend(group.images);
    }
    fewer
}

/// Where the addresses of an image go: ranges, and the new start of each.
#[derive(Debug)]
struct Places(Vec<(Range<Va>, Va)>);

impl Places {
    fn of(&self, at: Va) -> Va {
        let n_before = self.0.partition_point(|(range, _)| range.start <= at);
        let place = n_before.checked_sub(1).and_then(|nth| self.0.get(nth));
        let place = place.filter(|_| !stays(at));
        let moved = place.and_then(|(range, start)| start.checked_add(at.since(range.start)?));
        moved.unwrap_or(at)
    }
}

/// Whether an address belongs to no image.
fn stays(at: Va) -> bool {
    at.ring() == Ring::Kernel || at == Va(0)
}

/// The mapping at an address, of mappings that do not overlap.
fn mapping_at(mappings: &[Mapping], at: Va) -> Option<&Mapping> {
    let n_before = mappings.partition_point(|mapping| mapping.start <= at);
    let mapping = mappings.get(n_before.checked_sub(1)?)?;
    (at < mapping.end).then_some(mapping)
}

/// Moves all rows, and adds up those that are of the same then.
fn move_rows(interval: &mut Interval, moved: impl Fn(&mut ProcessIdx, &mut [&mut Va])) {
    for row in interval.ips.iter_mut().chain(&mut interval.refused) {
        moved(&mut row.process, &mut [&mut row.ip]);
    }
    for row in &mut interval.streams {
        let mut none = Va(0);
        let source = row.source.as_mut().unwrap_or(&mut none);
        moved(&mut row.process, &mut [&mut row.start, &mut row.end, source]);
    }
    for row in &mut interval.branches {
        moved(&mut row.process, &mut [&mut row.from, &mut row.to]);
    }
    for row in &mut interval.chains {
        let mut frames = row.frames.to_vec();
        let addresses: Vec<&mut Va> = [&mut row.ip, &mut row.top]
            .into_iter()
            .chain(&mut frames)
            .collect();
        moved(&mut row.process, &mut { addresses });
        row.frames = frames.into();
    }
    merge_rows(&mut interval.ips, Vec::new());
    merge_rows(&mut interval.refused, Vec::new());
    merge_rows(&mut interval.streams, Vec::new());
    merge_rows(&mut interval.branches, Vec::new());
    merge_rows(&mut interval.chains, Vec::new());
}
