//! Programs on an event with a branch stack: from the stack to what is counted of it.
//!
//! Entries that never ran are removed, and what all streams of the stack are counted under is found out. Then the stack is
//! counted whole, if it is one that comes again and again ([`crate::repeated`]), or stream by stream ([`crate::walk`]).

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::bpf_get_smp_processor_id;
use aya_ebpf::helpers::generated::bpf_read_branch_records;
use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;
use hbbp_ebpf::MAX_DEPTH;
use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::context::Context;
use hbbp_ebpf::key::WEIGHT_ONE;
use hbbp_ebpf::stat::{Outcome, StackStats};

use crate::count::{self, Image};
use crate::maps::{COMBINE, EVENT_STATS, NEAR_ONLY, STACK_STATS, WORK, WRONG_PATHS};
use crate::repeated::{self, Seen};
use crate::walk::Walk;
use crate::work::{ROOM, Work};

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
    let bytes =
        unsafe { bpf_read_branch_records(ctx.as_ptr().cast(), buffer.cast(), ENTRY * MAX_DEPTH as u32, 0) };
    if bytes < ENTRY as i64 {
        return Outcome::NoStack;
    }
    let depth = u64::from(bytes as u32 / ENTRY);
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
    stats.entries += n;
    let stands_for = if NEAR_ONLY.load() >> EVENT & 1 == 0 {
        1
    } else {
        stands_for(work, n)
    };
    // The mask says to the verifier what `n` says to the reader.
    work.stack[n as usize & (ROOM - 1)] = BranchEntry::END;
    let image = Image::of_current();
    work.context = Context {
        user: image.user,
        kernel: image.kernel,
        event: EVENT,
        interval: count::interval(),
        unit: stands_for * weight(period, n),
    };
    let ids = work.context.ids();
    work.user_id = ids.user;
    work.begin();
    if repeated::look_up(table, work, n, ids.user) == Seen::Counted {
        stats.streams += n - 1;
        return Outcome::Counted;
    }
    let n_all = stats.streams + n - 1;
    Walk::new(table, work, stats, ids.kernel).count(n);
    if stats.streams == n_all {
        repeated::keep(table, work, n, ids.user);
    }
    Outcome::Counted
}

/// Bytes of an entry.
const ENTRY: u32 = size_of::<BranchEntry>() as u32;

/// What one stream of a stack of `n` entries weighs: period / (n-1).
#[inline(always)]
fn weight(period: u64, n: u64) -> u64 {
    if n < 2 { 0 } else { period * WEIGHT_ONE / (n - 1) }
}

/// How many stacks this one stands for. Where an event counts near branches alone, no stack is taken at a far one; the
/// next near branch, whose stack begins right behind it, has the chance of both. Without this, whatever runs shortly before
/// a system call or a return from one is missed: with two in a hundred branches, one stream in fifty.
#[inline(always)]
fn stands_for(work: &Work, n: u64) -> u64 {
    let far = |i: usize| (i as u64) < n && work.stack[i].changes_ring();
    match (far(1), far(2)) {
        (false, _) => 1,
        (true, false) => 2,
        // As where an interrupt comes upon the return to user code.
        (true, true) => 3,
    }
}

/// Closes the gaps of entries that were never executed; their neighbours are neighbours of each other.
#[inline(always)]
fn without_wrong_paths(work: &mut Work, stats: &mut StackStats, depth: u64) -> u64 {
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
    work.kept.get()
}

/// The number of entries before the first zero entry: a stack that is not full yet ends in such.
#[inline(always)]
fn not_empty(work: &mut Work, depth: u64) -> u64 {
    work.kept.set(depth);
    let oldest = &work.stack[(depth as usize).wrapping_sub(1) & (MAX_DEPTH - 1)];
    if oldest.is_empty() {
        let mut n = 0;
        for entry in &work.stack {
            if depth <= n || entry.is_empty() {
                break;
            }
            n += 1;
        }
        work.kept.set(n);
    }
    // Any number from here on: see the module `work`.
    work.kept.get()
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
