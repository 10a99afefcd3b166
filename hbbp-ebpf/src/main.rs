//! The eBPF object (an empty main on the host).
#![cfg_attr(target_arch = "bpf", no_std, no_main)]

#[cfg(target_arch = "bpf")]
mod bpf {
    use aya_ebpf::{macros::perf_event, programs::PerfEventContext};

    #[perf_event]
    fn on_ip(_: PerfEventContext) -> u32 {
        0
    }

    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
        loop {}
    }

    #[unsafe(link_section = "license")]
    #[unsafe(no_mangle)]
    static LICENSE: [u8; 4] = *b"GPL\0";
}

#[cfg(not(target_arch = "bpf"))]
fn main() {}
