//! Programs on an event with a branch stack: count the streams of each stack, and the branch in its oldest slot.
//!
//! Equal streams that follow each other in one stack are added once with their number, and go through the combining
//! table of the CPU ([`hbbp_ebpf::combine`]) before they reach the bank ([`hbbp_ebpf::bank`]).

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::bpf_get_smp_processor_id;
use aya_ebpf::helpers::generated::bpf_read_branch_records;
use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;
use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::combine::{CombineTable, Slot, slot_of};
use hbbp_ebpf::key::{WEIGHT_ONE, kernel_mask, source_of};
use hbbp_ebpf::refusal::refusal;
use hbbp_ebpf::stat::{Outcome, StackStats};
use hbbp_ebpf::{CountKey, EventTag, MAX_DEPTH, Tally};

use crate::count::{self, Image};
use crate::maps::{
    COMBINE, DUPLICATED_HEADS, EVENT_STATS, NEAR_ONLY, STACK_STATS, SWITCH, WORK, WRONG_PATHS,
};
use crate::work::{Run, Work};

/// Counts one sample.
#[inline(always)]
fn on_branch<const EVENT: u32>(ctx: &PerfEventContext) -> u32 {
    let outcome = count_stack::<EVENT>(ctx);
    if let Some(stats) = EVENT_STATS.get_ptr_mut(EVENT) {
        // SAFETY: the slot belongs to this CPU, and the kernel does not nest programs on perf events.
        unsafe { (*stats).count(outcome) };
    }
    0
}

#[inline(always)]
fn count_stack<const EVENT: u32>(ctx: &PerfEventContext) -> Outcome {
    let (Some(work), Some(stats)) = (WORK.get_ptr_mut(0), STACK_STATS.get_ptr_mut(EVENT)) else {
        return Outcome::NoBank;
    };
    // SAFETY: both belong to this CPU, and the kernel does not nest programs on perf events.
    let (work, stats) = unsafe { (&mut *work, &mut *stats) };
    let buffer = work.stack.as_mut_ptr();
    // SAFETY: the buffer is as large as stated.
    let bytes = unsafe {
        bpf_read_branch_records(
            ctx.as_ptr().cast(),
            buffer.cast(),
            size_of_val(&work.stack) as u32,
            0,
        )
    };
    if bytes < ENTRY as i64 {
        return Outcome::NoStack;
    }
    let depth = bytes as u32 / ENTRY;
    let depth = if WRONG_PATHS.load() == 0 {
        depth
    } else {
        without_wrong_paths(work, stats, depth)
    };
    let n = not_empty(work, depth);
    if n == 0 {
        return Outcome::NoStack;
    }
    let Some(table) = COMBINE.get_value_ptr_mut(0, &cpu()) else {
        return Outcome::NoBank;
    };
    // SAFETY: the kernel hands a valid context to the program; the verifier checks the access.
    let period = unsafe { (&raw const (*ctx.ctx).sample_period).read_volatile() };
    // SAFETY: the table belongs to this CPU, as above.
    let table = unsafe { &mut *table };
    stats.stacks += 1;
    stats.entries += u64::from(n);
    let stands_for = if NEAR_ONLY.load() >> EVENT & 1 == 0 {
        1
    } else {
        stands_for(work, n)
    };
    let mut sink = Sink {
        table,
        work,
        stats,
        image: Image::of_current(),
        event: EVENT,
        interval: count::interval(),
        switch: SWITCH.get(0).copied().unwrap_or_default(),
        weight: stands_for * weight(period, n),
    };
    sink.walk(n);
    sink.combine();
    sink.oldest(n);
    sink.flush();
    Outcome::Counted
}

/// Bytes of an entry.
const ENTRY: u32 = size_of::<BranchEntry>() as u32;

/// What one stream of a stack of `n` entries weighs: period / (n-1).
#[inline(always)]
fn weight(period: u64, n: u32) -> u64 {
    if n < 2 {
        0
    } else {
        period * WEIGHT_ONE / u64::from(n - 1)
    }
}

/// How many stacks this one stands for. Where an event counts near branches alone, no stack is taken at a far one; the
/// next near branch, whose stack begins right behind it, has the chance of both. Without this, whatever runs shortly before
/// a system call or a return from one is missed: with two in a hundred branches, one stream in fifty.
#[inline(always)]
fn stands_for(work: &Work, n: u32) -> u64 {
    let far = |i: usize| (i as u32) < n && work.stack[i].changes_ring();
    match (far(1), far(2)) {
        (false, _) => 1,
        (true, false) => 2,
        // As where an interrupt comes upon the return to user code.
        (true, true) => 3,
    }
}

/// Closes the gaps of entries that were never executed; their neighbours are neighbours of each other.
#[inline(always)]
fn without_wrong_paths(work: &mut Work, stats: &mut StackStats, depth: u32) -> u32 {
    work.kept.set(0);
    for i in 0..MAX_DEPTH {
        let kept = work.kept.get() as usize;
        if depth as usize <= i || MAX_DEPTH <= kept {
            break;
        }
        let entry = work.stack[i];
        if entry.is_wrong_path() {
            stats.wrong_path += 1;
            stats.entries += 1;
        } else {
            work.stack[kept] = entry;
            work.kept.set(kept as u64 + 1);
        }
    }
    work.kept.get() as u32
}

/// The number of entries before the first zero entry: a stack that is not full yet ends in such.
#[inline(always)]
fn not_empty(work: &mut Work, depth: u32) -> u32 {
    work.kept.set(depth.into());
    let oldest = &work.stack[(depth as usize).wrapping_sub(1) & (MAX_DEPTH - 1)];
    if oldest.is_empty() {
        let mut n = 0;
        for entry in &work.stack {
            if depth <= n || entry.is_empty() {
                break;
            }
            n += 1;
        }
        work.kept.set(n.into());
    }
    // Any number from here on: see the module `work`.
    work.kept.get() as u32
}

