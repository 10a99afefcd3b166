//! Names of functions in programs of each kind, as they run and in recordings of perf(1): never that of other code.
//!
//! Two functions share the time of each program: `hot_mul` multiplies, and `hot_rot` rotates half as often or less.

mod compiled;
mod dumped;
mod moved;
mod runtimes;
mod turns;

use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::load::built;
use super::server::Server;
use super::{kernel, number, program, report_by};

/// Runs both functions for two seconds.
const MAIN: &str = r#"
#include <time.h>
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}
void hot_mul(void), hot_rot(void);
int main(void) {
  for (double end = now() + 2; now() < end; hot_rot()) hot_mul();
}
"#;

/// The two functions; `%s` is what precedes the label of each.
const HOT: &str = r#"
__asm__(".text\n%shot_mul:\n mov $4000000, %ecx\n1: imul %rax, %rax\n dec %ecx\n jnz 1b\n ret\n"
        "%shot_rot:\n mov $2000000, %ecx\n2: ror $5, %rdx\n dec %ecx\n jnz 2b\n ret\n"
        "hot_end:\n");
"#;

const LABELS: &str = ".globl hot_mul, hot_rot\\n";

/// The program, with functions that are no more than labels where `kind` says nothing.
fn source(kind: &str) -> String {
    format!("{MAIN}{}", HOT.replace("%s", kind)).replacen(".text\\n", &format!(".text\\n{LABELS}"), 1)
}

fn tool(name: &str, folder: &Path, args: &[&str]) {
    let done = Command::new(name).args(args).current_dir(folder).status();
    assert!(done.unwrap().success(), "{name} {args:?}");
}

/// What the user samples of a file are, in parts of all of user code, by function.
fn shares(profile: &Path, module: &str) -> Vec<(String, f64)> {
    let report: Value = report_by(profile.to_str().unwrap(), "module,function");
    let rows = report["mix"]["rows"].as_array().unwrap();
    let amount = |row: &Value| number(&row["user"]["amount"]);
    let all: u64 = rows.iter().map(amount).sum();
    let name = |row: &Value, nth: usize| row["key"][nth].as_str().unwrap().to_owned();
    let of_module = rows.iter().filter(|row| name(row, 0).ends_with(module));
    of_module
        .map(|row| (name(row, 1), amount(row) as f64 / all as f64))
        .collect()
}

fn share(shares: &[(String, f64)], function: &str) -> f64 {
    let found = shares.iter().filter(|(name, _)| name == function);
    found.map(|(_, share)| share).sum()
}

/// Measures a program as it runs.
fn measured(folder: &Path, command: &[&OsStr]) -> PathBuf {
    let profile = folder.join("profile");
    let output = program(&["record", "-o", profile.to_str().unwrap(), "--"])
        .args(command)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    profile
}

/// Records it with perf(1).
fn recorded(folder: &Path, command: &[&OsStr]) -> PathBuf {
    recorded_with(folder, &[], command)
}

fn recorded_with(folder: &Path, options: &[&str], command: &[&OsStr]) -> PathBuf {
    let recording = folder.join("perf.data");
    let output = Command::new("perf")
        .args(["record", "-e", "cpu-clock", "-F", "999", "--buildid-mmap", "-o"])
        .arg(&recording)
        .args(options)
        .arg("--")
        .args(command)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    recording
}

/// Both functions have their names, live and recorded, and nothing else has a large part.
fn assert_named(file: &Path) {
    let folder = file.parent().unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    for profile in [
        measured(folder, &[file.as_os_str()]),
        recorded(folder, &[file.as_os_str()]),
    ] {
        let shares = shares(&profile, name);
        let (mul, rot) = (share(&shares, "hot_mul"), share(&shares, "hot_rot"));
        assert!(0.9 < mul + rot && 0.05 < rot && rot < mul, "{shares:?}");
    }
}

#[test]
fn labels_without_a_type_are_functions() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    assert_named(&built(folder.path(), "labels", &source(""), &[]));
}

/// As distributions make them: .symtab is in a packed file in the program.
#[test]
fn packed_symbols_are_read() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = built(folder.path(), "packed", &source(""), &[]);
    let tool = |name, args: &[&str]| tool(name, folder.path(), args);
    tool("objcopy", &["--only-keep-debug", "packed", "symbols"]);
    tool("xz", &["symbols"]);
    tool("strip", &["packed"]);
    tool(
        "objcopy",
        &["--add-section", ".gnu_debugdata=symbols.xz", "packed"],
    );
    assert_named(&file);
}

