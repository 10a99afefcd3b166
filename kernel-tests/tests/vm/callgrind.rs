//! A second opinion on the reference: valgrind's callgrind counts the same static programs on the host.
//!
//! Callgrind counts every iteration of a REP instruction, the reference the instruction once; addresses of
//! such instructions are left out of the comparison. The programs start in like environments, but the C
//! library's start-up looks at the processor and the kernel, and differs by some ten thousand instructions:
//! that is in the 0.01 %.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use iced_x86::{Decoder, DecoderOptions};
use kernel_tests::reference::{self, Reference};
use kernel_tests::{artifacts, host};

use crate::support;

/// Source, arguments, name of the program.
pub(crate) const PROGRAMS: [(&str, &[&str], &str); 3] = [
    ("heapsort.c", &["400000"], "heapsort"),
    ("hello_u.c", &["20000", "100"], "hello_u"),
    ("virtual.cc", &["150000"], "virtual"),
];
/// The share of instructions by which the two may differ.
const TOLERANCE: f64 = 0.0001;
/// Static programs are linked to 4 MiB; code of the child of PID 1 before its exec lies elsewhere.
const PROGRAM_END: u64 = 1 << 32;

/// Executions by address, from a callgrind file made with `--dump-instr=yes` and without compression.
fn parse_callgrind(text: &str) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    let mut of_a_call = false;
    for line in text.lines() {
        // The line after `calls=` is the inclusive cost of the call, which the callee's lines have too.
        if std::mem::take(&mut of_a_call) {
            continue;
        }
        if line.starts_with("calls=") {
            of_a_call = true;
            continue;
        }
        let mut words = line.split_whitespace();
        let (Some(address), Some(_line), Some(count)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let Some(address) = address
            .strip_prefix("0x")
            .and_then(|hex| u64::from_str_radix(hex, 16).ok())
        else {
            continue;
        };
        *counts.entry(address).or_insert(0) += count.parse::<u64>().unwrap();
    }
    counts
}

/// Callgrind's output for a program, without compression, in an environment like that of the guest.
pub(crate) fn run(program: &std::path::Path, arguments: &[&str]) -> String {
    let name = program.file_name().unwrap().to_string_lossy();
    let test = std::thread::current()
        .name()
        .unwrap_or_default()
        .replace(':', ".");
    let out = host::work_directory()
        .unwrap()
        .join(format!("callgrind.{name}.{test}"));
    let mut valgrind = Command::new("valgrind");
    valgrind.args([
        "--tool=callgrind",
        "--dump-instr=yes",
        "--compress-pos=no",
        "--compress-strings=no",
    ]);
    valgrind
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args(arguments);
    host::run(valgrind.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/")).unwrap();
    std::fs::read_to_string(out).unwrap()
}

/// Addresses of REP instructions.
fn repeated(reference: &Reference) -> BTreeSet<u64> {
    let blocks = reference.blocks.iter();
    let instructions =
        blocks.flat_map(|block| Decoder::with_ip(64, &block.bytes, block.start, DecoderOptions::NONE));
    let repeated = instructions
        .filter(|it| it.is_string_instruction() && (it.has_rep_prefix() || it.has_repne_prefix()));
    repeated.map(|instruction| instruction.ip()).collect()
}

#[test]
#[ignore = "runs in --all"]
fn three_programs_count_as_in_callgrind() {
    for (source, arguments, name) in PROGRAMS {
        let Some(mut machine) = support::machine("6.12") else {
            return;
        };
        let program = artifacts::workload(source).unwrap();
        support::add_workload(&mut machine, source);
        let path = format!("/bin/{name}");
        let command: Vec<&str> = [path.as_str()].iter().chain(arguments).copied().collect();
        let outcome = machine.run(&command).unwrap();
        outcome.stdout().unwrap();
        let reference = outcome.reference().unwrap();
        let tgid = *reference
            .tgids(name)
            .first()
            .unwrap_or_else(|| panic!("{:?}", reference.processes));
        let repeated = repeated(&reference);
        let compared = |address: &u64| *address < PROGRAM_END && !repeated.contains(address);
        let mut ours = reference::per_address(reference.of(tgid));
        let mut theirs = parse_callgrind(&run(&program, arguments));
        ours.retain(|address, _| compared(address));
        theirs.retain(|address, _| compared(address));
        let total = |counts: &BTreeMap<u64, u64>| counts.values().sum::<u64>();
        let addresses: BTreeSet<&u64> = ours.keys().chain(theirs.keys()).collect();
        let count = |counts: &BTreeMap<u64, u64>, address| counts.get(address).copied().unwrap_or(0);
        let apart: u64 = addresses
            .iter()
            .map(|a| count(&ours, a).abs_diff(count(&theirs, a)))
            .sum();
        let (ours, theirs) = (total(&ours), total(&theirs));
        let share = |difference: u64| difference as f64 / theirs as f64;
        let (totals, places) = (share(ours.abs_diff(theirs)), share(apart));
        println!(
            "{name}: {ours} here, {theirs} by callgrind: totals differ by {totals:.6}, places by {places:.6}"
        );
        assert!(
            totals < TOLERANCE && places < TOLERANCE,
            "{name}: {totals} {places}"
        );
    }
}

#[test]
fn callgrind_file_is_parsed() {
    let text = "positions: instr line\nevents: Ir\nfn=main\n0x401000 7 3\ncalls=1 0x402000\n0x401000 7 100\n0x401004 8 1\n\ntotals: 4\n";
    assert_eq!(
        parse_callgrind(text),
        BTreeMap::from([(0x401000, 3), (0x401004, 1)])
    );
}
