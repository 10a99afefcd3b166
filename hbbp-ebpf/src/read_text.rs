//! A program that user space runs by hand (BPF_PROG_TEST_RUN): it copies kernel text where /proc/kcore is missing.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use aya_ebpf::programs::RawTracePointContext;
use hbbp_ebpf::TEXT_WINDOW;

use crate::log;
use crate::maps::TEXT;

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
    if len == 0 || (TEXT_WINDOW as u64) < len {
        return 1;
    }
    let Some(window) = TEXT.get_ptr_mut(0) else {
        return 1;
    };
    // SAFETY: the window holds TEXT_WINDOW bytes and the helper checks the address it reads.
    let failed = unsafe { bpf_probe_read_kernel(window.cast(), len as u32, address as *const _) };
    if failed == 0 {
        return 0;
    }
    log::text_unreadable(address, len, failed);
    2
}
