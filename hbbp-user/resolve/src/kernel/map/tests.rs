//! Kernel code that comes and goes: the image, modules and programs at their times.

use super::super::kallsyms::parse_kallsyms;
use super::super::modules::parse_modules;
use super::*;
use proptest::prelude::*;

const TABLE: &[u8] = b"\
ffffffff81000000 T _text
ffffffff81000000 T startup_64
ffffffff81000200 T do_idle
ffffffff81001000 T _etext
ffffffff82000000 B _end
ffffffffc0201000 t ftrace_trampoline\t[__builtin__ftrace]
ffffffffc0300000 t nf_hook\t[nf_tables]
ffffffffc0300080 t nf_other\t[nf_tables]
ffffffffc0310000 t ext4_read\t[ext4]
ffffffffc0400000 t bpf_prog_6deef7357e7b4530\t[bpf]
ffffffffc0400040 t bpf_trampoline_6442494\t[bpf]
";

fn map() -> KernelMap {
    let mut map = KernelMap::default();
    let modules =
        parse_modules(b"zram 8192 0 - Live 0xffffffffc0500000\nnf_tables 4096 0 - Live 0xffffffffc0300000\n");
    map.update(parse_kallsyms(TABLE), &modules, None, 0);
    map
}

fn named(map: &mut KernelMap, at: u64, time: u64) -> (String, ModuleKind, Option<String>) {
    let region = map.region_at(Va(at), time);
    let module = map.module(region.module).expect("a module").clone();
    (
        module.name,
        module.kind,
        map.function_at(Va(at), &region).map(|s| s.name),
    )
}

#[test]
fn every_sort_of_text_has_its_module() {
    let mut map = map();
    let mut at = |address: u64| {
        let (name, kind, function) = named(&mut map, address, 5);
        (name, kind, function.unwrap_or_default())
    };
    let row = |name: &str, kind, function: &str| (name.to_owned(), kind, function.to_owned());
    assert_eq!(
        at(0xffff_ffff_8100_0210),
        row("[kernel]", ModuleKind::Kernel, "do_idle")
    );
    assert_eq!(at(0xffff_ffff_8180_0000), row("[kernel]", ModuleKind::Kernel, ""));
    assert_eq!(
        at(0xffff_ffff_c030_0085),
        row("nf_tables", ModuleKind::KernelModule, "nf_other")
    );
    assert_eq!(
        at(0xffff_ffff_c031_0000),
        row("ext4", ModuleKind::KernelModule, "ext4_read")
    );
    assert_eq!(
        at(0xffff_ffff_c050_1fff),
        row("zram", ModuleKind::KernelModule, "")
    );
    let program = "bpf_prog_6deef7357e7b4530";
    assert_eq!(at(0xffff_ffff_c040_0000), row(program, ModuleKind::Bpf, program));
    let trampoline = "bpf_trampoline_6442494";
    assert_eq!(
        at(0xffff_ffff_c040_0041),
        row(trampoline, ModuleKind::Trampoline, trampoline)
    );
    assert_eq!(
        at(0xffff_ffff_c020_1010),
        row("[ftrace]", ModuleKind::Trampoline, "ftrace_trampoline")
    );
    assert_eq!(
        at(0xffff_ffff_ff60_0400),
        row("[vsyscall]", ModuleKind::Trampoline, "")
    );
    assert_eq!(
        at(0xffff_fe00_0000_1000),
        row("[cpu entry area]", ModuleKind::Trampoline, "")
    );
    assert_eq!(
        at(0xffff_ffff_c060_0000),
        row("[module area]", ModuleKind::Trampoline, "")
    );
    assert_eq!(at(u64::MAX), row("[kernel memory]", ModuleKind::Trampoline, ""));
}

#[test]
fn memory_of_programs_is_used_again() {
    let mut map = map();
    let at = 0xffff_ffff_c070_0000;
    map.came(Va(at), 0x40, "bpf_prog_1_first", 10);
    map.went(Va(at), "bpf_prog_1_first", 20);
    map.came(Va(at), 0x80, "bpf_prog_2_second", 30);
    assert_eq!(named(&mut map, at + 8, 15).0, "bpf_prog_1_first");
    assert_eq!(
        named(&mut map, at + 8, 35).2.as_deref(),
        Some("bpf_prog_2_second")
    );
    assert_eq!(
        named(&mut map, at + 0x48, 15).0,
        "bpf_prog_2_second",
        "better than no name"
    );
    map.forget_before(40, |_| false);
    assert_eq!(named(&mut map, at + 8, 15).0, "bpf_prog_2_second");
}

