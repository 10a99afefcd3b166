//! A program that user space runs by hand (BPF_PROG_TEST_RUN): it copies kernel text where /proc/kcore is missing.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use aya_ebpf::programs::RawTracePointContext;
use hbbp_ebpf::TEXT_WINDOW;

use crate::log;
use crate::maps::TEXT;

/// What masks a length below.
const _: () = assert!(TEXT_WINDOW.is_power_of_two());

/// Copies `args[1]` bytes of kernel memory from address `args[0]` into the text window.
/// Returns 0, or 1 where the length is out of bounds, or 2 where any byte of it could not be read; the kernel then
/// zeroes the whole window (kernel/trace/bpf_trace.c).
///
/// The section name makes it a raw tracepoint program; aya's macro for that would drop the return value.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp")]
extern "C" fn read_text(ctx: *mut c_void) -> i32 {
    let ctx = RawTracePointContext::new(ctx);
    let address: u64 = ctx.arg(0);
    let len: u64 = ctx.arg(1);
    // A mask, and the comparison only after the copy: LLVM turns a comparison of both bounds into one of another register, and
    // the verifier of Linux 6.1 then knows no bound of this one and refuses the program.
    let size = (len.wrapping_sub(1) & (TEXT_WINDOW as u64 - 1)) + 1;
    let Some(window) = TEXT.get_ptr_mut(0) else {
        return 1;
    };
    // SAFETY: the window holds TEXT_WINDOW bytes, no less than `size`, and the helper checks the address it reads.
    let failed = unsafe { bpf_probe_read_kernel(window.cast(), size as u32, address as *const _) };
    if size != len {
        return 1;
    }
    if failed == 0 {
        return 0;
    }
    log::text_unreadable(address, len, failed);
    2
}
