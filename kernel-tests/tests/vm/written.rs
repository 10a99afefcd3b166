//! Kernel text that is not in the kernel's image: a program that the BPF compiler wrote, with the bytes of its dump, and
//! a module, down to its source lines.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use iced_x86::{Decoder, DecoderOptions};
use kernel_tests::artifacts;
use kernel_tests::kernel::Kernel;
use serde_json::Value;

use crate::support;

const SCRIPT: &str = "set -e
RECORD='hbbp-sys record -c 10007 --branch-period 1009'
$RECORD -o /out/bpf -- bpf_hot 1 /out/dump
$RECORD -o /out/hello -- hello_u 20000 2 kernel > /dev/null";

/// The rows of a report on the host: key and executions in the kernel.
fn rows(hbbp_sys: &Path, profile: &Path, more: &[&str]) -> Vec<(Vec<String>, f64)> {
    let mut command = Command::new(hbbp_sys);
    command
        .arg("report")
        .arg(profile)
        .args(["--format", "json", "--top", "all"])
        .args(more);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let key = |row: &Value| {
        let parts = row["key"].as_array().unwrap().iter();
        parts.map(|part| part.as_str().unwrap().to_owned()).collect()
    };
    let rows = report["mix"]["rows"].as_array().unwrap().iter();
    rows.map(|row| (key(row), row["kernel"]["amount"].as_f64().unwrap()))
        .collect()
}

/// Occurrences of each mnemonic in code.
fn mnemonics(code: &[u8]) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    for instruction in Decoder::new(64, code, DecoderOptions::NONE).iter() {
        *found
            .entry(format!("{:?}", instruction.mnemonic()).to_uppercase())
            .or_default() += 1;
    }
    found
}

fn written_text_is_named(series: &str) {
    let Some(machine) = support::machine(series) else {
        return;
    };
    let kernel = Kernel::get(series).unwrap();
    let mut machine = machine.cpus(1);
    machine.files().hbbp_sys().unwrap();
    let program = artifacts::hbbp_sys().unwrap();
    support::add_workload(&mut machine, "bpf_hot.c");
    support::add_workload(&mut machine, "hello_u.c");
    let hello = artifacts::module("workloads/hello", "hello", &kernel).unwrap();
    machine.module(&hello).unwrap();
    let outcome = machine.run(&["/bin/busybox", "sh", "-c", SCRIPT]).unwrap();
    outcome.stdout().unwrap();
    let file = |name: &str| {
        let path = outcome.directory().join(name);
        fs::write(&path, &outcome.files[name]).unwrap();
        path
    };

    // The program is straight-line code after its first branch: each of its instructions was executed as often as the
    // others.
    let (profile, dump) = (file("bpf"), &outcome.files["dump"]);
    let rows_of_program: BTreeMap<String, f64> = rows(&program, &profile, &["--by", "function,mnemonic"])
        .into_iter()
        .filter(|(key, _)| key[0].starts_with("bpf_prog_") && key[0].ends_with("_hbbp_hot"))
        .map(|(key, amount)| (key[1].clone(), amount))
        .collect();
    let expected = mnemonics(dump);
    let runs = rows_of_program["IMUL"] / f64::from(expected["IMUL"]);
    println!("{series}: the program ran {runs:.0} times: {rows_of_program:?}; in its dump {expected:?}");
    assert!(100.0 < runs);
    for (mnemonic, n) in expected.iter().filter(|(_, n)| 100 < **n) {
        let each = rows_of_program[mnemonic] / f64::from(*n);
        assert!((each / runs - 1.0).abs() < 0.01, "{mnemonic}: {each} and {runs}");
    }
    // What was executed and is not in the dump would be text that was misread.
    let foreign = rows_of_program
        .keys()
        .find(|mnemonic| !expected.contains_key(*mnemonic));
    assert_eq!(foreign, None);

    // The module's loop is inlined from a header.
    let profile = file("hello");
    let named = ["--binary", hello.to_str().unwrap()];
    let by = |dimension| rows(&program, &profile, &[&["--by", dimension][..], &named].concat());
    let sum = |rows: &[(Vec<String>, f64)], is_it: &dyn Fn(&str) -> bool| {
        rows.iter()
            .filter(|(key, _)| is_it(&key[0]))
            .map(|(_, amount)| amount)
            .sum::<f64>()
    };
    let (lines, inlined, functions) = (by("line"), by("inlined"), by("function"));
    let in_function = sum(&functions, &|key| key == "hello_k");
    let in_header = sum(&lines, &|key| key.contains("hello/prime.h:"));
    let in_inlined = sum(&inlined, &|key| key == "primes_below");
    println!("{series}: hello_k {in_function:.0}, prime.h {in_header:.0}, primes_below {in_inlined:.0}");
    assert!(1e6 < in_function);
    // The same amounts are summed in another order.
    let all = in_function * (1.0 + 1e-9);
    assert!(0.99 * in_function < in_header && in_header <= all, "{lines:?}");
    assert!(
        0.99 * in_function < in_inlined && in_inlined <= all,
        "{inlined:?}"
    );
}

#[test]
#[ignore = "runs in --all"]
fn programs_and_modules_are_named_on_6_1() {
    written_text_is_named("6.1");
}

#[test]
fn programs_and_modules_are_named_on_6_12() {
    written_text_is_named("6.12");
}
