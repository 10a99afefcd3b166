//! Wrong invocations: each ends with its code, says in one sentence what is wrong, and what is right.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use hbbp_model::snapshot::file;

use super::program;

/// The command was understood and failed.
const FAILURE: i32 = 1;

/// A folder with a profile of a clock and one of retired instructions, a damaged one, an empty one, and a text.
pub(crate) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    let clocked = file::encode(&program::clocked()).unwrap();
    write("clock.hbbp", &clocked);
    write("cut.hbbp", &clocked[..clocked.len() / 2]);
    write("retired.hbbp", &file::encode(&program::retired()).unwrap());
    write("empty.hbbp", b"");
    write("letter.txt", b"a letter\n");
    folder
}

pub(crate) fn run(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hbbp-sys"))
        .args(words)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Those that users made, by their report, and those that their neighbours will make. A line has the code that the command ends
/// with, its words, and what it says.
const OF_USERS: &str = include_str!("wrong/users.txt");
const OF_OTHERS: &str = include_str!("wrong/others.txt");

#[track_caller]
fn check(cases: &str) {
    let folder = folder();
    for case in cases.lines() {
        let [code, line, words] = case.splitn(3, " | ").collect::<Vec<_>>()[..] else {
            panic!("not a case: {case}");
        };
        let line_words: Vec<&str> = line.split_whitespace().collect();
        let output = run(folder.path(), &line_words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), code.parse().ok(), "{line}: {said}");
        assert!(said.contains(words), "{line}: {said}");
        assert!(output.stdout.is_empty(), "{line}: errors go to standard error");
        assert!(!said.contains("panicked"), "{line}: {said}");
    }
}

#[test]
fn wrong_invocations_of_users_say_what_is_right() {
    check(OF_USERS);
}

#[test]
fn wrong_invocations_of_others_say_what_is_right() {
    check(OF_OTHERS);
}

/// What nothing can be measured without is said with the command that has it.
#[test]
fn user_without_rights_sees_the_command_of_root() {
    const NOBODY: u32 = 65_534;
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::process::CommandExt as _;

    let mut command = Command::new(env!("CARGO_BIN_EXE_hbbp-sys"));
    command.args(["-d", "1"]).stdin(Stdio::null()).current_dir("/");
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    let Ok(output) = command.output() else {
        // The folders of the build are closed to others.
        hbbp_testing::skip::skip("nobody may not run the program");
        return;
    };
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(FAILURE), "{said}");
    assert!(said.contains("needs root: sudo hbbp-sys -d 1"), "{said}");
}

/// What is refused after the command was forked ends without a word of the fork: without rights, or for its interval.
#[test]
fn a_refusal_is_the_only_thing_said_when_a_command_was_given() {
    let folder = folder();
    for _ in 0..20 {
        let output = run(
            folder.path(),
            &["bbv", "--interval-size", "10", "-o", "vectors", "--", "true"],
        );
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(FAILURE), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with("hbbp-sys: "), "{said}");
    }
}

/// An extension that exists and did not run is an answer, and not an error.
#[test]
fn what_did_not_run_is_an_answer() {
    let folder = folder();
    let output = run(
        folder.path(),
        &["report", "clock.hbbp", "--filter", "extension=AVX512_VNNI"],
    );
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("nothing that ran passes the filters"), "{text}");
}
