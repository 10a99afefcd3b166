//! What a sample represents, by the counter's own value: the units since the sample of the same event before, so that samples
//! that were lost between the two are in it.
//!
//! `bpf_perf_prog_read_value` refuses the events of a command, which the kernel copies to each task (kernel/events/core.c,
//! `perf_event_read_local`), so the count is read where it is: the driver has brought it up to date when the sample comes.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use aya_ebpf::programs::PerfEventContext;

use crate::maps::{EVENT_COUNT_OFFSET, LAST_COUNTS};

/// Units of the event since its last sample; the period where that is not known, and where the count says less than
/// half of it: another event replaced it.
#[inline(always)]
pub(crate) fn units(ctx: &PerfEventContext, period: u64) -> u64 {
    let offset = EVENT_COUNT_OFFSET.load();
    if offset == 0 {
        return period;
    }
    // `event` in struct bpf_perf_event_data_kern (include/linux/perf_event.h), which is what a program's context is.
    let event = read(ctx.as_ptr().addr() as u64 + 16);
    let count = read(event.wrapping_add(offset));
    let Some(last) = LAST_COUNTS.get_ptr_mut(event) else {
        let _ = LAST_COUNTS.insert(event, count, 0);
        return period;
    };
    // SAFETY: a u64 of the map. An event runs on one CPU at a time.
    let units = unsafe {
        let before = last.read_volatile();
        last.write_volatile(count);
        count.wrapping_sub(before)
    };
    if units < period / 2 || FAR < units {
        period
    } else {
        units
    }
}

/// No event counts as much between two samples: the count went back.
const FAR: u64 = 1 << 48;

/// A word of kernel memory, 0 where it cannot be read.
#[inline(always)]
pub(crate) fn read(address: u64) -> u64 {
    let mut word = 0_u64;
    // SAFETY: the helper writes as many bytes as stated, and refuses addresses that are none.
    unsafe {
        bpf_probe_read_kernel(
            (&raw mut word).cast(),
            size_of::<u64>() as u32,
            address as *const _,
        );
    }
    word
}