/// Where the streams of one stack go: equal ones that follow each other become a run, the runs go to the combining table,
/// and what leaves that goes to the bank. These are three loops, one after the other with their results in the work space,
/// because the verifier walks the ways through a loop for each way through the loop around it.
struct Sink<'a> {
    table: &'a mut CombineTable,
    work: &'a mut Work,
    stats: &'a mut StackStats,
    image: Image,
    event: u32,
    interval: u32,
    /// Start and length of the function that changes tasks.
    switch: [u64; 2],
    weight: u64,
}

impl Sink<'_> {
    /// Walks from the newest entry to the oldest. A stream that repeats the one before it, as nearly all of a loop do,
    /// costs three comparisons and an addition.
    #[inline(always)]
    fn walk(&mut self, n: u32) {
        self.work.begin();
        // All, until one is refused.
        self.stats.streams += u64::from(n - 1);
        let [newest, next] = [self.work.stack[0], self.work.stack[1]];
        let mut i = 1;
        if DUPLICATED_HEADS.load() != 0 && 1 < n && newest.is_same(&next) {
            self.stats.streams -= 1;
            self.stats.duplicated += 1;
            i = 2;
        }
        let mut end = newest.from;
        while i < MAX_DEPTH && i < n as usize {
            let BranchEntry { from, to: start, .. } = self.work.stack[i];
            let run = self.work.last_run();
            if start == run.start && end == run.end && from == run.from {
                run.n += 1;
            } else {
                self.begin(from, start, end);
            }
            end = from;
            i += 1;
        }
    }

    /// Judges a stream that differs from those before it; if it is sound, its run begins.
    /// A run that goes on behind refused streams is not judged again: a switch is between them only if all streams of the
    /// kernel on the way there and back were refused.
    #[inline(always)]
    fn begin(&mut self, from: u64, start: u64, end: u64) {
        let [switch, len] = self.switch;
        if end.wrapping_sub(switch) < len {
            self.work.switched.set(1);
        }
        if let Some(refusal) = refusal(start, end, self.work.switched.get() != 0) {
            self.stats.streams -= 1;
            self.stats.refuse(refusal);
            return;
        }
        self.work.push_run(Run {
            from,
            start,
            end,
            n: 1,
        });
    }

    /// Combines the runs.
    #[inline(always)]
    fn combine(&mut self) {
        let n = self.work.n_runs.get();
        for i in 0..MAX_DEPTH {
            if n <= i as u64 {
                break;
            }
            let Run { from, start, end, n } = self.work.runs[i];
            let (tgid, exec_id) = self.image.at(start);
            let key = CountKey {
                address: start,
                source: source_of(start, from),
                tgid,
                exec_id,
                event: self.tag(EventTag::stream(self.event), start, from),
                length: (end - start) as u32,
            };
            self.put(&key, n, n * self.weight);
        }
    }

    /// Adds the branch in the oldest slot.
    #[inline(always)]
    fn oldest(&mut self, n: u32) {
        // The mask says to the verifier what `n` says to the reader.
        let address = self.work.stack[(n as usize - 1) & (MAX_DEPTH - 1)].from;
        let (tgid, exec_id) = self.image.at(address);
        let key = CountKey {
            address,
            source: 0,
            tgid,
            exec_id,
            event: self.tag(EventTag::oldest(self.event), address, 0),
            length: 0,
        };
        self.put(&key, 1, 0);
    }

    /// The tag of a count that begins at `start`, where a branch at `from` led: of the interval if one of them is kernel
    /// code, so that the two sides of a branch in the kernel are counted in one interval.
    #[inline(always)]
    const fn tag(&self, tag: EventTag, start: u64, from: u64) -> EventTag {
        tag.in_interval(self.interval & kernel_mask(start | from) as u32)
    }

    #[inline(always)]
    fn put(&mut self, key: &CountKey, hits: u64, weight: u64) {
        let Some(slot) = self.table.slots.get_mut(slot_of(key)) else {
            return;
        };
        if slot.holds(key) {
            slot.tally.hits += hits;
            slot.tally.weight += weight;
            return;
        }
        let evicted = slot.replace(
            key,
            Tally {
                hits,
                weight,
                first_time: self.work.time.get(),
            },
        );
        if evicted.tally.hits != 0 {
            self.work.push_evicted(evicted);
        }
    }

    /// Counts in the bank what left the combining table.
    #[inline(always)]
    fn flush(&mut self) {
        let n = self.work.n_evicted.get();
        for i in 0..MAX_DEPTH {
            if n <= i as u64 {
                break;
            }
            if count::add_evicted(self.work, i) == Outcome::Counted {
                continue;
            }
            let Slot { key, tally } = &self.work.evicted[i];
            if key.event.is_oldest() {
                self.stats.refused_oldest += tally.hits;
            } else {
                self.stats.refused += tally.hits;
            }
        }
    }
}

#[inline(always)]
fn cpu() -> u32 {
    // SAFETY: the helper takes no arguments.
    unsafe { bpf_get_smp_processor_id() as u32 }
}

macro_rules! programs {
    ($($name:ident = $event:literal),*) => {
        $(
            #[perf_event]
            fn $name(ctx: PerfEventContext) -> u32 {
                on_branch::<$event>(&ctx)
            }
        )*
    };
}

programs!(
    on_branch_0 = 0,
    on_branch_1 = 1,
    on_branch_2 = 2,
    on_branch_3 = 3,
    on_branch_4 = 4,
    on_branch_5 = 5
);
