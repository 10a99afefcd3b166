//! From raw counts and records to a [`Snapshot`]: modules, processes, mappings, symbols and the text that ran.
//!
//! The kernel shows addresses; here they get their process image, their module and their bytes, while these can still
//! be read.
//! Functions that interpret bytes (`parse_..`) are pure; those that read the machine are thin and start with `read_`
//! or `open_`.
//!
//! ```text
//! kallsyms, modules, KSYMBOL -> kernel (map)   --+                    proc_scan, records -> process (index) --+
//! kcore | probe | vmlinux    -> kernel_text    --+-> kernel_space     mapped_file, elf, functions -> image  --+-> user_space
//!                                                +---------- text (stretches and their generations) ---------+
//! boot_image -> vmlinux -> text_sites -> text_difference           debug_file -> source_lines (of a snapshot)
//! ```
//!
//! Most counts of a drain run through few stretches: `kept` answers for those that were looked up already.

mod alternatives;
pub mod boot_image;
pub mod build_id;
mod debug_file;
pub mod doubt;
pub mod elf;
pub mod functions;
pub mod generations;
pub mod image;
pub mod image_set;
pub mod kallsyms;
pub mod kallsyms_line;
pub mod kcore;
pub mod kept;
pub mod kernel;
pub mod kernel_modules;
pub mod kernel_names;
pub mod kernel_space;
pub mod kernel_symbols;
pub mod kernel_text;
pub mod mapped_file;
pub mod name_blocks;
pub mod perf_map;
pub mod proc_scan;
pub mod process;
pub mod process_image;
pub mod process_memory;
pub mod raw;
pub mod reading;
pub mod recorded;
pub mod segments;
pub mod source;
pub mod source_lines;
pub mod stretches;
pub mod text;
pub mod text_difference;
pub mod text_sites;
pub mod user_space;
pub mod vmlinux;

use std::mem;
use std::ops::Range;

use crate::addr::{Ring, Va};
use crate::record::{Record, Timed};
use crate::snapshot::fold::{Boundaries, Intervals};
use crate::snapshot::{Interval, Loss, Losses, Process, ProcessIdx, Run, Snapshot};

use kept::{Answers, Holds, Kept};
use kernel_space::{KernelSpace, LiveText};
use proc_scan::Scanned;
use raw::{Raw, RawInterval, Sort, TaskKey};
use text::is_stream;
use user_space::{Hit, UserSpace};

/// Turns what one run counted into a snapshot, drain by drain.
///
/// Records are given as they come ([`Self::apply`]), counts after each drain ([`Self::interval`]), and
/// [`Self::finish`] puts all together.
/// Nothing of it fails: what cannot be read or found is counted as a loss.
#[derive(Debug)]
pub struct Resolver {
    kernel: KernelSpace,
    user: UserSpace,
    intervals: Intervals,
    losses: Losses,
    /// Text of the kernel that was hit.
    kernel_kept: Answers<Kept>,
    /// Text of processes that was hit.
    user_kept: Answers<Kept>,
    /// The text of the last stream that was looked up.
    last: Last,
    /// How often processes had changed, and how many regions of the kernel there were, when this was found.
    known_of: (u64, u64),
}

/// The text of a stream, which is that of the next as a rule.
#[derive(Debug, Default)]
struct Last {
    holds: Holds,
    kept: Kept,
}

impl Last {
    #[inline]
    fn get(&self, task: TaskKey, time: u64, at: Va) -> Option<Kept> {
        self.holds.of(task, time, at).then_some(self.kept)
    }
}

/// Places to look up stretches at once, and the bytes (as a power of two) that share one: functions are about as long,
/// and a drain runs through few thousand of them.
const KEPT: usize = 1 << 15;
const KEPT_NEAR: u32 = 8;

impl Resolver {
    /// Starts with ring 0 and with the processes that were there before the run.
    /// The recording of records must have begun before these were read, so that nothing falls between.
    pub fn new(kernel: KernelSpace, processes: &[Scanned]) -> Self {
        let mut user = UserSpace::default();
        user.scanned(processes);
        Self {
            kernel,
            user,
            intervals: Intervals::default(),
            losses: Losses::default(),
            kernel_kept: Answers::new(KEPT, KEPT_NEAR),
            user_kept: Answers::new(KEPT, KEPT_NEAR),
            last: Last::default(),
            known_of: (0, 0),
        }
    }

