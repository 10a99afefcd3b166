//! Slices: what was executed in each span of a given number of retired instructions, of a thread or of all that is
//! measured (SimPoint's intervals).
//!
//! The programs in the kernel put the number of the slice into the key of each count. At each drain the counts of a slice
//! are appended here, two or three bytes each: the number of the code, as difference to the one before, and its hits. The
//! recording goes on as if there were no slices, so its memory is that of any recording; `hbbp_analysis::vectors` puts both together.

use std::collections::HashMap;

use hbbp_ebpf::key::{BEHIND_LAST_SLICE, NO_PLACE};
use hbbp_ebpf::{CountKey, Tally};

use crate::leb128;
use crate::streams::ThreadCounts;

/// What makes a slice.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SliceCut {
    /// Units of the counting event, such as retired instructions, in a slice.
    pub length: u64,
    /// The rings whose units count.
    pub rings: Rings,
    /// Whether each thread has slices of its own.
    pub threads: ThreadCounts,
}

/// Rings that are looked at.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Rings {
    /// User code.
    pub user: bool,
    /// Kernel code.
    pub kernel: bool,
}

/// Whose slices they are: a thread, or 0 and 0 for all that is measured.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Owner {
    /// Thread group id.
    pub tgid: u32,
    /// Thread id.
    pub tid: u32,
}

/// Code that was counted: an address, or a stream from there on.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Code {
    /// First address.
    pub address: u64,
    /// From there to the last instruction of a stream, in bytes; 0 for an address alone.
    pub length: u32,
    /// Number of the event.
    pub event: u32,
    /// Thread group id, 0 for the kernel alone.
    pub tgid: u32,
    /// `self_exec_id` of the task.
    pub exec_id: u32,
    /// Thread id where threads are counted separately, else 0.
    pub tid: u32,
}

/// Distinct code that is distinguished: with its numbers 60 MB. A recording of an hour of compilers has half of that.
const MAX_CODE: usize = 1 << 20;

/// Bytes that the hits of all slices may take: 36,000 slices with 1000 blocks each.
const MAX_BYTES: usize = 96 << 20;

/// The counts of all slices.
#[derive(Debug, Default)]
pub struct Slices {
    threads: ThreadCounts,
    numbers: HashMap<Code, u32>,
    code: Vec<Code>,
    owners: Vec<Owner>,
    owner_numbers: HashMap<Owner, u32>,
    /// Owner, slice and range of each run of rows.
    runs: Vec<(u32, u32, u32)>,
    /// Numbers in LEB128: how many rows, then for each the code as difference, and the hits.
    bytes: Vec<u8>,
    /// Hits that are in no slice, by number of the code.
    outside: HashMap<u32, u64>,
    left_out: LeftOut,
}

/// Hits that are in no slice, by cause.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LeftOut {
    /// There were too many hits, or too much code, to be kept.
    pub memory: u64,
    /// There was no room for the progress of their thread.
    pub no_place: u64,
    /// Their slice has a number that is too great.
    pub behind_last: u64,
}

/// A row in preparation: owner, slice, code, hits.
type Row = (u32, u32, u32, u64);

impl Slices {
    /// No counts yet.
    pub fn new(threads: ThreadCounts) -> Self {
        Self {
            threads,
            ..Self::default()
        }
    }

