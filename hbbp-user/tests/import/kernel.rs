//! Kernel stacks: their text comes from perf's copy of it.

use crate::elf::{LOOP, Program, elf, kcore};
use crate::run::{Folder, export, hbbp, lines};
use crate::writer::{File, mmap2, record, stack, string, turns, words};
use hbbp_model::addr::Va;

const TEXT: u64 = 0xffff_ffff_8100_0000;
const MODULE: u64 = 0xffff_ffff_c000_0000;

fn kernel_mmap(range: (u64, u64), offset: u64, name: &str) -> Vec<u8> {
    let mut body = words(&[u64::from(u32::MAX), range.0, range.1, offset]);
    body.extend(name.as_bytes());
    body.resize(body.len() / 8 * 8 + 8, 0);
    body.extend(words(&[0, 0, 77]));
    record(1, 1, &body)
}

/// Kernel stacks of two processes, one of them with a system call of a user program in it.
fn recording() -> File {
    let mut entered = turns(Va(TEXT + 0x100));
    entered.push((0x40_1002, TEXT + 0x105, 0));
    entered.push((0x40_1002, 0x40_1000, 0));
    let records = vec![
        kernel_mmap((TEXT, 0x20_0000), TEXT, "[kernel.kallsyms]_text"),
        kernel_mmap((MODULE, 0x1000), 0, "/lib/modules/6.1/kernel/net/nf-x.ko"),
        mmap2(5, 1, (0x40_0000, 0x2000), 0, "/bin/user"),
        stack(5, 3, &entered),
        stack(0, 4, &turns(Va(TEXT + 0x100))),
    ];
    File {
        features: vec![(4, string("6.1.0")), (6, string("x86_64"))],
        ..File::new(records)
    }
}

fn text() -> Vec<u8> {
    let mut text = vec![0x90; 0x2000];
    text[0x100..0x100 + LOOP.len()].copy_from_slice(LOOP);
    text
}

const KALLSYMS: &str = "ffffffff81000000 T _text\nffffffff81000000 T _stext\nffffffff81000100 t turns\n\
                        ffffffff81000105 t turns_inner_label\nffffffff81000110 t callee\nffffffff81000111 t rest\n\
                        ffffffff81002000 T _etext\nffffffff81200000 B _end\n";

const EXPECTED: [&str; 5] = [
    "S ffffffff81000100 ffffffff81000107 2",
    "S ffffffff81000105 ffffffff81000107 3",
    "S ffffffff81000105 ffffffff81000109 2",
    "S ffffffff8100010e ffffffff8100010e 2",
    "S ffffffff81000110 ffffffff81000110 2",
];

#[test]
fn kcore_next_to_the_recording_or_named() {
    let folder = Folder::new();
    folder.write("rec/data", recording().bytes());
    for (name, bytes) in [
        ("kcore", kcore(TEXT, &text())),
        ("kallsyms", KALLSYMS.into()),
        ("modules", Vec::new()),
    ] {
        folder.write(&format!("rec/kcore_dir/{name}"), bytes);
    }
    let rec = folder.path().join("rec");
    let streams = export(&rec, &["--format", "streams"]);
    assert_eq!(lines(&streams, "S "), EXPECTED);
    assert_eq!(lines(&streams, "M "), ["M [kernel] -"]);
    let copy = rec.join("kcore_dir");
    let named = export(
        &rec.join("data"),
        &["--kcore", copy.to_str().unwrap(), "--format", "streams"],
    );
    assert_eq!(named, streams);
    let report = hbbp(&["report", rec.to_str().unwrap(), "--by", "function"]);
    assert!(
        report.out.contains("turns_inner_label") && report.out.contains("callee"),
        "{}",
        report.out
    );
}

#[test]
fn vmlinux_runs_elsewhere_than_it_was_linked() {
    let folder = Folder::new();
    let linked = Program {
        code: &text(),
        offset: 0x1000,
        address: 0xffff_ffff_8000_0000,
        build_id: &[],
    };
    let vmlinux = folder.write("vmlinux", elf(&linked));
    let path = folder.write("perf.data", recording().bytes());
    let streams = export(
        &path,
        &["--vmlinux", vmlinux.to_str().unwrap(), "--format", "streams"],
    );
    assert_eq!(lines(&streams, "S "), EXPECTED);
}

#[test]
fn without_its_text_kernel_code_is_counted_as_unresolved() {
    let folder = Folder::new();
    let path = folder.write("perf.data", recording().bytes());
    let streams = export(&path, &["--format", "streams"]);
    assert_eq!(lines(&streams, "S "), [""; 0]);
    // Eleven in the kernel, and one of the user program, which is not there either.
    assert_eq!(lines(&streams, "# "), ["# discarded stream.no_text 12"]);
}
