//! Adding to the count map, from NMI context.

use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd};

use aya_ebpf::bindings::bpf_pidns_info;
use aya_ebpf::helpers::generated::bpf_get_ns_current_pid_tgid;
use aya_ebpf::helpers::{
    bpf_get_current_pid_tgid, bpf_get_current_task_btf, bpf_get_smp_processor_id, bpf_ktime_get_ns,
};
use hbbp_ebpf::count_map::{self, Bucket, CLAIMED, FREE, SLOTS, TRIED, bucket_behind, bucket_of, hash};
use hbbp_ebpf::cpu::Cpu;
use hbbp_ebpf::key::{MOMENT, MOMENT_SHIFT, OUTSIDE, PER_THREAD, turning_bit};
use hbbp_ebpf::stat::Outcome;
use hbbp_ebpf::{CountKey, EventTag, Tally, is_kernel};

use crate::maps::{BUCKETS, COUNTS, EXEC_ID_OFFSET, PID_NAMESPACE, PID_NAMESPACE_DEVICE, SEED};
use crate::work::Work;
use crate::{log, slice};

/// The process image of the current task: thread group id and exec id.
#[inline(always)]
pub(crate) fn image() -> [u32; 2] {
    let [tgid, _] = ids();
    [tgid, exec_id()]
}

/// What user code of the current task is counted under: thread group id, exec id, and thread id where threads are counted
/// separately, else when it is counted.
#[inline(always)]
pub(crate) fn task(cpu: &Cpu) -> [u32; 3] {
    let [tgid, tid] = ids();
    [tgid, exec_id(), thread_or_moment(cpu, tgid, tid)]
}

#[inline(always)]
fn thread_or_moment(cpu: &Cpu, tgid: u32, tid: u32) -> u32 {
    if tid == 0 { moment(cpu, tgid) } else { tid }
}

/// When a process is counted whose mappings take turns; 0 of the others.
#[inline(always)]
fn moment(cpu: &Cpu, tgid: u32) -> u32 {
    // SAFETY: a number of the CPU, which user space writes as a whole.
    let turning = unsafe { (&raw const cpu.turning).read_volatile() };
    // Mostly there is none, which is seen without the bit.
    if turning == 0 || turning & turning_bit(tgid) == 0 || slice::are_told_apart() {
        return 0;
    }
    // SAFETY: the helper takes no arguments and is safe in NMI context.
    let now = unsafe { bpf_ktime_get_ns() };
    MOMENT | (now >> MOMENT_SHIFT) as u32 & (MOMENT - 1)
}

/// The number of this CPU.
#[inline(always)]
pub(crate) fn cpu() -> u32 {
    // SAFETY: the helper takes no arguments.
    unsafe { bpf_get_smp_processor_id() as u32 }
}

/// The key of an address that the current task executed.
#[inline(always)]
pub(crate) fn key(cpu: &Cpu, address: u64, event: EventTag) -> CountKey {
    let ([tgid, tid], exec_id) = (ids(), exec_id());
    let in_kernel = is_kernel(address);
    // No mapping of a process takes turns with others in the kernel.
    let tid = if in_kernel {
        tid
    } else {
        thread_or_moment(cpu, tgid, tid)
    };
    let event = if in_kernel || slice::are_told_apart() {
        event.in_interval(interval(cpu))
    } else {
        event
    };
    CountKey {
        address,
        source: 0,
        tgid,
        exec_id,
        tid,
        event,
        length: 0,
    }
}

/// The interval that kernel code is counted in; the slice where these are distinguished, for all code.
#[inline(always)]
pub(crate) fn interval(cpu: &Cpu) -> u32 {
    if slice::are_told_apart() {
        return slice::current();
    }
    // SAFETY: a number of the CPU, which user space writes as a whole.
    unsafe { (&raw const cpu.interval).read_volatile() as u32 }
}

/// The thread group id of the current task as user space knows it, and its thread id where threads are counted separately.
#[inline(always)]
fn ids() -> [u32; 2] {
    let asked = PID_NAMESPACE.load();
    if asked == 0 {
        return [(bpf_get_current_pid_tgid() >> 32) as u32, 0];
    }
    let tid = |tid: u32| if asked & PER_THREAD == 0 { 0 } else { tid };
    let namespace = asked & !PER_THREAD;
    if namespace == 0 {
        let both = bpf_get_current_pid_tgid();
        return [(both >> 32) as u32, tid(both as u32)];
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
        [ids.tgid, tid(ids.pid)]
    } else {
        log::no_task(failed);
        [OUTSIDE, 0]
    }
}

/// The low half of `current->self_exec_id`, 0 where the kernel does not report its offset.
#[inline(always)]
fn exec_id() -> u32 {
    let offset = EXEC_ID_OFFSET.load();
    if offset == 0 {
        return 0;
    }
    // SAFETY: the helper takes no arguments and returns the current task, which lives as long as the program runs. The
    // verifier knows its type and the constant offset, and lets no other load pass.
    unsafe {
        bpf_get_current_task_btf()
            .byte_add(offset as usize)
            .cast::<u32>()
            .read_volatile()
    }
}

