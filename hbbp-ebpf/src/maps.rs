//! The maps and the constants that the loader fills in.

use aya_ebpf::Global;
use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::btf_maps::{Array, ArrayOfMaps, HashMap, PerCpuArray};
use aya_ebpf::macros::btf_map;
use hbbp_ebpf::{CountKey, EventStats, MAX_EVENTS, TEXT_WINDOW, Tally};

/// A bank of counts. User space makes two with room for a drain interval each and shows one of them in [`BANK`];
/// the capacity here is that of the template only.
/// The banks are preallocated: insertion in NMI context then only takes an element from a free list, and kernels
/// before 6.1 refuse anything else in programs on perf events (kernel/bpf/verifier.c).
pub(crate) type Bank = HashMap<CountKey, Tally, 1>;

/// The bank that is counted in. Replacing it waits until no program uses the old one (kernel/bpf/syscall.c,
/// `maybe_wait_bpf_programs`), so the old bank is quiescent when the update returns.
#[btf_map]
pub(crate) static BANK: ArrayOfMaps<Bank, 1> = ArrayOfMaps::new();

/// How the samples of each event ended, on each CPU.
#[btf_map]
pub(crate) static EVENT_STATS: PerCpuArray<EventStats, MAX_EVENTS> = PerCpuArray::new();

/// The window through which kernel text reaches user space.
#[btf_map]
pub(crate) static TEXT: Array<[u8; TEXT_WINDOW], 1, { BPF_F_MMAPABLE as usize }> = Array::new();

/// See [`hbbp_ebpf::name::EXEC_ID_OFFSET`].
#[unsafe(no_mangle)]
pub(crate) static EXEC_ID_OFFSET: Global<u64> = Global::new(0);

/// See [`hbbp_ebpf::name::SPLIT_KERNEL`].
#[unsafe(no_mangle)]
pub(crate) static SPLIT_KERNEL: Global<u32> = Global::new(0);
