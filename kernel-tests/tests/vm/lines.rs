//! Executed instructions by source line, against Callgrind's of the same static programs on the host.
//!
//! Where there is no debug information, as in the C library, both sides go by functions.

use std::collections::{BTreeMap, BTreeSet};

use kernel_tests::accuracy::{Measured, Setup, measure_command};
use kernel_tests::artifacts;

use crate::callgrind::{self, PROGRAMS};
use crate::support;

/// The average weighted error that is allowed.
const ERROR: f64 = 0.03;

/// Instructions by `FILE:LINE`, files without their directories, and by function.
type Lines = BTreeMap<String, f64>;

fn without_directory(line: &str) -> String {
    line.rsplit('/').next().unwrap_or(line).to_owned()
}

/// The lines of a file of Callgrind's with positions `instr line` and without compression.
fn read_callgrind(text: &str) -> Lines {
    let mut lines = Lines::new();
    let (mut file, mut function, mut is_of_call) = ("", "", false);
    for line in text.lines() {
        // The line after `calls=` is the inclusive cost of the call, which the callee's lines have too.
        if std::mem::take(&mut is_of_call) {
            continue;
        }
        match line.split_once('=') {
            Some(("fl" | "fi" | "fe", name)) => file = name,
            Some(("fn", name)) => function = name,
            Some(("calls", _)) => is_of_call = true,
            _ => {}
        }
        let mut words = line.split_whitespace();
        let (Some(address), Some(number), Some(count)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        if address.starts_with("0x") {
            let key = match number {
                "0" => function.to_owned(),
                number => without_directory(&format!("{file}:{number}")),
            };
            *lines.entry(key).or_default() += count.parse::<f64>().unwrap();
        }
    }
    lines
}

/// The same by this tool, user code of the program alone.
fn read_report(measured: &Measured, name: &str, program: &str) -> Lines {
    let module = format!("module=*/{name}");
    let words = [
        "--rows", "line", "--filter", &module, "--binary", program, "--top", "all",
    ];
    let report = support::printed(measured, "report", &words);
    let mut lines = Lines::new();
    for row in report["mix"]["rows"].as_array().unwrap() {
        let key = without_directory(row["key"][0].as_str().unwrap());
        *lines.entry(key).or_default() += row["user"]["amount"].as_f64().unwrap();
    }
    lines
}

fn measured(source: &str, name: &str, arguments: &[&str], hardware_profile: &str) -> Option<Measured> {
    let machine = support::machine("6.12")?;
    let setup = Setup::new(support::hardware_profile(hardware_profile));
    let mut machine = setup.prepare(machine);
    support::add_workload(&mut machine, source);
    let path = format!("/bin/{name}");
    let command: Vec<&str> = [path.as_str()].iter().chain(arguments).copied().collect();
    Some(measure_command(machine, &command, &setup).unwrap())
}

/// The average weighted error of the HBBP paper (section VI.B), with lines instead of mnemonics; a line that one side
/// alone has is an error as well.
fn error(ours: &Lines, theirs: &Lines) -> f64 {
    let of = |lines: &Lines, line: &str| lines.get(line).copied().unwrap_or(0.0);
    let all: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let total: f64 = theirs.values().sum();
    let mut off: Vec<(f64, &String)> = all
        .into_iter()
        .map(|line| ((of(ours, line) - of(theirs, line)).abs() / total, line))
        .collect();
    off.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (part, line) in off.iter().take(4) {
        let (ours, theirs) = (of(ours, line), of(theirs, line));
        println!(
            "  {line}: {ours:.0}, by callgrind {theirs:.0}, {:.3} % of all",
            100.0 * part
        );
    }
    off.iter().map(|(part, _)| part).sum()
}

#[test]
#[ignore = "runs in --all"]
fn three_programs_have_callgrinds_counts_by_line() {
    for (source, arguments, name) in PROGRAMS {
        let program = artifacts::workload(source).unwrap();
        let theirs = read_callgrind(&callgrind::run(&program, arguments));
        let with_lines = theirs
            .iter()
            .filter(|(line, _)| line.contains(':'))
            .map(|(_, n)| n);
        let with_lines = with_lines.sum::<f64>() / theirs.values().sum::<f64>();
        for hardware_profile in ["ideal", "ivb"] {
            let Some(measured) = measured(source, name, arguments, hardware_profile) else {
                return;
            };
            let ours = read_report(&measured, name, program.to_str().unwrap());
            let error = error(&ours, &theirs);
            println!(
                "{name} {hardware_profile}: {} lines and functions, {} by callgrind ({:.2} % of instructions on lines); \
                 average weighted error {:.2} %",
                ours.len(),
                theirs.len(),
                100.0 * with_lines,
                100.0 * error
            );
            assert!(error <= ERROR, "{name} {hardware_profile}: {error}");
        }
    }
}

#[test]
#[ignore = "runs in --all"]
fn callgrinds_lines_are_those_of_the_file_that_was_inlined() {
    let text = "positions: instr line\nevents: Ir\nfl=/a/m.c\nfn=main\n0x401000 7 3\nfi=/b/v.h\n0x401004 2 5\nfe=/a/m.c\n\
                0x401008 7 1\ncfn=f\ncalls=1 0x402000\n0x401009 7 100\n\nfl=???\nfn=f\n0x402000 0 9\n";
    let lines = [("m.c:7", 4.0), ("v.h:2", 5.0), ("f", 9.0)];
    assert_eq!(
        read_callgrind(text),
        lines.map(|(line, n)| (line.to_owned(), n)).into()
    );
}
