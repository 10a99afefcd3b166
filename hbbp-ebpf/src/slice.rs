//! Slices: what was executed while a thread, or all threads together, executed a given number of units of the counting
//! event.
//!
//! The progress of a thread is the sum of what its samples represent ([`event_count::units`]), and its slice is that
//! divided by the length of a slice. A thread without a slot there has no slice, and its samples say so. Where slices
//! are not distinguished, the constants make all of this dead code, which the verifier leaves out.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::programs::PerfEventContext;
use hbbp_ebpf::is_kernel;
use hbbp_ebpf::key::{BEHIND_LAST_SLICE, NO_PLACE};

use crate::event_count;
use crate::maps::{PROGRESS, SLICE, SLICE_EVENTS, SLICE_RINGS, SLICE_THREADS};

/// Whether slices are distinguished.
#[inline(always)]
pub(crate) fn are_told_apart() -> bool {
    SLICE.load() != 0
}

/// The slice of the current task, or why it has none.
#[inline(always)]
pub(crate) fn current() -> u32 {
    let Some(progress) = progress() else {
        return NO_PLACE;
    };
    // SAFETY: a u64 that other CPUs add to; it is read as a whole.
    let progress = unsafe { progress.read_volatile() };
    // Checked, as the panic of a division by zero is code that the verifier refuses.
    let slice = progress.checked_div(SLICE.load()).unwrap_or(0);
    if slice < u64::from(BEHIND_LAST_SLICE) {
        slice as u32
    } else {
        BEHIND_LAST_SLICE
    }
}

/// The bit of the idle task in [`SLICE_RINGS`].
const IDLE: u32 = 1 << 2;

/// Adds a sample at this address to the progress of the current task, if its event makes slices.
#[inline(always)]
pub(crate) fn advance(ctx: &PerfEventContext, event: u32, address: u64, period: u64) {
    let ring = 1 << is_kernel(address) as u32;
    if !are_told_apart() || SLICE_EVENTS.load() & 1 << event == 0 {
        return;
    }
    // Of every sample: what it represents begins at the one before, whatever ring and task that was in.
    let units = event_count::units(ctx, period);
    let rings = SLICE_RINGS.load();
    let is_left_out = rings & IDLE == 0 && bpf_get_current_pid_tgid() == 0;
    if rings & ring == 0 || is_left_out {
        return;
    }
    if let Some(progress) = progress() {
        // SAFETY: the value is valid, and all CPUs add to it atomically. The result stays unused.
        unsafe {
            atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(progress, units);
        }
    }
}

/// The progress of the current task, or of all together; `None` where it has no slot.
#[inline(always)]
fn progress() -> Option<*mut u64> {
    let owner = owner();
    if let Some(progress) = PROGRESS.get_ptr_mut(owner) {
        return Some(progress);
    }
    // Where it fails, another CPU may have made it at the same time.
    let _ = PROGRESS.insert(owner, 0, BPF_NOEXIST);
    PROGRESS.get_ptr_mut(owner)
}

/// See `bpf_map_update_elem` in include/uapi/linux/bpf.h.
const BPF_NOEXIST: u64 = 1;

/// Whose progress it is.
#[inline(always)]
fn owner() -> u32 {
    if SLICE_THREADS.load() == 0 {
        0
    } else {
        bpf_get_current_pid_tgid() as u32
    }
}
