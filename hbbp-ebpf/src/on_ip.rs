//! Programs on an event without a branch stack: count the eventing IP of each sample.
//!
//! There is one program for each event number, so the number is a constant and need not be looked up for each sample.

use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;
use hbbp_ebpf::EventTag;

use crate::maps::CPUS;
use crate::{count, log, slice};

/// A sample of an instruction pointer.
pub(crate) struct Sample {
    /// The address.
    pub(crate) ip: u64,
    /// Its period.
    pub(crate) period: u64,
}

/// Counts one sample.
#[inline(always)]
pub(crate) fn on_ip<const EVENT: u32>(ctx: &PerfEventContext) -> Sample {
    // SAFETY: the kernel hands a valid context to the program; the verifier checks each access.
    let (ip, eflags, period) = unsafe {
        let data = ctx.ctx;
        (
            (&raw const (*data).regs.rip).read_volatile(),
            (&raw const (*data).regs.eflags).read_volatile(),
            (&raw const (*data).sample_period).read_volatile(),
        )
    };
    if let Some(cpu) = CPUS.get_ptr_mut(count::cpu()) {
        // SAFETY: what the programs write there belongs to this CPU, and the kernel does not nest programs on perf events.
        let cpu = unsafe { &mut *cpu };
        let key = count::key(cpu, ip, EventTag::new(EVENT, eflags));
        let outcome = count::add(&key, period, cpu);
        cpu.events[EVENT as usize].count(outcome);
        // After the sample, which ends the span that it represents.
        slice::advance(ctx, EVENT, ip, period);
        log::sample(outcome, EVENT, ip);
    }
    Sample { ip, period }
}

macro_rules! programs {
    ($($name:ident = $event:literal),*) => {
        $(
            #[perf_event]
            fn $name(ctx: PerfEventContext) -> u32 {
                on_ip::<$event>(&ctx);
                // Keeps the sample out of any perf ring buffer.
                0
            }
        )*
    };
}

programs!(
    on_ip_0 = 0,
    on_ip_1 = 1,
    on_ip_2 = 2,
    on_ip_3 = 3,
    on_ip_4 = 4,
    on_ip_5 = 5
);
