//! Branch stacks as `perf script -F ip,brstack` prints them, for tools that read nothing else: made from ranges and branches.
//!
//! ```text
//! PERF_RECORD_MMAP2 1/1: [0xADDR(0xSIZE) @ 0xOFFSET 00:00 0 0]: r-xp FILE
//! COUNT                            how often the next stack was seen, as llvm-profgen reads it
//!  IP 0xFROM/0xTO/P/-/-/0 ..       newest entry first
//! ```
//!
//! A stack is a walk: from each range along the branch that is left most often to the next range. Every range is in as
//! many stacks as it was executed, exactly; the branch before the first range of a stack is repeated. Which ranges follow
//! each other in one stack is made up beyond neighbours.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use super::image::{BranchLine, Image, RangeLine, Written};
use hbbp_model::printable::harmless;
use hbbp_model::snapshot::ImageLayout;

/// Ranges of a full stack of 32 entries.
const RANGES: usize = 31;

/// What is left of ranges and branches.
struct Left {
    /// By index: first and last instruction, executions.
    ranges: Vec<(u64, u64, u64)>,
    /// Ranges by start.
    from_start: HashMap<u64, Vec<usize>>,
    /// By index: source, target, executions.
    branches: Vec<(u64, u64, u64)>,
    /// Branches by source.
    from_source: HashMap<u64, Vec<usize>>,
    /// The most frequent branch to each target.
    into: HashMap<u64, u64>,
}

/// Ranges and the branches between them, by index, with how often each is in the stack.
#[derive(Default)]
struct Walk {
    ranges: Vec<usize>,
    used: BTreeMap<usize, u64>,
    used_branches: BTreeMap<usize, u64>,
}

/// Writes the stacks of an image.
pub fn write_perf_script(image: &Image<'_>, out: &mut dyn Write) -> io::Result<Written> {
    let mut written = Written::default();
    let term = |layout: &ImageLayout, at| layout.elf_addr(at);
    let ranges = image.ranges(term, &mut written);
    let branches = image.branches(term, &mut Written::default());
    for part in image.layout.executable() {
        let offset = part.linked.offset.map_or(0, |offset| offset.0);
        let (addr, len) = (part.linked.addr, part.len);
        let name = harmless(image.layout.path());
        writeln!(
            out,
            "PERF_RECORD_MMAP2 1/1: [{addr:#x}({len:#x}) @ {offset:#x} 00:00 0 0]: r-xp {name}"
        )?;
    }
    let mut left = Left::new(&ranges, &branches);
    for first in 0..left.ranges.len() {
        while left.range(first) != 0 {
            let walk = left.walk(first);
            let count = left.take(&walk);
            left.write(&walk, count, out)?;
            written.add("ranges", count.saturating_mul(walk.ranges.len() as u64));
        }
    }
    Ok(written)
}

impl Left {
    fn new(ranges: &[RangeLine], branches: &[BranchLine]) -> Self {
        let mut left = Self {
            ranges: ranges
                .iter()
                .map(|range| (range.start, range.last, range.count))
                .collect(),
            from_start: HashMap::new(),
            branches: Vec::new(),
            from_source: HashMap::new(),
            into: HashMap::new(),
        };
        left.ranges
            .sort_by_key(|(start, last, count)| (std::cmp::Reverse(*count), *start, *last));
        for (idx, (start, ..)) in left.ranges.iter().enumerate() {
            left.from_start.entry(*start).or_default().push(idx);
        }
        let mut most: HashMap<u64, u64> = HashMap::new();
        for branch in branches {
            let (from, to) = (branch.from.unwrap_or(0), branch.to.unwrap_or(0));
            left.from_source
                .entry(from)
                .or_default()
                .push(left.branches.len());
            left.branches.push((from, to, branch.count));
            let known = most.entry(to).or_default();
            if *known < branch.count {
                *known = branch.count;
                left.into.insert(to, from);
            }
        }
        left
    }

    fn range(&self, idx: usize) -> u64 {
        self.ranges.get(idx).map_or(0, |(.., left)| *left)
    }

    fn branch(&self, idx: usize) -> u64 {
        self.branches.get(idx).map_or(0, |(.., left)| *left)
    }

    /// The ranges from `first` on, along the branches that are left most often.
    fn walk(&self, first: usize) -> Walk {
        let mut walk = Walk::default();
        let mut next = Some((first, None));
        while let Some((range, branch)) = next.filter(|_| walk.ranges.len() < RANGES) {
            walk.ranges.push(range);
            *walk.used.entry(range).or_default() += 1;
            if let Some(branch) = branch {
                *walk.used_branches.entry(branch).or_default() += 1;
            }
            next = self.step(range, &walk);
        }
        walk
    }

    /// The next range of a walk, and the branch to it.
    fn step(&self, range: usize, walk: &Walk) -> Option<(usize, Option<usize>)> {
        let (_, last, _) = self.ranges.get(range)?;
        let unused = |used: &BTreeMap<usize, u64>, idx: usize, left: u64| {
            left.saturating_sub(used.get(&idx).copied().unwrap_or(0))
        };
        let steps = self.from_source.get(last)?.iter().filter_map(|branch| {
            let (_, to, _) = self.branches.get(*branch)?;
            let ranges = self.from_start.get(to)?.iter();
            let left = |range: &&usize| unused(&walk.used, **range, self.range(**range));
            let range = ranges.max_by_key(left).filter(|range| 0 < left(range))?;
            let left = unused(&walk.used_branches, *branch, self.branch(*branch));
            (0 < left).then_some((left, *range, *branch))
        });
        let (_, range, branch) = steps.max_by_key(|(left, ..)| *left)?;
        Some((range, Some(branch)))
    }

    /// Takes a walk as often as it can be taken, at least once, and returns how often.
    fn take(&mut self, walk: &Walk) -> u64 {
        let ranges = walk.used.iter().map(|(idx, used)| self.range(*idx) / used);
        let branches = walk
            .used_branches
            .iter()
            .map(|(idx, used)| self.branch(*idx) / used);
        let count = ranges.chain(branches).min().unwrap_or(1).max(1);
        for (idx, used) in &walk.used {
            if let Some((.., left)) = self.ranges.get_mut(*idx) {
                *left = left.saturating_sub(used * count);
            }
        }
        for (idx, used) in &walk.used_branches {
            if let Some((.., left)) = self.branches.get_mut(*idx) {
                *left = left.saturating_sub(used * count);
            }
        }
        count
    }

    fn write(&self, walk: &Walk, count: u64, out: &mut dyn Write) -> io::Result<()> {
        let ranges = walk
            .ranges
            .iter()
            .rev()
            .filter_map(|range| self.ranges.get(*range));
        // The newest branch leads to what it leads to most often.
        let newest = ranges.clone().next().map_or(0, |(_, last, _)| *last);
        let targets = self.from_source.get(&newest).into_iter().flatten();
        let target = targets
            .filter_map(|branch| self.branches.get(*branch))
            .max_by_key(|(.., left)| *left);
        let mut to = target.map_or(0, |(_, to, _)| *to);
        write!(out, "{count}\n {to:x}")?;
        for (start, last, _) in ranges {
            write!(out, " {last:#x}/{to:#x}/P/-/-/0")?;
            to = *start;
        }
        let from = self.into.get(&to).copied().unwrap_or(0);
        writeln!(out, " {from:#x}/{to:#x}/P/-/-/0")
    }
}
