//! What kernel text is called: by the tags of its symbols, by what the kernel writes, or by the area that it lies in.

use std::ops::Range;

use hbbp_model::addr::Va;
use hbbp_model::snapshot::ModuleKind;

use super::kallsyms::{Kallsyms, KernelSymbol};
use super::region::{KernelModule, Regions};

/// End of the area of modules, which follows that of the image (1 GiB, or 512 MiB without KASLR).
pub(crate) const MODULE_AREA_END: u64 = 0xffff_ffff_ff00_0000;
/// Symbols of one module with a larger gap between them belong to two regions.
const MAX_GAP: u64 = 1 << 20;

/// The regions of kernel modules: runs of neighbouring symbols with one tag.
pub(crate) fn tagged_runs(symbols: &Kallsyms) -> Vec<(String, Range<Va>)> {
    let mut runs: Vec<(String, Range<Va>)> = Vec::new();
    for symbol in symbols.tagged() {
        let Some(tag) = symbol.tag.filter(|_| named_by_symbol(&symbol).is_none()) else {
            continue;
        };
        let end = Va(symbol.start.0.saturating_add(symbol.len));
        match runs.last_mut() {
            Some((last, run)) if last == tag && symbol.start.0 - run.end.0.min(symbol.start.0) < MAX_GAP => {
                run.end = run.end.max(end);
            }
            _ => runs.push((tag.to_owned(), symbol.start..end)),
        }
    }
    runs
}

/// The module of a symbol that forms a module of its own: a BPF program, a trampoline, a page of kprobes.
pub(crate) fn named_by_symbol(symbol: &KernelSymbol<'_>) -> Option<KernelModule> {
    match symbol.tag? {
        "bpf" => Some(written(symbol.name)),
        tag => tag.strip_prefix("__builtin__").map(|what| KernelModule {
            name: format!("[{what}]"),
            kind: ModuleKind::Trampoline,
            regions: Regions::OfName,
        }),
    }
}

/// The module of text that the kernel wrote, which no other text belongs to.
pub(crate) fn written(name: &str) -> KernelModule {
    KernelModule {
        name: name.to_owned(),
        kind: written_kind(name),
        regions: Regions::One,
    }
}

/// The sort of text that the kernel wrote, by its name, which is all that symbols and records say of it
/// (kernel/bpf/core.c, `bpf_get_prog_name`): programs, or the trampolines and dispatchers that call them.
pub(crate) fn written_kind(name: &str) -> ModuleKind {
    if name.starts_with("bpf_prog_") {
        ModuleKind::Bpf
    } else {
        ModuleKind::Trampoline
    }
}

/// The name of the area that a kernel address without a symbol lies in (Documentation/arch/x86/x86_64/mm.rst).
pub(crate) fn area(at: Va) -> &'static str {
    match at.0 {
        0xffff_ffff_ff60_0000..0xffff_ffff_ff60_1000 => "[vsyscall]",
        0xffff_fe00_0000_0000..0xffff_ff00_0000_0000 => "[cpu entry area]",
        0xffff_ffff_8000_0000..MODULE_AREA_END => "[module area]",
        0xffff_c900_0000_0000..0xffff_e900_0000_0000 => "[vmalloc area]",
        0xffa0_0000_0000_0000..0xffd2_0000_0000_0000 => "[vmalloc area]",
        _ => "[kernel memory]",
    }
}
