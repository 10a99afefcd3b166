//! The programs on the kernel's tracepoints module:module_load and module:module_free.
//!
//! The first fires when the text of a module is final but for patches, before any of it runs; the second before it is
//! freed (kernel/module/main.c).

use core::ffi::c_void;
use core::ptr::addr_of_mut;

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use hbbp_ebpf::module::{CAME, MODULE_BYTES, ModuleEvent, WENT};

use crate::log;
use crate::maps::{MODULE_SIZE, MODULES, MODULES_LOST};

#[raw_tracepoint(tracepoint = "module_load")]
fn on_module_load(ctx: RawTracePointContext) -> i32 {
    tell(&ctx, CAME);
    0
}

#[raw_tracepoint(tracepoint = "module_free")]
fn on_module_free(ctx: RawTracePointContext) -> i32 {
    tell(&ctx, WENT);
    0
}

/// Copies the module that the tracepoint is about. The ring wakes user space.
fn tell(ctx: &RawTracePointContext, what: u64) {
    let module: u64 = ctx.arg(0);
    let size = MODULE_SIZE.load();
    let Some(mut event) = MODULES.reserve(0) else {
        if let Some(lost) = MODULES_LOST.get_ptr_mut(0) {
            // SAFETY: an aligned u64 of the map; modules are loaded one at a time or nearly so, and a count that is
            // too small by one still says that some were lost.
            unsafe { *lost += 1 };
        }
        log::modules_full(module);
        return;
    };
    let at: *mut ModuleEvent = event.as_mut_ptr();
    // SAFETY: a ModuleEvent has room. What the helper does not write keeps what the ring held: no byte of a `struct module`.
    let failed = unsafe {
        addr_of_mut!((*at).time).write(bpf_ktime_get_ns());
        addr_of_mut!((*at).what).write(what);
        let bytes = addr_of_mut!((*at).module).cast::<c_void>();
        let size = if size == 0 || MODULE_BYTES as u64 <= size {
            MODULE_BYTES as u64
        } else {
            size
        };
        bpf_probe_read_kernel(bytes, size as u32, module as *const c_void)
    };
    event.submit(0);
    if failed != 0 {
        log::module_unreadable(module, failed);
    }
}