/// Counts one sample of `weight` units under `key`.
#[inline(always)]
pub(crate) fn add(key: &CountKey, weight: u64, cpu: &mut Cpu) -> Outcome {
    let Some(counts) = COUNTS.get(0) else {
        return Outcome::NoMap;
    };
    let work = Work::of(cpu);
    // SAFETY: the helper takes no arguments and is safe in NMI context.
    work.set(key, weight, unsafe { bpf_ktime_get_ns() });
    let (words, tally) = (work.key(), work.tally());
    let hash = hash(&words, SEED.load());
    let state = count_map::state_of(hash);
    let n_buckets = BUCKETS.load();
    let mut number = bucket_of(hash, n_buckets);
    let mut refused = Outcome::Full;
    for _ in 0..TRIED {
        let Some(bucket) = counts.get_ptr_mut(number) else {
            return Outcome::NoMap;
        };
        // SAFETY: a bucket of the count map lives as long as the program runs. To the verifier, all slots are one from here on.
        let i = work.unknown(unsafe { find(bucket, state) } as u64) as usize;
        if i < SLOTS {
            // SAFETY: as above, and `i` is less than the slots.
            let slot = unsafe { &raw mut (*bucket).slots[i] };
            // SAFETY: as above.
            if claim(unsafe { &raw mut (*slot).state }) {
                fill(slot, &words, state, &tally);
                cpu.begun += 1;
                return Outcome::Counted;
            }
            // SAFETY: the slot is valid; once its state is a hash, its key does not change any more.
            if unsafe { read_state(slot) == state && is_same(&(*slot).key, &words) } {
                add_to(slot, &tally);
                return Outcome::Counted;
            }
            // Another CPU has just claimed the slot, or two keys have one hash.
            refused = Outcome::Raced;
        }
        number = work.unknown(bucket_behind(number, n_buckets).into()) as u32;
    }
    refused
}

/// Words are compared without branches of their own: the verifier would follow four paths from here on. They are not compared
/// as arrays: on the BPF target that is a call that goes byte by byte.
#[inline(always)]
fn is_same(a: &[u64; 4], b: &[u64; 4]) -> bool {
    (a[0] ^ b[0] | a[1] ^ b[1] | a[2] ^ b[2] | a[3] ^ b[3]) == 0
}

/// The first slot that is free or has this state; [`SLOTS`] where there is none.
///
/// # Safety
///
/// The bucket must be valid.
#[inline(always)]
unsafe fn find(bucket: *const Bucket, wanted: u64) -> usize {
    for i in 0..SLOTS {
        // SAFETY: by the caller, and `i` is less than the slots.
        let state = unsafe { read_state(&raw const (*bucket).slots[i]) };
        if state == wanted || state == FREE {
            return i;
        }
    }
    SLOTS
}

/// The state of a slot, which other CPUs write.
///
/// # Safety
///
/// The slot must be valid.
#[inline(always)]
unsafe fn read_state(slot: *const count_map::Slot) -> u64 {
    // SAFETY: by the caller.
    unsafe { (&raw const (*slot).state).read_volatile() }
}

/// Claims a slot, by its state, if it is free. Returns whether it is ours now.
#[inline(always)]
pub(crate) fn claim(state: *mut u64) -> bool {
    // SAFETY: the slot is valid.
    if unsafe { state.read_volatile() } != FREE {
        return false;
    }
    // SAFETY: the slot is valid, and all CPUs claim it this way.
    let (before, _) = unsafe {
        atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(state, FREE, CLAIMED)
    };
    before == FREE
}

/// Fills a slot that was claimed. The processor keeps stores in their order, and the compiler keeps volatile ones
/// (Intel SDM vol. 3, 9.2.2): the state says whose the slot is when all else is in it.
#[inline(always)]
fn fill(slot: *mut count_map::Slot, words: &[u64; 4], state: u64, tally: &Tally) {
    // SAFETY: the slot is valid, and only the CPU that claimed it writes to it.
    unsafe {
        let key = &raw mut (*slot).key;
        (&raw mut (*key)[0]).write_volatile(words[0]);
        (&raw mut (*key)[1]).write_volatile(words[1]);
        (&raw mut (*key)[2]).write_volatile(words[2]);
        (&raw mut (*key)[3]).write_volatile(words[3]);
        (&raw mut (*slot).tally.hits).write_volatile(tally.hits);
        (&raw mut (*slot).tally.weight).write_volatile(tally.weight);
        (&raw mut (*slot).tally.first_time).write_volatile(tally.first_time);
        (&raw mut (*slot).state).write_volatile(state);
    }
}

#[inline(always)]
fn add_to(slot: *mut count_map::Slot, tally: &Tally) {
    // SAFETY: the slot is valid, and all writers of a filled one add atomically. The results stay unused: LLVM may not
    // fetch the old value of a relaxed addition.
    unsafe {
        atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(&raw mut (*slot).tally.hits, tally.hits);
        atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(&raw mut (*slot).tally.weight, tally.weight);
    }
}