    /// Takes over records as they come, in any order; the files of new mappings are opened now.
    pub fn apply(&mut self, records: impl IntoIterator<Item = Timed>) {
        for timed in records {
            match &timed.record {
                Record::Lost(n) => self.losses.add(Loss::SidebandLost, *n),
                Record::LostText(n) => self.losses.add(Loss::TextLost, *n),
                Record::Ksymbol { .. } | Record::TextPoke { .. } | Record::Module(_) => {
                    self.kernel.apply(timed.time, &timed.record);
                }
                _ => self.user.take(timed),
            }
        }
    }

    /// Takes over the counts of one drain, part by part in the order of time. All records up to its end should have been
    /// applied.
    ///
    /// Where kernel text was switched within a part, it becomes several intervals, and each count belongs to the one of
    /// its first sample.
    pub fn drained<I: IntoIterator<Item = Raw>>(&mut self, parts: Vec<RawInterval<I>>) {
        let (Some(start), Some(end)) = (parts.first().map(|p| p.start), parts.last().map(|p| p.end)) else {
            return;
        };
        self.user.catch_up(end);
        self.user.reread(self.intervals.next(), &mut self.losses);
        for part in parts {
            self.interval(part);
        }
        // Counting goes on while a drain is under way, so what ends within it may still have samples in the next.
        self.user.forget_before(start);
        self.kernel.forget_before(start);
        self.fold_intervals();
    }

    /// Merges intervals where their counts take too much memory.
    fn fold_intervals(&mut self) {
        if self.intervals.is_full() {
            let boundaries = Boundaries {
                versions: self
                    .kernel
                    .version_starts()
                    .chain(self.user.version_starts())
                    .collect(),
                mappings: self.user.replaced_mappings().collect(),
            };
            self.intervals.fold(&boundaries, &mut self.losses);
        }
    }

    fn interval<I: IntoIterator<Item = Raw>>(&mut self, raw: RawInterval<I>) {
        let idx = self.intervals.next();
        let parts = self.kernel.begin(idx, raw.start..raw.end, &mut self.losses);
        let new = |time: Range<u64>| Interval {
            start: time.start,
            end: time.end,
            ..Interval::default()
        };
        let mut intervals: Vec<Interval> = parts.bounds().map(new).collect();
        intervals
            .iter_mut()
            .skip(1)
            .for_each(|interval| interval.continues = true);
        self.last = Last::default();
        self.forget_changed();
        let mut doubt = 0;
        let counts = raw.counts.into_iter();
        let (least, most) = counts.size_hint();
        let room = most.unwrap_or(least) / intervals.len().max(1);
        for count in counts {
            let (task, time) = (count.task, count.first_time);
            let Some(interval) = intervals.get_mut(parts.part(time)) else {
                continue;
            };
            match count.sort {
                Sort::Ip { exact } => {
                    let process = self.one(task, time, count.start);
                    doubt += self.kernel.doubt((count.start, count.start), time, count.hits);
                    push(&mut interval.ips, count.ip(process, exact), room);
                }
                Sort::Stream => {
                    let passed = (count.start, count.end);
                    let process = self.stream(task, time, passed);
                    if count.source != Va(0) {
                        self.led(task, time, count.source);
                    }
                    doubt += self.kernel.doubt(passed, time, count.hits);
                    push(&mut interval.streams, count.stream(process), room);
                }
                Sort::Oldest => {
                    let process = self.one(task, time, count.start);
                    push(&mut interval.branches, count.oldest(process), room);
                }
            }
        }
        for interval in &mut intervals {
            interval.ips.shrink_to_fit();
            interval.streams.shrink_to_fit();
            interval.branches.shrink_to_fit();
        }
        self.losses.add(Loss::TextSwitched, doubt);
        self.kernel.close();
        intervals
            .into_iter()
            .for_each(|interval| self.intervals.push(interval));
    }

    /// Reads the kernel text that was hit once more, to be compared when the records of the meantime have been applied.
    /// To be called after a drain, now and then: it is what finds patches that the kernel does not tell.
    pub fn read_text(&mut self) -> LiveText {
        self.kernel.read_live()
    }

    /// Compares a reading of kernel text with what the kernel told of its patches.
    pub fn compare_text(&mut self, live: LiveText) {
        self.kernel.compare(live, &mut self.losses);
    }

    /// Puts the snapshot together; `run` are the facts of the run, to which the source of kernel text is added.
    pub fn finish(mut self, mut run: Run) -> Snapshot {
        self.kernel.settle(&mut self.losses);
        run.kernel_text = self.kernel.source();
        run.notes.extend(self.kernel.note().map(str::to_owned));
        let (mut modules, mut text) = (Vec::new(), Vec::new());
        let mappings = self.kernel.emit(&mut modules, &mut text);
        let mut processes = vec![Process {
            comm: kernel::KERNEL.to_owned(),
            mappings,
            ..Process::default()
        }];
        processes.extend(self.user.emit(&mut modules, &mut text));
        let intervals = self.intervals.finish(&mut text);
        Snapshot {
            run,
            modules,
            processes,
            text,
            intervals,
            losses: self.losses,
        }
    }

