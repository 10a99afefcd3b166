//! BOLT's pre-aggregated profile, read by BOLT.

use std::collections::BTreeMap;
use std::process::Command;

use crate::program::{Linked, Program, SCALE};
use crate::tool;

/// Counts of the lines that begin with one of these, by two addresses.
fn counts(text: &str, kinds: &[&str]) -> BTreeMap<(u64, u64), u64> {
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        if kinds.contains(&fields[0]) {
            let address = |text: &str| u64::from_str_radix(text, 16).unwrap();
            let ends = (address(fields[1]), address(fields[2]));
            *counts.entry(ends).or_default() += fields[3].parse::<u64>().unwrap();
        }
    }
    counts
}

fn scaled(counts: &BTreeMap<(u64, u64), u64>) -> BTreeMap<(u64, u64), u64> {
    counts.iter().map(|(ends, n)| (*ends, n * SCALE)).collect()
}

#[test]
fn bolt_export_of_exact_counts_is_exact() {
    for linked in [Linked::Fixed, Linked::Pie] {
        let program = Program::new("cc", linked);
        let text = program.export("bolt");
        assert_eq!(counts(&text, &["F", "r"]), scaled(&program.trace.ranges));
        assert_eq!(counts(&text, &["B"]), scaled(&program.trace.branches));
        let returns: u64 = counts(&text, &["r"]).values().sum();
        assert!(0 < returns && returns < program.trace.n_ranges() * SCALE);
    }
}

#[test]
#[ignore = "needs a program that only --all installs"]
fn bolt_reads_the_export_and_optimizes_the_program() {
    let (Some(perf2bolt), Some(bolt)) = (tool::llvm("perf2bolt"), tool::llvm("llvm-bolt")) else {
        return;
    };
    for linked in [Linked::Fixed, Linked::Pie] {
        let program = Program::new("cc", linked);
        program.export("bolt");
        let (profile, fdata) = (program.file("bolt"), program.file("fdata"));
        let mut aggregate = Command::new(&perf2bolt);
        aggregate
            .args(["--pa", "-p"])
            .arg(&profile)
            .arg("-o")
            .arg(&fdata)
            .arg(&program.path);
        let said = tool::said(&mut aggregate);
        for expected in [
            "traces mismatching disassembled function contents: 0",
            "out of range traces involving unknown regions: 0",
        ] {
            assert!(said.contains(expected), "{said}");
        }
        let optimized = program.file("optimized");
        let mut optimize = Command::new(&bolt);
        optimize
            .arg(&program.path)
            .arg("--data")
            .arg(&fdata)
            .arg("-o")
            .arg(&optimized);
        tool::run(optimize.args(["--reorder-blocks=ext-tsp", "--reorder-functions=cdsort"]));
        // The same work, laid out so that fewer branches are taken.
        let after = crate::step::trace(&optimized);
        let taken = |trace: &crate::step::Trace| trace.branches.values().sum::<u64>();
        assert!(
            taken(&after) < taken(&program.trace),
            "{} {}",
            taken(&after),
            taken(&program.trace)
        );
    }
}