/// Nothing but the name and the checksum says that the file is the right one, and this one has its symbols in a third one.
#[test]
fn linked_symbols_are_read_where_the_checksum_is_right() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = built(folder.path(), "linked", &source(""), &["-Wl,--build-id=none"]);
    let tool = |name, args: &[&str]| tool(name, folder.path(), args);
    std::fs::create_dir(folder.path().join(".debug")).unwrap();
    tool("objcopy", &["--only-keep-debug", "linked", "last.debug"]);
    std::fs::copy(
        folder.path().join("last.debug"),
        folder.path().join("first.debug"),
    )
    .unwrap();
    tool("strip", &["first.debug"]);
    tool("objcopy", &["--add-gnu-debuglink=last.debug", "first.debug"]);
    tool("strip", &["linked"]);
    tool("objcopy", &["--add-gnu-debuglink=first.debug", "linked"]);
    tool("mv", &["first.debug", ".debug/"]);
    // The last file is in the folder of the program, as the link of the first one is followed from there.
    assert_named(&file);
    let last = folder.path().join("last.debug");
    std::fs::write(&last, [std::fs::read(&last).unwrap(), vec![0]].concat()).unwrap();
    let shares = shares(&measured(folder.path(), &[file.as_os_str()]), "linked");
    assert!(
        0.0 == share(&shares, "hot_mul") && !shares.is_empty(),
        "{shares:?}"
    );
}

/// A loader maps one page of the file for both segments.
#[test]
fn segments_that_share_a_page_have_their_own_code() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    let layout = "ENTRY(_start)\nPHDRS { h PT_LOAD FLAGS(4); a PT_LOAD FLAGS(5); b PT_LOAD FLAGS(5); }\n\
        SECTIONS { . = 0x400000 + SIZEOF_HEADERS; .first 0x401000 : { *(.text*) *(.first) } :a\n\
        .second (0x601000 + SIZEOF(.first) + 0x40) : { *(.second) } :b\n\
        /DISCARD/ : { *(.note*) *(.comment) *(.eh_frame*) } }\n";
    std::fs::write(&script, layout).unwrap();
    let kind = |section: &str| format!(".section .{section}, \\\"ax\\\"\\n");
    let hot = HOT.replace(".text\\n%s", &(LABELS.to_owned() + &kind("first")));
    let hot = hot.replace("%s", &kind("second"));
    // About two seconds on a slow processor; there is no library to ask for the time.
    let main = "void hot_mul(void), hot_rot(void);\nvoid _start(void) {\n  for (int i = 0; i < 250; i++) { hot_mul(); hot_rot(); }\n  \
        __asm__ volatile(\"syscall\" : : \"a\"(231), \"D\"(0));\n}\n";
    let options = format!("-Wl,-T,{},-z,max-page-size=4096", script.display());
    let file = built(
        folder.path(),
        "segments",
        &(main.to_owned() + &hot),
        &[
            "-nostdlib",
            "-static",
            "-fno-asynchronous-unwind-tables",
            &options,
        ],
    );
    assert_named(&file);
}

/// Names with one beginning, which is longer than what is kept of them.
#[test]
fn long_names_are_distinguished() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let long = "long_".repeat(400);
    let text = source("").replace("hot_", &format!("{long}hot_"));
    let file = built(folder.path(), "long", &text, &[]);
    let shares = shares(&measured(folder.path(), &[file.as_os_str()]), "long");
    let named: Vec<f64> = shares
        .iter()
        .filter(|(name, _)| name.starts_with("long_long_"))
        .map(|(_, share)| *share)
        .collect();
    assert_eq!(named.len(), 2, "{shares:?}");
    assert!(named.iter().all(|share| 0.05 < *share), "{shares:?}");
}

/// A recording of a machine whose files are not here any more, but on a server that the user names.
#[test]
fn files_of_a_recording_come_from_a_server() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = built(folder.path(), "elsewhere", &source(""), &["-Wl,--build-id"]);
    let tool = |name, args: &[&str]| tool(name, folder.path(), args);
    tool("objcopy", &["--only-keep-debug", "elsewhere", "debug"]);
    tool("strip", &["elsewhere"]);
    let recording = recorded(folder.path(), &[file.as_os_str()]);
    let server = Server::default()
        .with(file.to_str().unwrap(), "executable", &file)
        .with(file.to_str().unwrap(), "debuginfo", &folder.path().join("debug"));
    let url = server.start();
    std::fs::remove_file(&file).unwrap();
    let profile = folder.path().join("profile");
    let import = |url: &str| {
        let done = program(&[
            "import",
            recording.to_str().unwrap(),
            "-o",
            profile.to_str().unwrap(),
        ])
        .env("DEBUGINFOD_URLS", url)
        .env("no_proxy", "127.0.0.1")
        .env("DEBUGINFOD_CACHE_PATH", folder.path().join("cache"))
        // perf keeps a copy of what it recorded.
        .env("HOME", folder.path())
        .output();
        assert!(done.unwrap().status.success());
        shares(&profile, "elsewhere")
    };
    let shares = import(&url);
    let (mul, rot) = (share(&shares, "hot_mul"), share(&shares, "hot_rot"));
    assert!(0.9 < mul + rot && 0.05 < rot && rot < mul, "{shares:?}");
}
