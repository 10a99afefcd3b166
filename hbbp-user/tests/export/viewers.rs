//! Exports of the whole profile, read by their viewers; all sums are the same.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::program::{Linked, Program, SCALE};
use crate::tool;

/// Executed instructions of a program, in thousandths.
fn executions(program: &Program) -> u64 {
    program.trace.executions.values().sum::<u64>() * SCALE
}

#[test]
fn collapsed_stacks_add_up_to_all_executions() {
    let program = Program::new("cc", Linked::Pie);
    let text = program.export("collapsed");
    let mut rings = BTreeMap::<&str, u64>::new();
    for line in text.lines() {
        let (frames, count) = line.rsplit_once(' ').unwrap();
        assert_eq!(frames.split(';').count(), 4, "{line}");
        *rings.entry(frames.split(';').next().unwrap()).or_default() += count.parse::<u64>().unwrap();
    }
    assert_eq!(rings, BTreeMap::from([("user", executions(&program))]));
}

#[test]
fn callgrind_annotate_reads_the_export() {
    let Some(annotate) = tool::other("callgrind_annotate") else {
        return;
    };
    let program = Program::new("cc", Linked::Fixed);
    program.export("callgrind");
    let mut annotate = Command::new(annotate);
    annotate.arg("--threshold=100").arg(program.file("callgrind"));
    let output = tool::run(&mut annotate);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = |line: &str| {
        let first = line.split_whitespace().next().unwrap_or_default();
        first.replace(',', "").parse::<u64>().ok()
    };
    let total = text
        .lines()
        .find(|line| line.contains("PROGRAM TOTALS"))
        .and_then(number);
    assert_eq!(total, Some(executions(&program)), "{text}");
    let fibonacci = text.lines().find(|line| line.contains("program.c:fibonacci"));
    assert!(fibonacci.and_then(number).is_some_and(|n| 0 < n), "{text}");
}

#[test]
#[ignore = "needs a program that only --all installs"]
fn pprof_schema_reads_the_export() {
    let program = Program::new("cc", Linked::Fixed);
    program.export("pprof");
    let Some(read) = tool::python("read_pprof.py", &[&program.file("pprof")]) else {
        return;
    };
    let read: Value = serde_json::from_str(&read).unwrap();
    assert_eq!(read["sums"]["relative_executions"], executions(&program));
    assert_eq!(read["rings"]["user"], executions(&program));
    let functions = read["functions"].as_array().unwrap();
    assert!(functions.iter().any(|name| name == "fibonacci"), "{functions:?}");
}

#[test]
#[ignore = "needs a program that only --all installs"]
fn duckdb_and_pyarrow_read_the_table() {
    let program = Program::new("cc", Linked::Pie);
    program.export("parquet");
    program.export("arrow");
    let files = [&program.file("parquet"), &program.file("arrow")];
    let Some(read) = tool::python("read_table.py", &[files[0], files[1]]) else {
        return;
    };
    let read: Value = serde_json::from_str(&read).unwrap();
    assert_eq!(read["rows"], program.trace.executions.len());
    let found = read["rings"]["user"][0].as_f64().unwrap();
    let expected = executions(&program) as f64 / SCALE as f64;
    assert!((found - expected).abs() < 1e-3, "{found} {expected}");
}

#[test]
fn firefox_profile_has_all_executions() {
    let program = Program::new("cc", Linked::Pie);
    let read: Value = serde_json::from_str(&program.export("firefox")).unwrap();
    let threads = read["threads"].as_array().unwrap();
    let weights = threads
        .iter()
        .flat_map(|thread| thread["samples"]["weight"].as_array().unwrap());
    let sum: u64 = weights.map(|weight| weight.as_u64().unwrap()).sum();
    assert_eq!(sum, executions(&program));
}

#[test]
#[ignore = "needs a program that only --all installs"]
fn blocks_add_up_to_all_executions_and_llvm_mca_reads_them() {
    let program = Program::new("cc", Linked::Fixed);
    let text = program.export("blocks");
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let mut sum = 0;
    for row in reader.records() {
        let row = row.unwrap();
        let bytes: Vec<u8> = row[0]
            .as_bytes()
            .chunks(2)
            .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap())
            .collect();
        let decoder = iced_x86::Decoder::new(64, &bytes, iced_x86::DecoderOptions::NONE);
        sum += decoder.into_iter().count() as u64 * row[1].parse::<u64>().unwrap();
    }
    assert_eq!(sum, executions(&program));

    let Some(mca) = tool::llvm("llvm-mca") else { return };
    program.export("mca");
    let mut analyse = Command::new(mca);
    let said = tool::said(
        analyse
            .args(["-mcpu=skylake", "-iterations=10"])
            .arg(program.file("mca")),
    );
    assert!(20 < said.matches("Code Region - b").count(), "{said}");
}