    /// Adds the counts of a drain. Branches in oldest slots and refused stacks are not executions, and are left out.
    pub fn add(&mut self, counts: &[(CountKey, Tally)]) {
        self.number_owners(counts);
        let executed = counts.iter().filter(|(key, _)| key.event.is_execution());
        let rows = executed.filter_map(|(key, tally)| self.row(key, tally.hits));
        let mut rows: Vec<Row> = rows.collect();
        rows.sort_unstable();
        for run in rows.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            self.append(run);
        }
    }

    /// Numbers the owners that are new, in the order of their first count. One without a slice needs no number.
    fn number_owners(&mut self, counts: &[(CountKey, Tally)]) {
        let mut first: HashMap<Owner, u64> = HashMap::new();
        let in_slice = |key: &CountKey| key.event.is_execution() && key.event.interval() < BEHIND_LAST_SLICE;
        for (key, tally) in counts.iter().filter(|(key, _)| in_slice(key)) {
            let owner = self.owner(key);
            if !self.owner_numbers.contains_key(&owner) {
                let time = first.entry(owner).or_insert(tally.first_time);
                *time = tally.first_time.min(*time);
            }
        }
        let mut first: Vec<(u64, Owner)> = first.into_iter().map(|(owner, time)| (time, owner)).collect();
        first.sort_unstable();
        for (_, owner) in first {
            // One too many has no number, and its hits are left out.
            let _ = numbered(&mut self.owner_numbers, &mut self.owners, owner);
        }
    }

    const fn owner(&self, key: &CountKey) -> Owner {
        match self.threads {
            ThreadCounts::Together => Owner { tgid: 0, tid: 0 },
            ThreadCounts::Apart => Owner {
                tgid: key.tgid,
                tid: key.tid,
            },
        }
    }

    fn row(&mut self, key: &CountKey, hits: u64) -> Option<Row> {
        let code = Code {
            address: key.address,
            length: key.length,
            event: key.event.event(),
            tgid: key.tgid,
            exec_id: key.exec_id,
            tid: key.tid,
        };
        let owner = self.owner(key);
        let known = self.numbers.get(&code).copied();
        let number = known.or_else(|| numbered(&mut self.numbers, &mut self.code, code));
        let owner = self.owner_numbers.get(&owner).copied();
        let slice = key.event.interval();
        let why = match (slice, number.zip(owner)) {
            (NO_PLACE, _) => &mut self.left_out.no_place,
            (BEHIND_LAST_SLICE, _) => &mut self.left_out.behind_last,
            (_, Some((number, owner))) => return Some((owner, slice, number, hits)),
            (_, None) => &mut self.left_out.memory,
        };
        *why = why.saturating_add(hits);
        self.put_outside(number, hits);
        None
    }

    fn put_outside(&mut self, number: Option<u32>, hits: u64) {
        if let Some(number) = number {
            let sum = self.outside.entry(number).or_default();
            *sum = sum.saturating_add(hits);
        }
    }

    /// Appends rows of one owner and slice, in the order of their code.
    fn append(&mut self, rows: &[Row]) {
        let hits = |rows: &[Row]| rows.iter().map(|row| row.3).sum::<u64>();
        let place = u32::try_from(self.bytes.len())
            .ok()
            .filter(|_| self.bytes.len() < MAX_BYTES);
        let (Some((owner, slice, ..)), Some(place)) = (rows.first(), place) else {
            self.left_out.memory = self.left_out.memory.saturating_add(hits(rows));
            for row in rows {
                self.put_outside(Some(row.2), row.3);
            }
            return;
        };
        self.runs.push((*owner, *slice, place));
        let of_code = || rows.chunk_by(|a, b| a.2 == b.2);
        leb128::write(&mut self.bytes, of_code().count() as u64);
        let mut before = 0;
        for same in of_code() {
            let code = same.first().map_or(before, |row| row.2);
            leb128::write(&mut self.bytes, u64::from(code.wrapping_sub(before)));
            leb128::write(&mut self.bytes, hits(same));
            before = code;
        }
    }

    /// All code that was counted, by its number.
    pub fn code(&self) -> &[Code] {
        &self.code
    }

    /// Whose slices there are, in the order of their first count.
    pub fn owners(&self) -> &[Owner] {
        &self.owners
    }

    /// Hits that are in no slice.
    pub const fn left_out(&self) -> LeftOut {
        self.left_out
    }

    /// The same by number of the code; what had no number is not among them.
    pub fn outside(&self) -> impl Iterator<Item = (u32, u64)> {
        self.outside.iter().map(|(code, hits)| (*code, *hits))
    }

    /// Shows the rows of each slice: number of the owner, the slice, and numbers of code with hits. Owners come one after
    /// the other, and their slices in the order of time. Code may come more than once, from several drains.
    pub fn each(&self, show: impl FnMut(u32, u32, &[(u32, u64)])) {
        self.show(self.runs.clone(), show);
    }

    /// The same of one owner.
    pub fn each_of(&self, owner: u32, show: impl FnMut(u32, u32, &[(u32, u64)])) {
        let runs = self.runs.iter().filter(|run| run.0 == owner);
        self.show(runs.copied().collect(), show);
    }

    fn show(&self, mut runs: Vec<(u32, u32, u32)>, mut show: impl FnMut(u32, u32, &[(u32, u64)])) {
        runs.sort_unstable();
        let mut rows = Vec::new();
        for slice in runs.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            rows.clear();
            for (_, _, place) in slice {
                self.read(*place, &mut rows);
            }
            if let Some((owner, number, _)) = slice.first() {
                show(*owner, *number, &rows);
            }
        }
    }

    fn read(&self, place: u32, rows: &mut Vec<(u32, u64)>) {
        let mut bytes = self.bytes.get(place as usize..).unwrap_or_default();
        // What is read was written here, so nothing is missing.
        let mut number = || leb128::read(&mut bytes).unwrap_or(0);
        let mut code = 0_u32;
        for _ in 0..number() {
            code = code.wrapping_add(number() as u32);
            rows.push((code, number()));
        }
    }

    /// Memory that the counts take, in bytes.
    #[cfg(test)]
    fn memory(&self) -> usize {
        self.bytes.capacity()
            + self.runs.capacity() * size_of::<(u32, u32, u32)>()
            + (self.code.capacity() + self.numbers.capacity()) * size_of::<Code>()
    }
}

/// The number of a new value; `None` if there are too many.
fn numbered<T: Copy + Eq + std::hash::Hash>(
    numbers: &mut HashMap<T, u32>,
    all: &mut Vec<T>,
    value: T,
) -> Option<u32> {
    let number = u32::try_from(all.len()).ok().filter(|_| all.len() < MAX_CODE)?;
    all.push(value);
    numbers.insert(value, number);
    Some(number)
}

#[cfg(test)]
mod tests;
