//! Programs on an event of time whose callers are asked for: count the eventing IP as the others do ([`crate::on_ip`]),
//! and its call chain.
//!
//! The kernel unwinds both parts of the chain before the program runs, as the event asks for `PERF_SAMPLE_CALLCHAIN`; the
//! helper hands them out (kernel/bpf/stackmap.c, `bpf_get_stack_pe`).

use core::intrinsics::{AtomicOrdering, atomic_xadd};
use core::mem::offset_of;

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::{BPF_F_USER_STACK, pt_regs};
use aya_ebpf::helpers::generated::{
    bpf_get_stack, bpf_probe_read_kernel, bpf_probe_read_user, bpf_task_pt_regs,
};
use aya_ebpf::helpers::{bpf_get_current_task_btf, bpf_ktime_get_ns};
use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;
use hbbp_ebpf::chain::{Chain, PART, TRIED, WORDS, mixed};
use hbbp_ebpf::count_map::{CLAIMED, bucket_behind, bucket_of, state_of};
use hbbp_ebpf::is_kernel;
use hbbp_ebpf::stack::Context;
use hbbp_ebpf::stat::Outcome;

use crate::count;
use crate::event_count::read;
use crate::maps::{CHAIN_SLOTS, CHAIN_STATS, CHAIN_WORK, CHAINS, CPUS, SEED};
use crate::on_ip::{Sample, on_ip};
use crate::work::ChainWork;

#[inline(always)]
fn on_chain<const EVENT: u32>(ctx: &PerfEventContext) -> u32 {
    let sample = on_ip::<EVENT>(ctx);
    if let (Some(cpu), Some(work), Some(stats)) = (
        CPUS.get(count::cpu()),
        CHAIN_WORK.get_ptr_mut(0),
        CHAIN_STATS.get_ptr_mut(0),
    ) {
        // SAFETY: both belong to this CPU, and the kernel does not nest programs on perf events.
        let (work, stats) = unsafe { (&mut *work, &mut *stats) };
        stats.runs += 1;
        unwind(ctx, work);
        work.top.set(top(ctx, sample.ip));
        if work.n.get() == 0 {
            stats.none += 1;
            return 0;
        }
        let context = Context::new(count::task(cpu), EVENT, 0, 0);
        match add(work, &sample, &context) {
            Outcome::Counted => stats.counted += 1,
            Outcome::Raced => stats.raced += 1,
            _ => stats.full += 1,
        }
    }
    0
}

/// Takes both parts of the chain.
#[inline(always)]
fn unwind(ctx: &PerfEventContext, work: &mut ChainWork) {
    let n = part(ctx, work, 0, 0);
    work.n.set(n);
    // At most PART, which the verifier has to see.
    let behind = work.n.get().min(PART as u64);
    let n = part(ctx, work, behind as usize, u64::from(BPF_F_USER_STACK));
    work.n.set((behind + n).min(WORDS as u64));
}

/// What is on top of the stack of user code, 0 where that cannot be read.
#[inline(always)]
fn top(ctx: &PerfEventContext, ip: u64) -> u64 {
    let mut word = 0_u64;
    // SAFETY: the kernel hands a valid context to the program, and the registers of the current task are where it says. The
    // helper writes as many bytes as stated, and refuses addresses that are none.
    unsafe {
        let sp = if is_kernel(ip) {
            // By a helper: one load for both would be one of two types to the verifier.
            read(bpf_task_pt_regs(bpf_get_current_task_btf()) as u64 + offset_of!(pt_regs, rsp) as u64)
        } else {
            (&raw const (*ctx.ctx).regs.rsp).read_volatile()
        };
        bpf_probe_read_user((&raw mut word).cast(), size_of::<u64>() as u32, sp as *const _);
    }
    word
}

