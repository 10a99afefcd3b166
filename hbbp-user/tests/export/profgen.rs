//! The unsymbolized profile, read by llvm-profgen, and the ranges of create_llvm_prof.

use std::collections::BTreeMap;
use std::process::Command;

use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};

use crate::program::{Linked, Program, SCALE};
use crate::tool;

type Counts = BTreeMap<(u64, u64), u64>;

/// The sections of a text: the number of lines, and the lines.
fn sections(text: &str, separators: &[&str]) -> Vec<Counts> {
    let mut lines = text.lines();
    let section = |separator: &&str| {
        let n: usize = lines.next().unwrap().parse().unwrap();
        let line = |line: &str| {
            let (ends, count) = line.rsplit_once(':').unwrap();
            let (from, to) = ends.split_once(*separator).unwrap();
            let address = |text: &str| u64::from_str_radix(text, 16).unwrap();
            ((address(from), address(to)), count.parse().unwrap())
        };
        lines.by_ref().take(n).map(line).collect()
    };
    separators.iter().map(section).collect()
}

fn scaled(counts: &Counts, term: impl Fn(u64) -> u64) -> Counts {
    let line = |((from, to), n): (&(u64, u64), &u64)| ((term(*from), term(*to)), n * SCALE);
    counts.iter().map(line).collect()
}

/// The page of the executable segment.
fn base(program: &Program) -> u64 {
    let bytes = std::fs::read(&program.path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let text = file.section_by_name(".text").unwrap();
    text.address() / 4096 * 4096
}

#[test]
fn profgen_and_ranges_exports_of_exact_counts_are_exact() {
    for linked in [Linked::Fixed, Linked::Pie] {
        let program = Program::new("cc", linked);
        let from_base = |at: u64| at - base(&program);
        let unsymbolized = sections(&program.export("profgen"), &["-", "->"]);
        assert_eq!(unsymbolized[0], scaled(&program.trace.ranges, from_base));
        assert_eq!(unsymbolized[1], scaled(&program.trace.branches, from_base));

        let bytes = std::fs::read(&program.path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let offset = |at: u64| {
            let holds = |segment: &object::Segment<'_, '_>| {
                (segment.address()..segment.address() + segment.size()).contains(&at)
            };
            let segment = file.segments().find(holds).unwrap();
            at - segment.address() + segment.file_range().0
        };
        let ranges = sections(&program.export("ranges"), &["-", "", "->"]);
        assert_eq!(ranges[0], scaled(&program.trace.ranges, offset));
        assert!(ranges[1].is_empty());
        assert_eq!(ranges[2], scaled(&program.trace.branches, offset));
    }
}

#[test]
#[ignore = "needs a program that only --all installs"]
fn llvm_profgen_reads_the_export() {
    let Some(profgen) = tool::llvm("llvm-profgen") else {
        return;
    };
    for linked in [Linked::Fixed, Linked::Pie] {
        let program = Program::new("cc", linked);
        program.export("profgen");
        let profile = program.file("from-profgen");
        let mut generate = Command::new(&profgen);
        generate
            .arg("--unsymbolized-profile")
            .arg(program.file("profgen"));
        generate.arg("--format=text").arg("--binary").arg(&program.path);
        generate.arg("--output").arg(&profile);
        let output = tool::run(&mut generate);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("warning") && !said.contains("error"), "{said}");
        let text = std::fs::read_to_string(&profile).unwrap();
        for function in ["collatz", "classify", "fibonacci", "sorted", "work"] {
            assert!(text.contains(&format!("{function}:")), "{text}");
        }
    }
}

#[test]
#[ignore = "needs a program that only --all installs"]
fn llvm_profgen_reads_the_stacks() {
    let Some(profgen) = tool::llvm("llvm-profgen") else {
        return;
    };
    for linked in [Linked::Fixed, Linked::Pie] {
        let program = Program::new("cc", linked);
        program.export("perf-script");
        let unsymbolized = program.file("from-stacks");
        let mut generate = Command::new(&profgen);
        generate
            .arg("--perfscript")
            .arg(program.file("perf-script"))
            .arg("--skip-symbolization");
        generate
            .arg("--binary")
            .arg(&program.path)
            .arg("--output")
            .arg(&unsymbolized);
        let output = tool::run(&mut generate);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("warning") && !said.contains("error"), "{said}");
        let text = std::fs::read_to_string(&unsymbolized).unwrap();
        let from_base =
            |((start, last), n): (&(u64, u64), &u64)| ((start - base(&program), last - base(&program)), *n);
        let expected: Counts = program.trace.ranges.iter().map(from_base).collect();
        assert_eq!(sections(&text, &["-"])[0], expected);
    }
}

#[test]
#[ignore = "needs a program that only --all installs"]
fn create_llvm_prof_reads_the_ranges() {
    let Some(create) = tool::other("create_llvm_prof") else {
        return;
    };
    for linked in [Linked::Fixed, Linked::Pie] {
        let program = Program::new("cc", linked);
        program.export("ranges");
        let profile = program.file("from-ranges");
        let file = |option: &str, name: &std::path::Path| format!("--{option}={}", name.display());
        let mut generate = Command::new(&create);
        generate.args(["--profiler=text", "--format=text"]);
        generate.arg(file("profile", &program.file("ranges")));
        generate
            .arg(file("binary", &program.path))
            .arg(file("out", &profile));
        tool::run(&mut generate);
        // llvm-profgen prints names of inlined functions from memory that it has freed.
        let text = String::from_utf8_lossy(&std::fs::read(&profile).unwrap()).into_owned();
        let bytes = std::fs::read(&program.path).unwrap();
        let parsed = object::File::parse(&*bytes).unwrap();
        for function in ["collatz", "classify", "fibonacci", "sorted", "operation"] {
            let start = parsed.symbol_by_name(function).unwrap().address();
            let to_start = program.trace.branches.iter().filter(|((_, to), _)| *to == start);
            let entries: u64 = to_start.map(|(_, n)| n * SCALE).sum();
            let head = text
                .lines()
                .find(|line| line.starts_with(&format!("{function}:")));
            let head = head.and_then(|line| line.rsplit_once(':')?.1.parse().ok());
            assert_eq!(head, Some(entries), "{function}: {text}");
        }
    }
}
