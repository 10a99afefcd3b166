//! What the programs say about what they refuse, through aya-log.
//!
//! The object is built twice: with the feature `log` for `--verbose`, and without it, where these functions are empty and
//! the programs hold not one instruction of them. A level that the verifier knows would not do: it removes the branch that
//! is never taken, and leaves the load of the level.
//!
//! Messages are rare events that can come in floods, so that each is said the first, second, fourth, eighth .. time on a
//! CPU. A full log drops messages; the counters of losses are exact.

use hbbp_ebpf::stat::Outcome;

/// A sample of an event that was not counted.
#[inline(always)]
pub(crate) fn sample(outcome: Outcome, event: u32, address: u64) {
    #[cfg(feature = "log")]
    match outcome {
        Outcome::Counted => {}
        Outcome::Full => said::full(event, address),
        Outcome::Raced => said::raced(event, address),
        Outcome::NoMap => said::no_map(event),
        Outcome::NoStack => said::no_stack(event, address),
    }
    #[cfg(not(feature = "log"))]
    let _ = (outcome, event, address);
}

/// A task that has no id in the pid namespace of user space.
#[inline(always)]
pub(crate) fn no_task(error: i64) {
    #[cfg(feature = "log")]
    said::no_task(error);
    #[cfg(not(feature = "log"))]
    let _ = error;
}

/// A module that came or went, while the ring of these was full.
#[inline(always)]
pub(crate) fn modules_full(module: u64) {
    #[cfg(feature = "log")]
    said::modules_full(module);
    #[cfg(not(feature = "log"))]
    let _ = module;
}

/// A module whose description could not be read.
#[inline(always)]
pub(crate) fn module_unreadable(module: u64, error: i64) {
    #[cfg(feature = "log")]
    said::module_unreadable(module, error);
    #[cfg(not(feature = "log"))]
    let _ = (module, error);
}

/// Kernel text that could not be read.
#[inline(always)]
pub(crate) fn text_unreadable(address: u64, len: u64, error: i64) {
    #[cfg(feature = "log")]
    said::text_unreadable(address, len, error);
    #[cfg(not(feature = "log"))]
    let _ = (address, len, error);
}

/// The messages: functions of their own, so that what they need on the stack is not needed by the programs.
#[cfg(feature = "log")]
mod said {
    use aya_ebpf::btf_maps::PerCpuArray;
    use aya_ebpf::macros::btf_map;
    use aya_log_ebpf::warn;

    /// How often each message was due on this CPU.
    #[btf_map]
    static SAID: PerCpuArray<[u64; 8], 1> = PerCpuArray::new();

    /// Whether this message is to be said now.
    #[inline(always)]
    fn is_due<const MESSAGE: usize>() -> bool {
        let Some(said) = SAID.get_ptr_mut(0) else {
            return false;
        };
        // SAFETY: the array belongs to this CPU; a count that an interrupt makes too small by one says a message more.
        let n = unsafe {
            let n = &raw mut (*said)[MESSAGE];
            n.write_volatile(n.read_volatile().wrapping_add(1));
            n.read_volatile()
        };
        n & n.wrapping_sub(1) == 0
    }

    #[inline(never)]
    pub(super) fn full(event: u32, address: u64) {
        if is_due::<0>() {
            warn!(&(), "event {}: no space for the sample at {:x}", event, address);
        }
    }

    #[inline(never)]
    pub(super) fn raced(event: u32, address: u64) {
        if is_due::<7>() {
            warn!(
                &(),
                "event {}: other CPUs claimed the slots for the sample at {:x}", event, address
            );
        }
    }

    #[inline(never)]
    pub(super) fn no_map(event: u32) {
        if is_due::<1>() {
            warn!(&(), "event {}: no map to count the sample in", event);
        }
    }

    #[inline(never)]
    pub(super) fn no_stack(event: u32, address: u64) {
        if is_due::<2>() {
            warn!(
                &(),
                "event {}: no branch stack in the sample at {:x}", event, address
            );
        }
    }

    #[inline(never)]
    pub(super) fn no_task(error: i64) {
        if is_due::<3>() {
            warn!(&(), "task without an id in this pid namespace: error {}", error);
        }
    }

    #[inline(never)]
    pub(super) fn modules_full(module: u64) {
        if is_due::<4>() {
            warn!(&(), "no space for the record of the module at {:x}", module);
        }
    }

    #[inline(never)]
    pub(super) fn module_unreadable(module: u64, error: i64) {
        if is_due::<5>() {
            warn!(&(), "module at {:x} cannot be read: error {}", module, error);
        }
    }

    #[inline(never)]
    pub(super) fn text_unreadable(address: u64, len: u64, error: i64) {
        if is_due::<6>() {
            warn!(
                &(),
                "{} bytes of kernel text at {:x} cannot be read: error {}", len, address, error
            );
        }
    }
}
