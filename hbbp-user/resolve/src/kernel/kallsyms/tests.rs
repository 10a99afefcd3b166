//! A small table of kernel symbols: names, lengths, aliases, marks, and lines that are none.

use super::*;

const TABLE: &str = "\
ffffffff81000000 T srso_alias_untrain_ret
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000000 T __pi__text
ffffffff81000040 t local_one
ffffffff81000040 t __local_one
ffffffff81000100 T _etext
ffffffff82000000 D jiffies
ffffffff82000100 D __tracepoint_irq_exit
ffffffff82000180 D __tracepoint_irq_entry
ffffffff82000200 D __start___jump_table
ffffffff82000240 D __stop___jump_table
ffffffff82000300 r __tracepoint_ptr_irq_exit
ffffffff83000000 B _end
ffffffffc0201000 t ftrace_trampoline\t[__builtin__ftrace]
ffffffffc0300000 t nf_hook\t[nf_tables]
ffffffffc0300080 t nf_other\t[nf_tables]
ffffffffc0400000 t bpf_prog_6deef7357e7b4530\t[bpf]
0000000000001000 A fixed_percpu_data
";

#[test]
fn names_lengths_and_tags() {
    let table = parse_kallsyms(TABLE.as_bytes());
    let at = |va| table.at(Va(va)).map(|s| (s.start.0, s.len, s.name, s.tag));
    assert_eq!(
        at(0xffff_ffff_8100_0010),
        Some((0xffff_ffff_8100_0000, 0x40, "srso_alias_untrain_ret", None))
    );
    assert_eq!(
        at(0xffff_ffff_8100_0041),
        Some((0xffff_ffff_8100_0040, 0xc0, "local_one", None))
    );
    assert_eq!(at(0xffff_ffff_8200_0000), None, "data is not a function");
    assert_eq!(
        at(0xffff_ffff_c030_0080),
        Some((0xffff_ffff_c030_0080, 0xf80, "nf_other", Some("nf_tables")))
    );
    assert_eq!(at(0xffff_ffff_c030_1080), None);
    assert_eq!(
        at(0xffff_ffff_c020_1ff0).map(|s| s.3),
        Some(Some("__builtin__ftrace"))
    );
    assert_eq!(at(0xffff_ffff_c040_0000).map(|s| s.3), Some(Some("bpf")));
    let range = Some((Va(0xffff_ffff_8100_0000), Va(0xffff_ffff_8300_0000)));
    assert_eq!(table.image.range(), range);
    let tracepoints = Some((Va(0xffff_ffff_8200_0100), Va(0xffff_ffff_8200_0180)));
    assert_eq!(table.image.tracepoints, tracepoints);
    let jump_table = (table.image.jump_table, table.image.jump_table_end);
    let expected = [0xffff_ffff_8200_0200, 0xffff_ffff_8200_0240].map(|at| Some(Va(at)));
    assert_eq!(jump_table, expected.into());
    assert!(!table.hidden);
}

#[test]
fn marks_of_data() {
    let names = ["jiffies", "nf_hook", "_etext"];
    let found = [
        Some(Va(0xffff_ffff_8200_0000)),
        None,
        Some(Va(0xffff_ffff_8100_0100)),
    ];
    assert_eq!(parse_marks(TABLE.as_bytes(), names), found);
}

#[test]
fn sizes_are_taken_where_they_are_given() {
    let table = parse_kallsyms(b"ffffffff8b013d20 409 t pt_buffer_setup_aux\t[pt]\n");
    let symbol = table.at(Va(0xffff_ffff_8b01_3d20)).expect("one symbol");
    assert_eq!(
        (symbol.len, symbol.name, symbol.tag),
        (0x409, "pt_buffer_setup_aux", Some("pt"))
    );
}

#[test]
fn stated_lengths_are_those_the_kernel_wrote() {
    let mut table = parse_kallsyms(TABLE.as_bytes());
    let program = Va(0xffff_ffff_c040_0000);
    let inside = Va(program.0 + 5000);
    assert_eq!(table.at(inside), None, "a guess ends with the page");
    let image = Va(0xffff_ffff_8100_0040);
    table.tell_lengths(&[(program, 5408), (image, 1), (Va(program.0 + 1), 9)]);
    assert_eq!(table.at(inside).map(|s| (s.start, s.len)), Some((program, 5408)));
    assert_eq!(table.at(image).map(|s| s.len), Some(0xc0));
}

#[test]
fn hidden_addresses_are_recognised() {
    let table = parse_kallsyms(b"0000000000000000 T _stext\n0000000000000000 T do_idle\n");
    assert!(table.hidden);
    assert_eq!(table.iter().count(), 0);
    assert!(!parse_kallsyms(b"").hidden);
}

#[test]
fn the_order_of_aliases_does_not_matter() {
    let one = parse_kallsyms(b"ffffffff81000000 T __x64_sys_a\nffffffff81000000 T x64_a\n");
    let two = parse_kallsyms(b"ffffffff81000000 T x64_a\nffffffff81000000 T __x64_sys_a\n");
    assert_eq!(one.iter().next(), two.iter().next());
    assert_eq!(one.iter().next().map(|s| s.name), Some("x64_a"));
}

#[test]
fn garbage_is_skipped() {
    for garbage in [
        &b"\xff\xfe\x00"[..],
        b"zz T x",
        b"1",
        b"1 T",
        b"1 TT name",
        b"1 2 3 4 5 6",
        b"\n\n",
    ] {
        assert_eq!(parse_kallsyms(garbage).iter().count(), 0, "{garbage:?}");
    }
    assert_eq!(
        parse_kallsyms(b"1 T \xff").iter().count(),
        1,
        "a name may be anything"
    );
    let top = parse_kallsyms(b"ffffffffffffffff T last\nffffffffffffffff t alias\n");
    assert_eq!(top.iter().count(), 1);
    assert!(top.at(Va(u64::MAX)).is_some());
}
