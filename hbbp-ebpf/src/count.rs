//! Adding to the bank of counts, from NMI context.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use aya_ebpf::bindings::{BPF_NOEXIST, bpf_pidns_info};
use aya_ebpf::helpers::generated::bpf_get_ns_current_pid_tgid;
use aya_ebpf::helpers::{
    bpf_get_current_pid_tgid, bpf_get_current_task, bpf_ktime_get_ns, bpf_probe_read_kernel,
};
use hbbp_ebpf::key::OUTSIDE;
use hbbp_ebpf::stat::Outcome;
use hbbp_ebpf::{CountKey, EventTag, Tally, is_kernel};

use crate::maps::{BANK, Bank, EXEC_ID_OFFSET, PID_NAMESPACE, PID_NAMESPACE_DEVICE, SPLIT_KERNEL};

const EEXIST: i32 = -17;

/// The process image that the current task runs.
#[derive(Clone, Copy)]
pub(crate) struct Image {
    tgid: u32,
    exec_id: u32,
}

impl Image {
    /// Asks the kernel: two helper calls.
    #[inline(always)]
    pub(crate) fn of_current() -> Self {
        Self {
            tgid: tgid(),
            exec_id: exec_id(),
        }
    }

    /// Thread group and exec id that an address is counted under.
    #[inline(always)]
    pub(crate) fn at(&self, address: u64) -> (u32, u32) {
        if is_together(address) {
            (0, 0)
        } else {
            (self.tgid, self.exec_id)
        }
    }
}

/// The key of an address that the current task executed.
#[inline(always)]
pub(crate) fn key(address: u64, event: EventTag) -> CountKey {
    if is_together(address) {
        return CountKey {
            address,
            source: 0,
            tgid: 0,
            exec_id: 0,
            event,
            length: 0,
        };
    }
    let image = Image::of_current();
    CountKey {
        address,
        source: 0,
        tgid: image.tgid,
        exec_id: image.exec_id,
        event,
        length: 0,
    }
}

/// Whether the address is counted once for the whole system.
#[inline(always)]
fn is_together(address: u64) -> bool {
    is_kernel(address) && SPLIT_KERNEL.load() == 0
}

/// The thread group id of the current task as user space knows it.
#[inline(always)]
fn tgid() -> u32 {
    let namespace = PID_NAMESPACE.load();
    if namespace == 0 {
        return (bpf_get_current_pid_tgid() >> 32) as u32;
    }
    let mut ids = bpf_pidns_info { pid: 0, tgid: 0 };
    // SAFETY: the helper writes as many bytes as stated.
    let failed = unsafe {
        bpf_get_ns_current_pid_tgid(
            PID_NAMESPACE_DEVICE.load(),
            namespace,
            &raw mut ids,
            size_of_val(&ids) as u32,
        )
    };
    if failed == 0 && ids.tgid != 0 {
        ids.tgid
    } else {
        OUTSIDE
    }
}

/// The low half of `current->self_exec_id`, 0 where the kernel does not tell its place.
#[inline(always)]
fn exec_id() -> u32 {
    let offset = EXEC_ID_OFFSET.load();
    if offset == 0 {
        return 0;
    }
    // SAFETY: the helper takes no arguments; the address it returns is only handed to a checked read.
    let task = unsafe { bpf_get_current_task() };
    // SAFETY: bpf_probe_read_kernel checks the address and fails rather than faults.
    unsafe { bpf_probe_read_kernel((task + offset) as *const u32) }.unwrap_or(0)
}

/// Counts one sample of `weight` units under `key`.
#[inline(always)]
pub(crate) fn add(key: &CountKey, weight: u64) -> Outcome {
    let Some(bank) = BANK.get(0) else {
        return Outcome::NoBank;
    };
    if add_to_present(bank, key, 1, weight) {
        return Outcome::Counted;
    }
    // SAFETY: the helper takes no arguments and is safe in NMI context.
    let first_time = unsafe { bpf_ktime_get_ns() };
    insert(
        bank,
        key,
        Tally {
            hits: 1,
            weight,
            first_time,
        },
    )
}

/// Counts what was combined before.
#[inline(always)]
pub(crate) fn add_tally(key: &CountKey, tally: Tally) -> Outcome {
    let Some(bank) = BANK.get(0) else {
        return Outcome::NoBank;
    };
    if add_to_present(bank, key, tally.hits, tally.weight) {
        return Outcome::Counted;
    }
    insert(bank, key, tally)
}

#[inline(always)]
fn insert(bank: &Bank, key: &CountKey, tally: Tally) -> Outcome {
    match bank.insert(key, tally, BPF_NOEXIST.into()) {
        Ok(()) => Outcome::Counted,
        // Another CPU was faster.
        Err(EEXIST) if add_to_present(bank, key, tally.hits, tally.weight) => Outcome::Counted,
        Err(errno) => Outcome::of_errno(errno),
    }
}

#[inline(always)]
fn add_to_present(bank: &Bank, key: &CountKey, hits: u64, weight: u64) -> bool {
    let Some(tally) = bank.get_ptr_mut(key) else {
        return false;
    };
    // SAFETY: the value lives as long as the program runs, since entries of a bank in use are never deleted, and all
    // writers add atomically. The results stay unused: LLVM may not fetch the old value of a relaxed addition.
    unsafe {
        atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(&raw mut (*tally).hits, hits);
        atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(&raw mut (*tally).weight, weight);
    }
    true
}
