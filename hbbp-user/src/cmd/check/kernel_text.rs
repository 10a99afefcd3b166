//! Where the text and the symbols of the kernel can be read.

use super::finding::{Finding, missing, ok};
use hbbp_collect::object::Object;
use hbbp_collect::text::TextWindow;
use hbbp_model::addr::Va;
use hbbp_resolve::kernel::kallsyms::read_kallsyms;
use hbbp_resolve::kernel::kcore::open_kcore;
use hbbp_resolve::kernel::live_symbols::has_symbol_tables;

pub(super) fn kernel_text(object: Option<&mut Object>) -> Finding {
    let lockdown = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    if open_kcore().is_ok() {
        return ok("kernel-text", "live, read from /proc/kcore");
    }
    let symbols = read_kallsyms();
    let start = symbols
        .ok()
        .and_then(|symbols| symbols.image.stext)
        .unwrap_or(Va(0));
    let window = object.and_then(|object| TextWindow::open(object).ok());
    if window.is_some_and(|window| window.read(start, &mut [0; 16])) {
        return ok(
            "kernel-text",
            "live, read by a BPF program (/proc/kcore is unavailable)",
        );
    }
    let advice = if lockdown.contains("[confidentiality]") {
        "kernel lockdown is `confidentiality`: only a static image can be used (--vmlinux FILE)"
    } else {
        "run as root, or use a static image with --vmlinux FILE"
    };
    missing("kernel-text", "live kernel text cannot be read", advice)
}

/// As uname gives it.
fn release() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

pub(super) fn kernel_symbols() -> Finding {
    match read_kallsyms() {
        Ok(symbols) if !symbols.hidden => ok("kernel-symbols", "/proc/kallsyms shows addresses"),
        _ if has_symbol_tables(&release()) => ok(
            "kernel-symbols",
            "/proc/kallsyms hides addresses; the kernel's own tables are read through /proc/kcore",
        ),
        _ => missing(
            "kernel-symbols",
            "/proc/kallsyms hides addresses",
            "run as root with sysctl kernel.kptr_restrict=1 or 0; otherwise kernel functions have no names",
        ),
    }
}
