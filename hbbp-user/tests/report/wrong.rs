//! Wrong invocations: each ends with its code, says in one sentence what is wrong, and what is right.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use hbbp_model::snapshot::file;

use super::program;

/// The command was misunderstood, or what it asks for is not there.
const USAGE: i32 = 2;
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

/// A command line, the code that it ends with, and words that it says.
type Case = (&'static str, i32, &'static str);

/// Those that users made, by their report.
const OF_USERS: &[Case] = &[
    (
        "reprot clock.hbbp",
        USAGE,
        "a similar subcommand exists: 'report'",
    ),
    (
        "anotate clock.hbbp main",
        USAGE,
        "a similar subcommand exists: 'annotate'",
    ),
    ("-e cycles:pp -d 1", USAGE, "use --event cycles"),
    ("-e instructions:u -d 1", USAGE, "--filter ring=user"),
    ("record -o x --event cycles:ppp", USAGE, "precise=2"),
    (
        "report clock.hbbp --filter module=nosuch",
        USAGE,
        "nothing that ran passes the filter `module=nosuch`; what ran by module begins with [kernel]",
    ),
    (
        "report clock.hbbp --filter function=nosuch",
        USAGE,
        "what ran by function begins with spin_wait",
    ),
    (
        "report clock.hbbp --filter process=nosuch",
        USAGE,
        "nothing that ran passes the filter",
    ),
    (
        "report clock.hbbp --filter mnemonic=VNOSUCH",
        USAGE,
        "no mnemonic matches `VNOSUCH`",
    ),
    (
        "report clock.hbbp --filter extension=NOSUCH",
        USAGE,
        "no extension matches `NOSUCH`",
    ),
    ("report retired.hbbp --values cpi", USAGE, "record --time"),
    (
        "report retired.hbbp --values time,time-share",
        USAGE,
        "no time was sampled",
    ),
    (
        "report clock.hbbp --values time,time-share",
        USAGE,
        "--values executions,share",
    ),
    (
        "report clock.hbbp --values ipc --format json",
        USAGE,
        "record with --event instructions or branches",
    ),
    ("--pid abc", USAGE, "expected the number of a process"),
    ("--pid 0", USAGE, "expected the number of a process"),
    ("--pid 99999999999", USAGE, "expected the number of a process"),
    ("report none.hbbp", FAILURE, "failed to open none.hbbp"),
    ("report empty.hbbp", FAILURE, "the file is empty"),
    ("report cut.hbbp", FAILURE, "failed to read profile cut.hbbp"),
    ("report letter.txt", FAILURE, "unknown format"),
    ("report .", FAILURE, "the directory holds no recording"),
    ("report", USAGE, "<FILE>"),
    (
        "report clock.hbbp retired.hbbp",
        USAGE,
        "unexpected argument 'retired.hbbp'",
    ),
    ("report clock.hbbp --by colour", USAGE, "colour"),
    ("report clock.hbbp --rows mnemonic,", USAGE, "unknown dimension"),
    (
        "report clock.hbbp --view nosuch",
        USAGE,
        "expected one of isa, vectorization",
    ),
    (
        "report clock.hbbp --view module:",
        USAGE,
        "needs the name of a kernel module",
    ),
    (
        "report clock.hbbp --view module:nosuch",
        FAILURE,
        "no instruction of a module `nosuch` ran",
    ),
    (
        "report clock.hbbp --values colour",
        USAGE,
        "unknown value `colour`",
    ),
    (
        "report clock.hbbp --sort colour",
        FAILURE,
        "no column `colour` to sort by",
    ),
    (
        "report clock.hbbp --top few",
        USAGE,
        "expected a number of rows or `all`",
    ),
    (
        "report clock.hbbp --format xml",
        USAGE,
        "[possible values: text, json, csv, html]",
    ),
    (
        "report clock.hbbp --filter mnemonic",
        USAGE,
        "`mnemonic` is not a filter",
    ),
    ("report clock.hbbp --filter =x", USAGE, "unknown dimension"),
    (
        "report clock.hbbp --require lock=locked",
        USAGE,
        "is not a requirement",
    ),
    (
        "report clock.hbbp --confidence 101",
        USAGE,
        "not a level of confidence",
    ),
    (
        "report clock.hbbp --taxonomy none.toml",
        USAGE,
        "taxonomy none.toml",
    ),
    ("report clock.hbbp --rule nosuch", FAILURE, "nosuch"),
    ("report clock.hbbp --compare retired.hbbp", USAGE, "--format html"),
    (
        "report clock.hbbp --over-time",
        FAILURE,
        "--over-time needs counts of several intervals",
    ),
    (
        "report clock.hbbp --since 1h",
        FAILURE,
        "--since and --until need the directory",
    ),
    ("report clock.hbbp -o no/such/folder", FAILURE, "no/such/folder"),
    ("diff clock.hbbp", USAGE, "<B>"),
    (
        "diff clock.hbbp retired.hbbp",
        FAILURE,
        "profiles of different units cannot be compared",
    ),
];

