//! The kernel's bytes are those that ran: a static key that is switched shows in the snapshots.

use std::collections::BTreeMap;
use std::path::Path;

use hbbp_user::snapshot::{ModuleKind, Snapshot, file};

use super::load::Datagrams;
use super::{BpfStats, kernel, number, program, resolved, run};

fn record(path: &Path) -> Snapshot {
    let path = path.to_str().unwrap();
    let output = run(&["record", "--duration", "2", "--period", "200003", "-o", path]);
    assert!(output.status.success(), "{output:?}");
    file::read(Path::new(path)).unwrap()
}

/// Every byte of kernel text in a snapshot, by address; the first generation of each.
fn kernel_bytes(snapshot: &Snapshot) -> BTreeMap<u64, u8> {
    let mut bytes = BTreeMap::new();
    for text in &snapshot.text {
        let module = &snapshot.modules[text.module.0 as usize];
        if module.kind == ModuleKind::Kernel {
            for (at, byte) in (text.start.0..).zip(&text.bytes) {
                bytes.entry(at).or_insert(*byte);
            }
        }
    }
    bytes
}

#[test]
fn two_runs_around_a_switched_key_differ_at_the_patched_sites() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let _datagrams = Datagrams::start();
    let off = BpfStats::set("0");
    let before = kernel_bytes(&record(&folder.path().join("off")));
    drop(off);
    let _on = BpfStats::set("1");
    let after = kernel_bytes(&record(&folder.path().join("on")));
    let differ: Vec<(u64, u8, u8)> = before
        .iter()
        .filter_map(|(at, old)| Some((*at, *old, *after.get(at)?)))
        .filter(|(_, old, new)| old != new)
        .collect();
    println!("{} of {} bytes differ: {differ:x?}", differ.len(), before.len());
    assert!(
        !differ.is_empty(),
        "the filter of the socket is hot, and the key stands in its path"
    );
    // A static key is a jump of 2 or 5 bytes or a NOP of that length (arch/x86/kernel/jump_label.c).
    let first_bytes = [(0x0f, 0xe9), (0x66, 0xeb), (0xe9, 0x0f), (0xeb, 0x66)];
    assert!(
        differ
            .iter()
            .any(|(_, old, new)| first_bytes.contains(&(*old, *new))),
        "{differ:x?}"
    );
}

#[test]
fn a_run_across_the_switch_keeps_both_sides() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("across");
    let path = path.to_str().unwrap();
    let _datagrams = Datagrams::start();
    let _off = BpfStats::set("0");
    let mut recorder = program(&["record", "--duration", "7", "--period", "200003", "-o", path])
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(4500));
    let _on = BpfStats::set("1");
    assert!(recorder.wait().unwrap().success());
    let snapshot = file::read(Path::new(path)).unwrap();
    let generations = snapshot.text.windows(2).filter(|pair| {
        let [old, new] = pair else { return false };
        (old.module, old.start) == (new.module, new.start) && old.bytes != new.bytes
    });
    let n = generations.count();
    println!("{n} stretches of kernel text have two generations");
    assert!(0 < n);
    let report = super::report_of(path);
    let (in_mix, counted) = resolved(&report, "kernel");
    // One of the processors has nothing to do here: a sample of its halt is no instruction that could be decoded.
    let executed = counted - super::unresolved(&report, "ip.halted", "kernel");
    assert!(
        0.995 * executed as f64 <= in_mix as f64,
        "{in_mix} of {executed}: {}",
        report["accounting"]
    );
    assert!(0 < number(&report["accounting"]["counted"]["kernel"]));
}
