//! Time by line and by function.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::path::Path;
use std::process::Command;

use kernel_tests::artifacts;
use kernel_tests::outcome::Outcome;
use kernel_tests::reference::per_address;

use super::{Load, Times, assert_shares, exact, reported};
use crate::support;

/// What addr2line knows of an address.
#[derive(Default)]
struct Source {
    /// `FILE:LINE`, the file without its directory, of the innermost function.
    line: Option<String>,
    /// The function that is not inlined.
    function: String,
}

impl Source {
    /// Its line; where there is no debug information, its function.
    fn line(&self) -> String {
        self.line.clone().unwrap_or_else(|| self.function.clone())
    }
}

/// The sources of a program's code that this process executed.
fn sources(program: &Path, outcome: &Outcome, tgid: u32) -> BTreeMap<u64, Source> {
    let reference = outcome.reference().unwrap();
    let mut addresses = String::new();
    for address in per_address(reference.of(tgid)).keys() {
        writeln!(addresses, "{address:#x}").unwrap();
    }
    let list = outcome.directory().join("addresses");
    std::fs::write(&list, addresses).unwrap();
    let mut addr2line = Command::new("addr2line");
    addr2line
        .args(["--addresses", "--inlines", "--functions", "--exe"])
        .arg(program)
        .stdin(File::open(&list).unwrap());
    let output = addr2line.output().unwrap();
    assert!(output.status.success());
    let mut sources: BTreeMap<u64, Source> = BTreeMap::new();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines();
    while let Some(first) = lines.next() {
        if let Some(address) = first.strip_prefix("0x") {
            let address = u64::from_str_radix(address, 16).unwrap();
            sources.insert(address, Source::default());
            continue;
        }
        // A function, the innermost first, and where its line is.
        let source = sources.last_entry().unwrap().into_mut();
        first.clone_into(&mut source.function);
        let line = lines.next().unwrap().split(' ').next().unwrap();
        if source.line.is_none() && !line.contains('?') && !line.ends_with(":0") {
            source.line = Some(without_directory(line));
        }
    }
    sources
}

fn without_directory(line: &str) -> String {
    line.rsplit('/').next().unwrap_or(line).to_owned()
}

#[test]
fn time_of_lines_and_functions_is_theirs() {
    for (source, name, arguments) in [
        ("waits.c", "waits", "divisions 2000000"),
        ("waits.c", "waits", "meeting 2000000"),
        ("heapsort.c", "heapsort", "60000"),
    ] {
        let Some(mut machine) = support::machine("6.12") else {
            return;
        };
        support::add_workload(&mut machine, source);
        let program = artifacts::workload(source).unwrap();
        let command = format!("{name} {arguments}");
        let outcome = Load::new(&command).measure(machine);
        let tgid = *outcome.reference().unwrap().tgids(name).first().unwrap();
        let sources = sources(&program, &outcome, tgid);
        let module = format!("module=*/{name}");
        let binary = program.to_str().unwrap();
        let reported = |group| {
            let words = ["--by", group, "--filter", &module, "--binary", binary];
            reported(&outcome, "user", &words)
        };
        let mut lines = Times::new();
        for (line, samples) in reported("line") {
            *lines.entry(without_directory(&line)).or_default() += samples;
        }
        let of_lines = exact(
            &outcome,
            |owner| owner == tgid,
            |it| Some(sources.get(&it.ip())?.line()),
        );
        assert_shares(&format!("{command}, lines"), &lines, &of_lines);
        let of_functions = exact(
            &outcome,
            |owner| owner == tgid,
            |it| Some(sources.get(&it.ip())?.function.clone()),
        );
        assert_shares(
            &format!("{command}, functions"),
            &reported("function"),
            &of_functions,
        );
    }
}