/// Those that their neighbours will make.
const OF_OTHERS: &[Case] = &[
    ("diff clock.hbbp none.hbbp", FAILURE, "failed to open none.hbbp"),
    (
        "diff clock.hbbp clock.hbbp --view nosuch",
        USAGE,
        "expected one of isa",
    ),
    (
        "diff clock.hbbp clock.hbbp --view module:sum",
        USAGE,
        "--by function --filter",
    ),
    (
        "diff clock.hbbp clock.hbbp --view isa --by module",
        USAGE,
        "cannot be used with",
    ),
    (
        "diff clock.hbbp clock.hbbp --by line",
        USAGE,
        "compare by function",
    ),
    ("diff clock.hbbp clock.hbbp --per hour", USAGE, "hour"),
    (
        "diff clock.hbbp clock.hbbp --fail-if lock=locked:amount>+1%",
        USAGE,
        "add --per",
    ),
    (
        "diff clock.hbbp clock.hbbp --format html",
        USAGE,
        "[possible values: text, json, csv]",
    ),
    ("annotate clock.hbbp", USAGE, "<WHAT>"),
    ("annotate clock.hbbp nosuch", FAILURE, "nosuch"),
    (
        "annotate clock.hbbp count_up --hottest",
        USAGE,
        "cannot be used with",
    ),
    ("export clock.hbbp", USAGE, "--format"),
    ("export clock.hbbp --format nosuch", USAGE, "possible values"),
    ("merge", USAGE, "<PROFILE>"),
    ("merge none.hbbp -o out.hbbp", FAILURE, "none.hbbp"),
    ("import letter.txt -o out.hbbp", FAILURE, "unknown format"),
    (
        "import clock.hbbp -o out.hbbp",
        FAILURE,
        "this is a profile, not a recording",
    ),
    ("--duration 0", USAGE, "expected a time such as 10, 500ms"),
    ("--duration ten", USAGE, "expected a time such as 10, 500ms"),
    ("--period 5 --frequency 5", USAGE, "cannot be used with"),
    (
        "--frequency 4000000000 --duration 1",
        FAILURE,
        "kernel.perf_event_max_sample_rate",
    ),
    (
        "--duration 10 report clock.hbbp",
        USAGE,
        "a subcommand goes before its options: hbbp-sys report",
    ),
    (
        "--no-such-option",
        USAGE,
        "unexpected argument '--no-such-option'",
    ),
    ("banana", USAGE, "unexpected argument 'banana'"),
];

#[track_caller]
fn check(cases: &[Case]) {
    let folder = folder();
    for (line, code, words) in cases {
        let line_words: Vec<&str> = line.split_whitespace().collect();
        let output = run(folder.path(), &line_words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(*code), "{line}: {said}");
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
