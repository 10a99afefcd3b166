//! Programs on an event with a branch stack: cached stacks are counted whole, all others go to user space.
//!
//! The kernel copies the stack right to where user space will read it, in the ring of the CPU. If it is a stack that is
//! cached ([`crate::repeated`]), it is counted there and its entry of the ring is used again. Where the ring is full, the stack is lost,
//! and counted in the count map at its newest branch, so that the reader sees where.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::helpers::generated::bpf_read_branch_records;
use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;
use hbbp_ebpf::branch::BranchEntry;
use hbbp_ebpf::cpu::{Cpu, WAKE_AGAIN};
use hbbp_ebpf::stack::{Context, Stack};
use hbbp_ebpf::stat::Outcome;
use hbbp_ebpf::{EventTag, MAX_DEPTH};

use crate::count::{self, cpu};
#[cfg(feature = "log")]
use crate::log;
use crate::maps::{CACHED, CPUS, RING, STACKS, WAKE, WRONG_PATHS};
use crate::repeated::{self, Seen};

/// Counts one sample.
#[inline(always)]
fn on_branch<const EVENT: u32>(ctx: &PerfEventContext) -> u32 {
    if let Some(cpu) = CPUS.get_ptr_mut(cpu()) {
        // SAFETY: what the programs write there belongs to this CPU, and the kernel does not nest programs on perf events.
        let cpu = unsafe { &mut *cpu };
        let outcome = take_stack::<EVENT>(ctx, cpu);
        cpu.events[EVENT as usize].count(outcome);
        #[cfg(feature = "log")]
        log::sample(outcome, EVENT, address(ctx));
    }
    0
}

/// Where the sample was taken.
#[cfg(feature = "log")]
#[inline(always)]
fn address(ctx: &PerfEventContext) -> u64 {
    // SAFETY: the kernel hands a valid context to the program; the verifier checks the access.
    unsafe { (&raw const (*ctx.ctx).regs.rip).read_volatile() }
}

#[inline(always)]
fn take_stack<const EVENT: u32>(ctx: &PerfEventContext, cpu: &mut Cpu) -> Outcome {
    let ring = RING.load();
    // A CPU without a slot gets a number outside of all maps, so that both lookups fail.
    let own = (cpu.place as u32).wrapping_sub(1);
    let at = own.wrapping_mul(ring).wrapping_add(cpu.head as u32 & (ring - 1));
    let (Some(stack), Some(cache)) = (STACKS.get_ptr_mut(at), CACHED.get_value_ptr_mut(0, &own)) else {
        return Outcome::NoMap;
    };
    // SAFETY: the entry at the head of the ring belongs to the programs of this CPU.
    let stack = unsafe { &mut *stack };
    let entries = stack.entries.as_mut_ptr();
    // SAFETY: there is room for as many bytes.
    let bytes =
        unsafe { bpf_read_branch_records(ctx.as_ptr().cast(), entries.cast(), ENTRY * MAX_DEPTH as u32, 0) };
    if bytes < ENTRY as i64 {
        return Outcome::NoStack;
    }
    let mut depth = u64::from(bytes as u32 / ENTRY);
    if WRONG_PATHS.load() != 0 {
        depth = without_wrong_paths(stack, &mut cpu.events[EVENT as usize].wrong_path, depth);
    }
    if depth == 0 || stack.entries[0].is_empty() {
        return Outcome::NoStack;
    }
    // SAFETY: the kernel hands a valid context to the program; the verifier checks the access.
    let period = unsafe { (&raw const (*ctx.ctx).sample_period).read_volatile() };
    let context = Context::new(count::task(cpu), EVENT, count::interval(cpu), period);
    // SAFETY: the table belongs to this CPU, as above.
    let cache = unsafe { &mut *cache };
    let seen = repeated::look_up(cache, stack, &context, depth);
    if seen == Seen::Counted {
        return Outcome::Counted;
    }
    // SAFETY: the helper takes no arguments and is safe in NMI context.
    let time = unsafe { bpf_ktime_get_ns() };
    if let Seen::Twice(place) = seen {
        repeated::store(cache, place, stack, (&context, depth, time));
    }
    let outcome = append(stack, (&context, depth, time), cpu, ring);
    if outcome == Outcome::Full {
        let key = count::key(cpu, stack.entries[0].from, EventTag::refused(EVENT));
        // If this fails too, the count by function is one short; the total stays exact.
        let _ = count::add(&key, period, cpu);
    }
    outcome
}

/// Bytes of an entry.
const ENTRY: u32 = size_of::<BranchEntry>() as u32;

/// Gives the stack at the head of the ring to user space, and wakes that where a quarter of the ring is full.
#[inline(always)]
fn append(
    stack: &mut Stack,
    (context, depth, time): (&Context, u64, u64),
    cpu: &mut Cpu,
    ring: u32,
) -> Outcome {
    let head = cpu.head;
    // SAFETY: an aligned number that user space writes as a whole.
    let tail = unsafe { (&raw const cpu.tail).read_volatile() };
    let n = head.wrapping_sub(tail).wrapping_add(1);
    if u64::from(ring) <= n {
        return Outcome::Full;
    }
    // SAFETY: both are valid. The processor keeps stores in their order, and the compiler keeps volatile ones (Intel SDM
    // vol. 3, 9.2.2): the head moves when all else is there.
    unsafe {
        (&raw mut stack.context.image).write_volatile(context.image);
        (&raw mut stack.context.kind).write_volatile(context.kind);
        (&raw mut stack.context.period).write_volatile(context.period);
        (&raw mut stack.depth).write_volatile(depth);
        (&raw mut stack.time).write_volatile(time);
        (&raw mut cpu.head).write_volatile(head.wrapping_add(1));
    }
    let quarter = u64::from(ring / 4);
    if quarter <= n && (n - quarter) % WAKE_AGAIN == 0 {
        // The ring that wakes is full where user space has not answered yet, and then it need not be called again.
        let _ = WAKE.output(&head, 0);
    }
    Outcome::Counted
}

/// Closes the gaps of entries that were never executed; their neighbours are neighbours of each other. The number that are
/// left is in the stack meanwhile: to the verifier what is loaded from a map is any number, while it would walk the
/// loop once for each value of one in a register.
#[inline(always)]
fn without_wrong_paths(stack: &mut Stack, wrong_path: &mut u64, depth: u64) -> u64 {
    let n_kept = &raw mut stack.depth;
    // SAFETY: a field of the stack, all three times.
    unsafe { n_kept.write_volatile(0) };
    for i in 0..MAX_DEPTH {
        // SAFETY: as above.
        let kept = unsafe { n_kept.read_volatile() } as usize;
        if depth as usize <= i || MAX_DEPTH <= kept {
            break;
        }
        let entry = stack.entries[i];
        if entry.is_wrong_path() {
            *wrong_path += 1;
        } else {
            let place = &raw mut stack.entries[kept];
            // SAFETY: fields of the stack. Word by word: a copy of more is a call that goes byte by byte on the BPF target.
            unsafe {
                (&raw mut (*place).from).write_volatile(entry.from);
                (&raw mut (*place).to).write_volatile(entry.to);
                (&raw mut (*place).flags).write_volatile(entry.flags);
                n_kept.write_volatile(kept as u64 + 1);
            }
        }
    }
    // SAFETY: as above.
    unsafe { n_kept.read_volatile() }
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