#[test]
fn what_is_known_is_not_added_again() {
    let mut map = map();
    let n_before = (map.regions.len(), map.modules.len());
    map.update(parse_kallsyms(TABLE), &[], None, 50);
    map.came(Va(0xffff_ffff_c040_0000), 0x40, "bpf_prog_6deef7357e7b4530", 60);
    assert_eq!((map.regions.len(), map.modules.len()), n_before);
}

/// A module that a record notified of is not added again by its symbols.
#[test]
fn recorded_module_is_not_added_again_by_its_symbols() {
    let mut map = KernelMap::default();
    let (start, first) = (0xffff_ffff_c030_0000_u64, 0xffff_ffff_c030_0010_u64);
    map.module_came("late", Va(start)..Va(start + 0x1000), Vec::new(), 10);
    let n_before = map.regions.len();
    let line = format!(
        "{first:016x} t late_init\t[late]\n{:016x} d late_data\t[late]\n",
        start + 0x2000
    );
    map.update(parse_kallsyms(line.as_bytes()), &[], None, 0);
    assert_eq!(map.regions.len(), n_before);
    // Once it went, another one of its name is a new one.
    map.module_went("late", 20);
    map.update(parse_kallsyms(line.as_bytes()), &[], None, 30);
    assert_eq!(map.regions.len(), n_before + 1);
}

#[test]
fn a_module_goes_with_all_its_parts() {
    let mut map = KernelMap::default();
    let parts = [0xffff_ffff_c030_0000_u64, 0xffff_ffff_c050_0000].map(Va);
    for start in parts {
        let end = Va(start.0 + 0x1000);
        map.module_came("late", start..end, Vec::new(), 10);
    }
    assert!(parts.iter().all(|at| map.modules_at(*at, 15).len() == 1));
    map.module_went("late", 20);
    assert!(parts.iter().all(|at| map.modules_at(*at, 25).is_empty()));
    assert!(map.modules_there().iter().all(|there| !there));
}

#[test]
fn a_program_that_went_keeps_its_time_when_its_like_goes() {
    let mut map = KernelMap::default();
    let at = Va(0xffff_ffff_c070_0000);
    // Programs of one name, one after the other in the same memory.
    for time in [10, 30] {
        map.came(at, 0x40, "bpf_prog_1", time);
        map.went(at, "bpf_prog_1", time + 10);
    }
    let n_at = [15, 25, 35, 45].map(|time| map.modules_at(at, time).len());
    assert_eq!(n_at, [1, 0, 1, 0]);
    assert_eq!(map.region_at(at, 15).until, 20);
}

#[test]
fn a_kernel_that_hides_its_symbols_still_has_an_image() {
    let mut map = KernelMap::default();
    map.update(parse_kallsyms(b"0000000000000000 T _text\n"), &[], None, 0);
    assert!(map.is_hidden());
    assert_eq!(named(&mut map, 0xffff_ffff_a000_0000, 0).0, "[kernel]");
}

proptest! {
    /// A region that is alone is the answer for all its addresses at all times.
    #[test]
    fn a_region_that_is_alone_is_the_answer(
        came in prop::collection::vec((0u64..40, 1u32..12, 0u64..4), 1..8),
        at in 0u64..50,
    ) {
        const AREA: u64 = 0xffff_ffff_c070_0000;
        let mut map = KernelMap::default();
        for ((start, len, time), nth) in came.into_iter().zip(0..) {
            map.came(Va(AREA + start), len, &format!("bpf_prog_{nth}"), time);
        }
        let region = map.region_at(Va(AREA + at), 2);
        let addresses = region.start.max(Va(AREA + at - at % 4))..region.end.min(Va(AREA + at + 3));
        if map.is_alone(&region, &addresses) {
            for (at, time) in (addresses.start.0..addresses.end.0).flat_map(|at| (0..5).map(move |time| (at, time))) {
                prop_assert_eq!(map.region_at(Va(at), time), region);
            }
        }
    }
}
