//! LLVM's sample profile: as llvm-profgen makes it of the same counts, and read by llvm-profdata and clang.

use std::collections::BTreeMap;
use std::process::Command;

use crate::program::{Linked, Program};
use crate::tool;

/// Lines of a sample profile by the functions that they are in: count and calls of lines, head of functions. Totals are left
/// out.
fn lines(text: &str) -> BTreeMap<String, String> {
    let mut lines = BTreeMap::new();
    let mut path: Vec<String> = Vec::new();
    for line in text.lines() {
        let depth = line.len() - line.trim_start().len();
        path.truncate(depth);
        let trimmed = line.trim_start();
        if trimmed.starts_with('!') {
            continue;
        }
        if depth == 0 {
            let (name, head) = trimmed.rsplit_once(':').unwrap();
            path.push(name.rsplit_once(':').unwrap().0.to_owned());
            lines.insert(path.join(" "), head.to_owned());
            continue;
        }
        let (key, value) = trimmed.split_once(": ").unwrap();
        let is_number = value.split(' ').next().unwrap().parse::<u64>().is_ok();
        // llvm-profgen has instructions without a line as lines before their function.
        let offset: u32 = key.split('.').next().unwrap().parse().unwrap();
        if is_number && 0x8000 <= offset {
            continue;
        }
        if is_number {
            lines.insert(format!("{} {key}", path.join(" ")), value.to_owned());
        } else {
            path.push(format!("{key} {}", value.rsplit_once(':').unwrap().0));
        }
    }
    lines
}

/// clang where it is installed. Profiles are for it, and its debug information has discriminators.
fn clang() -> Option<String> {
    tool::llvm("clang").map(|path| path.to_str().unwrap().to_owned())
}

#[test]
#[ignore = "needs a program that only --all installs"]
fn sample_profile_is_that_of_llvm_profgen() {
    let (Some(profgen), Some(clang)) = (tool::llvm("llvm-profgen"), clang()) else {
        return;
    };
    for linked in [Linked::Fixed, Linked::Pie] {
        let program = Program::new(&clang, linked);
        program.export("profgen");
        let theirs = program.file("theirs");
        let mut generate = Command::new(&profgen);
        generate
            .arg("--format=text")
            .arg("--unsymbolized-profile")
            .arg(program.file("profgen"));
        tool::run(
            generate
                .arg("--binary")
                .arg(&program.path)
                .arg("--output")
                .arg(&theirs),
        );
        let theirs = std::fs::read_to_string(&theirs).unwrap();
        let ours = program.export("autofdo");
        assert_eq!(lines(&ours), lines(&theirs), "{ours}\n{theirs}");
    }
}

#[test]
#[ignore = "needs a program that only --all installs"]
fn llvm_profdata_and_clang_read_the_sample_profile() {
    let (Some(profdata), Some(clang)) = (tool::llvm("llvm-profdata"), clang()) else {
        return;
    };
    let program = Program::new(&clang, Linked::Fixed);
    let ours = program.export("autofdo");
    let merged = program.file("merged");
    let mut merge = Command::new(&profdata);
    merge.args(["merge", "--sample", "--text", "-o"]).arg(&merged);
    let output = tool::run(merge.arg(program.file("autofdo")));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let merged = std::fs::read_to_string(merged).unwrap();
    assert_eq!(lines(&merged), lines(&ours));

    // The binary form says the same.
    program.export("extbinary");
    let read = program.file("read");
    let mut merge = Command::new(&profdata);
    merge.args(["merge", "--sample", "--text", "-o"]).arg(&read);
    let output = tool::run(merge.arg(program.file("extbinary")));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(std::fs::read_to_string(read).unwrap(), merged);

    let object = program.file("optimized.o");
    let mut compile = Command::new(clang);
    compile.args(["-O2", "-g", "-c", "-Wall", "-Werror", "-ffreestanding"]);
    compile.arg(format!(
        "-fprofile-sample-use={}",
        program.file("autofdo").display()
    ));
    compile.arg("-o").arg(&object);
    tool::run(compile.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/export/program.c")));
}
