//! Slices: what ran while a thread, or all threads together, executed a given number of units of the counting event.
//!
//! A sample of that event at period P stands for P units, so the sum of the periods is the progress of a thread, and its
//! slice is that sum divided by the length of a slice. Where slices are not told apart, the constants make all of this
//! dead code, which the verifier leaves out.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use hbbp_ebpf::is_kernel;
use hbbp_ebpf::key::INTERVALS;

use crate::maps::{PROGRESS, SLICE, SLICE_EVENTS, SLICE_RINGS, SLICE_THREADS};

/// Whether slices are told apart.
#[inline(always)]
pub(crate) fn are_told_apart() -> bool {
    SLICE.load() != 0
}

/// The slice of the current task, which stays the last one that a tag can have; 0 for one that has no progress yet.
#[inline(always)]
pub(crate) fn current() -> u32 {
    // SAFETY: a u64 that other CPUs add to; it is read as a whole.
    let progress = PROGRESS
        .get_ptr(owner())
        .map_or(0, |progress| unsafe { progress.read_volatile() });
    // Checked, as the panic of a division by zero is code that the verifier refuses.
    let slice = progress.checked_div(SLICE.load()).unwrap_or(0);
    if slice < u64::from(INTERVALS) {
        slice as u32
    } else {
        INTERVALS - 1
    }
}

/// Adds a sample at this address to the progress of the current task, if its event makes slices. The idle task makes none.
#[inline(always)]
pub(crate) fn advance(event: u32, address: u64, period: u64) {
    let ring = 1 << is_kernel(address) as u32;
    if !are_told_apart()
        || SLICE_EVENTS.load() & 1 << event == 0
        || SLICE_RINGS.load() & ring == 0
        || bpf_get_current_pid_tgid() == 0
    {
        return;
    }
    match PROGRESS.get_ptr_mut(owner()) {
        // SAFETY: the value is valid, and all CPUs add to it atomically. The result stays unused.
        Some(progress) => unsafe {
            atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(progress, period);
        },
        // Where there is no room, the thread stays in its first slice.
        None => {
            let _ = PROGRESS.insert(owner(), period, 0);
        }
    }
}

/// Whose progress it is.
#[inline(always)]
fn owner() -> u32 {
    if SLICE_THREADS.load() == 0 {
        0
    } else {
        bpf_get_current_pid_tgid() as u32
    }
}
