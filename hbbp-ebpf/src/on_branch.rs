//! Programs on an event with a branch stack: count the streams of each stack, and the branch in its oldest slot.
//!
//! Equal streams that follow each other in one stack are added once with their number, and go through the combining
//! table of the CPU ([`hbbp_ebpf::combine`]) before they reach the bank.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::generated::bpf_read_branch_records;
use aya_ebpf::helpers::{bpf_get_smp_processor_id, bpf_ktime_get_ns};
use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;
use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::combine::{CombineTable, slot_of};
use hbbp_ebpf::key::{WEIGHT_ONE, source_of};
use hbbp_ebpf::refusal::refusal;
use hbbp_ebpf::stat::{Outcome, StackStats};
use hbbp_ebpf::{CountKey, EventTag, MAX_DEPTH, Tally};

use crate::count::{self, Image};
use crate::maps::{
    COMBINE, DUPLICATED_HEADS, EVENT_STATS, STACK_STATS, SWITCH_LEN, SWITCH_START, WORK, WRONG_PATHS,
};
use crate::work::Work;

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
    let mut sink = Sink {
        table,
        work,
        stats,
        image: Image::of_current(),
        event: EVENT,
        weight: weight(period, n),
    };
    sink.streams(n);
    sink.oldest(n);
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
    let mut n = 0;
    for entry in &work.stack {
        if depth <= n || entry.is_empty() {
            break;
        }
        n += 1;
    }
    // Any number from here on: see the module `work`.
    work.kept.set(n.into());
    work.kept.get() as u32
}

/// Equal streams that follow each other.
#[derive(Clone, Copy, Default)]
struct Run {
    source: u64,
    start: u64,
    end: u64,
}

/// Where the streams of one stack go.
struct Sink<'a> {
    table: &'a mut CombineTable,
    work: &'a mut Work,
    stats: &'a mut StackStats,
    image: Image,
    event: u32,
    weight: u64,
}

impl Sink<'_> {
    #[inline(always)]
    fn streams(&mut self, n: u32) {
        self.work.run_length.set(0);
        self.work.switched.set(0);
        self.work.time.set(0);
        let mut run = Run::default();
        for i in 1..MAX_DEPTH {
            if n as usize <= i {
                break;
            }
            let (younger, older) = (self.work.stack[i - 1], self.work.stack[i]);
            if younger.from.wrapping_sub(SWITCH_START.load()) < SWITCH_LEN.load() {
                self.work.switched.set(1);
            }
            let (start, end) = (older.to, younger.from);
            let source = source_of(start, older.from);
            if i == 1 && DUPLICATED_HEADS.load() != 0 && younger.is_same(&older) {
                self.stats.duplicated += 1;
                continue;
            }
            if start == run.start && end == run.end && source == run.source {
                self.work.run_length.set(self.work.run_length.get() + 1);
                continue;
            }
            if let Some(refusal) = refusal(start, end, self.work.switched.get() != 0) {
                self.stats.refuse(refusal);
                continue;
            }
            self.add(&run);
            run = Run { source, start, end };
            self.work.run_length.set(1);
        }
        self.add(&run);
    }

    /// Adds the run of equal streams that has ended.
    #[inline(always)]
    fn add(&mut self, run: &Run) {
        let n = self.work.run_length.get();
        if n == 0 {
            return;
        }
        self.stats.streams += n;
        let (tgid, exec_id) = self.image.at(run.start);
        let event = EventTag::stream(self.event);
        let key = CountKey {
            address: run.start,
            source: run.source,
            tgid,
            exec_id,
            event,
            length: (run.end - run.start) as u32,
        };
        self.put(&key, n, n * self.weight);
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
            event: EventTag::oldest(self.event),
            length: 0,
        };
        self.put(&key, 1, 0);
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
        if self.work.time.get() == 0 {
            // SAFETY: the helper takes no arguments and is safe in NMI context.
            self.work.time.set(unsafe { bpf_ktime_get_ns() });
        }
        let evicted = slot.replace(
            key,
            Tally {
                hits,
                weight,
                first_time: self.work.time.get(),
            },
        );
        if evicted.tally.hits == 0 || count::add_tally(&evicted.key, evicted.tally) == Outcome::Counted {
            return;
        }
        if evicted.key.event.is_oldest() {
            self.stats.refused_oldest += evicted.tally.hits;
        } else {
            self.stats.refused += evicted.tally.hits;
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