    /// Resolves one address: the process image that ran.
    fn one(&mut self, task: TaskKey, time: u64, at: Va) -> ProcessIdx {
        match self.last.get(task, time, at) {
            Some(kept) => kept.process,
            None => self.hit(task, time, at).0,
        }
    }

    /// Resolves one address: the process image that ran, and the first address behind the text that is kept there.
    fn hit(&mut self, task: TaskKey, time: u64, at: Va) -> (ProcessIdx, Option<Va>) {
        match at.ring() {
            Ring::Kernel => {
                let behind = self.kernel_hit(time, at);
                let process = if task.tgid == 0 {
                    ProcessIdx::KERNEL
                } else {
                    self.user.process_at(task, time)
                };
                (process, behind)
            }
            Ring::User => {
                if let Some((_, kept)) = self.user_kept.get(task, time, at) {
                    return (kept.process, Some(kept.behind));
                }
                let Hit { process, kept } = self.user.hit(task, time, at, &mut self.losses);
                self.forget_changed();
                let behind = kept.map(|(behind, holds)| {
                    self.user_kept.add(at, &holds, Kept { process, behind });
                    behind
                });
                (process, behind)
            }
        }
    }

    /// Resolves an address of the kernel, whoever ran it: the first address behind the text that is kept there.
    fn kernel_hit(&mut self, time: u64, at: Va) -> Option<Va> {
        if let Some((_, kept)) = self.kernel_kept.get(TaskKey::KERNEL, time, at) {
            return Some(kept.behind);
        }
        let hit = self.kernel.hit(at, time, &mut self.losses);
        self.forget_changed();
        let (behind, holds) = hit?;
        let process = ProcessIdx::KERNEL;
        self.kernel_kept.add(at, &holds, Kept { process, behind });
        Some(behind)
    }

    /// Forgets the answers that may not hold any more.
    fn forget_changed(&mut self) {
        let now = (self.user.n_changes(), self.kernel.n_regions());
        let (n_changes, n_regions) = mem::replace(&mut self.known_of, now);
        if n_changes != now.0 {
            self.user_kept.clear();
            self.last = Last::default();
        }
        if n_regions != now.1 {
            self.kernel_kept.clear();
            self.last = Last::default();
        }
    }

    /// Sees to it that the text is kept of a branch that led to a stream.
    fn led(&mut self, task: TaskKey, time: u64, source: Va) {
        if self.last.get(task, time, source).is_some() {
            return;
        }
        match source.ring() {
            Ring::Kernel => _ = self.kernel_hit(time, source),
            Ring::User => _ = self.hit(task, time, source),
        }
    }

    /// Resolves a stream: all text from its start to the instruction at its end.
    fn stream(&mut self, task: TaskKey, time: u64, (start, end): (Va, Va)) -> ProcessIdx {
        let inside = |kept: &Kept| start <= end && end < kept.behind;
        if let Some(kept) = self.last.get(task, time, start).filter(inside) {
            return kept.process;
        }
        let known = match start.ring() {
            Ring::Kernel if task != TaskKey::KERNEL => None,
            Ring::Kernel => self.kernel_kept.get(task, time, start),
            Ring::User => self.user_kept.get(task, time, start),
        };
        if let Some((holds, kept)) = known {
            self.last = Last {
                holds: holds.clone(),
                kept: *kept,
            };
            if inside(kept) {
                return kept.process;
            }
        }
        self.new_stream(task, time, start, end)
    }

    fn new_stream(&mut self, task: TaskKey, time: u64, start: Va, end: Va) -> ProcessIdx {
        let (process, mut behind) = self.hit(task, time, start);
        if is_stream(start.0, end.0) {
            let mut at = start;
            while let Some(next) = behind.filter(|next| at < *next && *next <= end) {
                at = next;
                behind = self.hit(task, time, at).1;
                if at.ring() == Ring::Kernel {
                    self.kernel.entered(at, time);
                }
            }
            if behind.is_some_and(|behind| end < behind) {
                return process;
            }
        }
        self.hit(task, time, end);
        process
    }
}

/// Adds a row; the first one makes room for so many.
fn push<T>(rows: &mut Vec<T>, row: T, room: usize) {
    if rows.is_empty() {
        rows.reserve(room);
    }
    rows.push(row);
}