/// Copies one part to this address. Returns its number of words.
#[inline(always)]
fn part(ctx: &PerfEventContext, work: &mut ChainWork, at: usize, flags: u64) -> u64 {
    // SAFETY: `at` is at most PART, and after that there is room for as many words.
    let bytes = unsafe {
        let to = (&raw mut work.words).cast::<u64>().add(at);
        bpf_get_stack(
            ctx.as_ptr().cast(),
            to.cast(),
            size_of::<[u64; PART]>() as u32,
            flags,
        )
    };
    if bytes < 0 { 0 } else { bytes as u64 / 8 }
}

/// Counts the chain in the table.
#[inline(always)]
fn add(work: &mut ChainWork, sample: &Sample, context: &Context) -> Outcome {
    let n = work.n.get();
    let mut hash = mixed(mixed(mixed(SEED.load(), sample.ip), context.image), context.kind);
    hash = mixed(hash, work.top.get());
    for i in 0..WORDS {
        if n <= i as u64 {
            break;
        }
        hash = mixed(hash, work.words[i]);
    }
    work.hash.set(hash);
    let hash = work.hash.get();
    let state = state_of(hash);
    let n_slots = CHAIN_SLOTS.load();
    let mut refused = Outcome::Full;
    work.number.set(bucket_of(hash, n_slots).into());
    for _ in 0..TRIED {
        let number = work.number.get() as u32;
        let Some(slot) = CHAINS.get_value_ptr_mut(0, &number) else {
            return Outcome::NoMap;
        };
        // SAFETY: the slot is valid, and all that touch its state do so atomically or volatile, here and below.
        let place = unsafe { &raw mut (*slot).state };
        if count::claim(place) {
            fill(slot, work, sample, context, state);
            return Outcome::Counted;
        }
        // SAFETY: as above.
        let held = unsafe { place.read_volatile() };
        if held == state {
            add_to(slot, sample.period);
            return Outcome::Counted;
        }
        if held == CLAIMED {
            refused = Outcome::Raced;
        }
        work.number.set(bucket_behind(number, n_slots).into());
    }
    refused
}

/// Fills a slot that was claimed; its state comes last, as in the count map.
#[inline(always)]
fn fill(slot: *mut Chain, work: &mut ChainWork, sample: &Sample, context: &Context, state: u64) {
    // SAFETY: the slot is valid, and only the CPU that claimed it writes to it. The helpers take no pointers, or write
    // the stated number of bytes.
    unsafe {
        (&raw mut (*slot).ip).write_volatile(sample.ip);
        (&raw mut (*slot).image).write_volatile(context.image);
        (&raw mut (*slot).kind).write_volatile(context.kind);
        (&raw mut (*slot).top).write_volatile(work.top.get());
        (&raw mut (*slot).n).write_volatile(work.n.get());
        (&raw mut (*slot).tally.hits).write_volatile(1);
        (&raw mut (*slot).tally.weight).write_volatile(sample.period);
        (&raw mut (*slot).tally.first_time).write_volatile(bpf_ktime_get_ns());
        bpf_probe_read_kernel(
            (&raw mut (*slot).words).cast(),
            size_of::<[u64; WORDS]>() as u32,
            (&raw const work.words).cast(),
        );
        (&raw mut (*slot).state).write_volatile(state);
    }
}

#[inline(always)]
fn add_to(slot: *mut Chain, period: u64) {
    // SAFETY: the slot is valid, and all writers of a filled one add atomically. The results stay unused.
    unsafe {
        atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(&raw mut (*slot).tally.hits, 1);
        atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(&raw mut (*slot).tally.weight, period);
    }
}

macro_rules! programs {
    ($($name:ident = $event:literal),*) => {
        $(
            #[perf_event]
            fn $name(ctx: PerfEventContext) -> u32 {
                on_chain::<$event>(&ctx)
            }
        )*
    };
}

programs!(
    on_chain_0 = 0,
    on_chain_1 = 1,
    on_chain_2 = 2,
    on_chain_3 = 3,
    on_chain_4 = 4,
    on_chain_5 = 5
);
