//! The eBPF object of hbbp-sys. On any other target than BPF it is an empty program, so that the workspace builds.
#![cfg_attr(target_arch = "bpf", no_std, no_main, feature(core_intrinsics))]
#![cfg_attr(
    target_arch = "bpf",
    expect(internal_features, reason = "the BPF target has no stable atomic addition")
)]

#[cfg(target_arch = "bpf")]
mod count;
#[cfg(target_arch = "bpf")]
mod event_count;
#[cfg(target_arch = "bpf")]
mod log;
#[cfg(target_arch = "bpf")]
mod maps;
#[cfg(target_arch = "bpf")]
mod on_branch;
#[cfg(target_arch = "bpf")]
mod on_burst;
#[cfg(target_arch = "bpf")]
mod on_chain;
#[cfg(target_arch = "bpf")]
mod on_ip;
#[cfg(target_arch = "bpf")]
mod on_module;
#[cfg(target_arch = "bpf")]
mod read_text;
#[cfg(target_arch = "bpf")]
mod repeated;
#[cfg(target_arch = "bpf")]
mod slice;
#[cfg(target_arch = "bpf")]
mod work;

/// The kernel reads this section: helpers that read kernel memory are for GPL-compatible programs.
#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier refuses programs that can get here.
    loop {}
}

#[cfg(not(target_arch = "bpf"))]
fn main() {}
