//! The program on the event of bursts: hands the registers of a sample of user code to user space. With them goes memory that the
//! code is likely to read, as it was at that moment.
//!
//! The event is of its own, and leaves the kernel out: the programs on the other events do nothing for bursts. Memory that is
//! not there stays so: the helper that reads it takes no fault (mm/maccess.c, `copy_from_user_nofault`).

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::helpers::generated::bpf_probe_read_user;
use aya_ebpf::helpers::{bpf_get_current_task_btf, bpf_ktime_get_ns};
use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;
use hbbp_ebpf::burst::{
    BurstHead, BurstPage, BurstStats, PAGE_BYTES, STACK_PAGES, USER_CS, WANTED_PAGES, first_stack_page,
    page_of,
};
use hbbp_ebpf::key::OUTSIDE;

use crate::count;
use crate::maps::{BURST_STATS, BURSTS, FS_BASE_OFFSET, WANTED};

#[perf_event]
fn on_burst(ctx: PerfEventContext) -> u32 {
    if let Some(stats) = BURST_STATS.get_ptr_mut(0) {
        // SAFETY: it belongs to this CPU, and the kernel does not nest programs on perf events.
        hand_over(&ctx, unsafe { &mut *stats });
    }
    // Keeps the sample out of any perf ring buffer.
    0
}

#[inline(always)]
fn hand_over(ctx: &PerfEventContext, stats: &mut BurstStats) {
    // SAFETY: the helper takes no arguments and is safe in any context.
    let began = unsafe { bpf_ktime_get_ns() };
    stats.runs += 1;
    // SAFETY: the kernel hands a valid context to the program; the verifier checks each access.
    let regs = unsafe { &raw const (*ctx.ctx).regs };
    // SAFETY: as above.
    let (cs, rsp) = unsafe {
        (
            (&raw const (*regs).cs).read_volatile(),
            (&raw const (*regs).rsp).read_volatile(),
        )
    };
    if cs & 0xffff != USER_CS {
        stats.compatible += 1;
        return;
    }
    let [tgid, exec_id] = count::image();
    if tgid == OUTSIDE {
        stats.outside += 1;
        return;
    }
    let Some(mut entry) = BURSTS.reserve_untyped::<BurstHead>(0) else {
        stats.full += 1;
        return;
    };
    let head: *mut BurstHead = entry.as_mut_ptr();
    // SAFETY: a head has room there, and the registers are where the context says.
    unsafe { write_registers(head, regs) };
    let cpu = count::cpu();
    let first = first_stack_page(rsp);
    for page in 0..STACK_PAGES as u64 {
        copy(first.wrapping_add(page * PAGE_BYTES as u64), cpu, stats);
    }
    if let Some(wanted) = WANTED.get_ptr(tgid) {
        for i in 0..WANTED_PAGES {
            // SAFETY: a value of the map lives as long as the program runs. User space may replace it meanwhile: any number
            // is an address of this process or is refused.
            let entry = unsafe { (&raw const (*wanted).0[i]).read_volatile() };
            if entry == 0 {
                break;
            }
            // SAFETY: the head has as many registers.
            let register =
                |number: usize| unsafe { (&raw const (*head).registers[number & 15]).read_volatile() };
            copy(page_of(entry, register), cpu, stats);
        }
    }
    // SAFETY: as above.
    unsafe {
        (&raw mut (*head).fs_base).write_volatile(fs_base());
        (&raw mut (*head).tgid).write_volatile(tgid);
        (&raw mut (*head).exec_id).write_volatile(exec_id);
        (&raw mut (*head).cpu).write_volatile(cpu.into());
        (&raw mut (*head).time).write_volatile(began);
        (&raw mut (*head).took).write_volatile(bpf_ktime_get_ns() - began);
    }
    entry.submit(0);
    stats.handed += 1;
}

/// Copies a page, if it is there.
#[inline(always)]
fn copy(address: u64, cpu: u32, stats: &mut BurstStats) {
    stats.pages += 1;
    let Some(mut entry) = BURSTS.reserve_untyped::<BurstPage>(0) else {
        stats.pages_full += 1;
        return;
    };
    let page: *mut BurstPage = entry.as_mut_ptr();
    // SAFETY: a page has room there. The helper writes as many bytes as stated, and refuses addresses that are none.
    let failed = unsafe {
        (&raw mut (*page).address).write_volatile(address);
        (&raw mut (*page).cpu).write_volatile(cpu.into());
        bpf_probe_read_user(
            (&raw mut (*page).bytes).cast(),
            PAGE_BYTES as u32,
            address as *const _,
        )
    };
    if failed == 0 {
        entry.submit(0);
        stats.pages_handed += 1;
    } else {
        entry.discard(0);
        stats.pages_absent += 1;
    }
}

/// The registers of the sample, in the order of their encoding.
///
/// # Safety
///
/// Both must be valid.
#[inline(always)]
unsafe fn write_registers(head: *mut BurstHead, regs: *const pt_regs) {
    macro_rules! write {
        ($($register:ident = $number:literal),*) => {
            // SAFETY: by the caller.
            $(unsafe {
                (&raw mut (*head).registers[$number]).write_volatile((&raw const (*regs).$register).read_volatile());
            })*
        };
    }
    write!(
        rax = 0,
        rcx = 1,
        rdx = 2,
        rbx = 3,
        rsp = 4,
        rbp = 5,
        rsi = 6,
        rdi = 7,
        r8 = 8,
        r9 = 9,
        r10 = 10,
        r11 = 11,
        r12 = 12,
        r13 = 13,
        r14 = 14,
        r15 = 15
    );
    // SAFETY: by the caller.
    unsafe {
        (&raw mut (*head).rip).write_volatile((&raw const (*regs).rip).read_volatile());
        (&raw mut (*head).flags).write_volatile((&raw const (*regs).eflags).read_volatile());
    }
}

/// The base of FS of the current task, 0 where the kernel does not report where it is. The kernel keeps there what a task sets
/// by a system call or starts with (arch/x86/kernel/process_64.c, `do_arch_prctl_64`). What the task has set by WRFSBASE since it
/// came onto the CPU is not seen.
#[inline(always)]
fn fs_base() -> u64 {
    let offset = FS_BASE_OFFSET.load();
    if offset == 0 {
        return 0;
    }
    // SAFETY: the helper returns the current task, which lives as long as the program runs. The verifier knows its type and the
    // constant offset, and lets no other load pass.
    unsafe {
        bpf_get_current_task_btf()
            .byte_add(offset as usize)
            .cast::<u64>()
            .read_volatile()
    }
}
