//! User text that differs from its file: figures show the executed instructions.
//!
//! Each program runs rotations to the right, then to the left, at the same address, and prints its CPU time in each.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hbbp_model::profile;
use hbbp_model::snapshot::Snapshot;
use serde_json::Value;

use super::load::{Load, built};
use super::text::Tracing;
use super::{kernel, number, program, report_of, resolved};

/// A loop of rotations in a page of its own, and the change of its direction: `ror %eax` is d1 c8, `rol %eax` d1 c0.
const ROTATIONS: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#define N 512
extern char rotate[], rotate_end[];
__asm__(".text\n.balign 4096\n.globl rotate\n.type rotate, @function\nrotate:\n"
        ".rept 512\nror $1, %eax\n.endr\nret\n.size rotate, .-rotate\n.globl rotate_end\nrotate_end:\n.balign 4096\n");
static double cpu(void) { struct timespec t; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static double run(void (*code)(void), double seconds) {
  double start = cpu();
  while (cpu() < start + seconds) for (int i = 0; i < 10000; i++) code();
  return cpu() - start;
}
static void turn(unsigned char *code) { for (int i = 0; i < N; i++) code[2 * i + 1] = 0xc0; }
"#;

/// Patches its own text after a while.
const PATCHER: &str = r#"
int main(int argc, char **argv) {
  double right = atof(argv[1]), left = atof(argv[2]);
  if (right) right = run((void (*)(void))rotate, right);
  mprotect(rotate, 4096, PROT_READ | PROT_WRITE);
  turn((unsigned char *)rotate);
  mprotect(rotate, 4096, PROT_READ | PROT_EXEC);
  left = run((void (*)(void))rotate, left);
  printf("%f\n", right / (right + left));
  return 0;
}
"#;

/// Patches its own text, which is writable all the time, so that no record reports it.
const WRITABLE: &str = r#"
int main(int argc, char **argv) {
  double right = atof(argv[1]), left = atof(argv[2]);
  mprotect(rotate, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
  if (right) right = run((void (*)(void))rotate, right);
  turn((unsigned char *)rotate);
  left = run((void (*)(void))rotate, left);
  printf("%f\n", right / (right + left));
  return 0;
}
"#;

/// A code cache as .NET has: a file in memory, mapped once to be written and once to be run. No record reports the
/// change, so samples before the next drain count for the old bytes. The program sleeps after the change to have none
/// there.
const TWICE: &str = r#"
int main(int argc, char **argv) {
  double right = atof(argv[1]), left = atof(argv[2]);
  int fd = memfd_create("doublemapper", 0);
  if (ftruncate(fd, 8192)) return 1;
  unsigned char *write = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  void *code = mmap(0, 8192, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
  memcpy(write, rotate, rotate_end - rotate);
  right = run((void (*)(void))code, right);
  turn(write);
  sleep(1);
  left = run((void (*)(void))code, left);
  printf("%f\n", right / (right + left));
  return 0;
}
"#;

/// A function with a probe at its start, an instruction of its own, and the loop after that.
const PROBED: &str = r#"
__asm__(".text\n.balign 4096\n.globl probed\n.type probed, @function\nprobed:\nbswap %eax\n"
        "mov $2000, %ecx\n1: rol $1, %eax\ndec %ecx\njnz 1b\nret\n.size probed, .-probed\n");
extern void probed(void);
int main(void) { puts("ready"); fflush(stdout); for (;;) probed(); }
"#;

/// Many mappings of one page each, which the kernel cannot join; some before it says that it is ready, some after.
const MAPPER: &str = r#"
#include <fcntl.h>
int main(int argc, char **argv) {
  int fd = open(argv[0], O_RDONLY), early = atoi(argv[1]), late = atoi(argv[2]);
  for (int i = 0; i < early; i++) if (mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED) return 1;
  puts("ready"); fflush(stdout);
  if (late) sleep(1);
  for (int i = 0; i < late; i++) if (mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED) return 1;
  for (;;) run((void (*)(void))rotate, 1);
}
"#;

fn compile(folder: &Path, name: &str, main: &str) -> PathBuf {
    built(folder, name, &format!("{ROTATIONS}{main}"), &[])
}

/// Records a program to its end. The share of its rotations that went to the right, as it says and as the report says,
/// and the report.
fn rotations(main: &str, (right, left): (&str, &str)) -> (f64, f64, Value) {
    let folder = tempfile::tempdir().unwrap();
    let path = compile(folder.path(), "rotations", main);
    let profile = folder.path().join("profile");
    let (path, profile) = (path.to_str().unwrap(), profile.to_str().unwrap());
    let options = ["record", "--period", "400009", "-o", profile, "--"];
    let output = program(&[&options[..], &[path, right, left]].concat())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let said = said
        .lines()
        .find_map(|line| line.trim().parse::<f64>().ok())
        .unwrap();
    let report = report_of(profile);
    let rows = report["mix"]["rows"].as_array().unwrap();
    let amount = |mnemonic: &str| {
        let row = rows.iter().find(|row| row["key"][0] == mnemonic);
        row.map_or(0, |row| number(&row["user"]["amount"])) as f64
    };
    let (ror, rol) = (amount("ROR"), amount("ROL"));
    let (in_mix, counted) = resolved(&report, "user");
    println!("{ror} ROR, {rol} ROL, of {in_mix} in the mix and {counted} counted; {said:.4} said");
    assert!(
        0.9 * counted as f64 <= ror + rol,
        "they are all that it does: {rows:#?}"
    );
    (said, ror / (ror + rol), report)
}

fn warned(report: &Value, sentence: &str) -> bool {
    report["warnings"].to_string().contains(sentence)
}

#[test]
fn program_that_patches_its_text_is_reported_as_executed() {
    let Some(_kernel) = kernel() else { return };
    for (main, phases) in [
        (PATCHER, ("0", "3")),
        (PATCHER, ("3", "4")),
        (WRITABLE, ("0", "3")),
    ] {
        let (said, found, report) = rotations(main, phases);
        assert!((said - found).abs() < 0.01, "{phases:?}: {said} {found}");
        assert!(
            warned(&report, "differed from their file"),
            "{}",
            report["warnings"]
        );
    }
}

#[test]
fn a_code_cache_that_is_mapped_twice_is_read_again() {
    let Some(_kernel) = kernel() else { return };
    let (said, found, _) = rotations(TWICE, ("3", "4"));
    assert!((said - found).abs() < 0.01, "{said} {found}");
}

/// Waits until a program says that it is ready.
fn start(path: &Path, args: &[&str]) -> Load {
    let mut child = Command::new(path)
        .args(args)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line.trim(), "ready");
    Load(child)
}

fn record(pid: u32, profile: &Path, duration: &str) -> Value {
    let (pid, profile) = (pid.to_string(), profile.to_str().unwrap());
    let output = super::run(&["record", "--pid", &pid, "--duration", duration, "-o", profile]);
    assert!(output.status.success(), "{output:?}");
    report_of(profile)
}

/// The address of a function in its file.
fn address(program: &Path, function: &str) -> u64 {
    let output = Command::new("nm").arg(program).output().unwrap();
    let symbols = String::from_utf8(output.stdout).unwrap();
    let line = symbols
        .lines()
        .find(|line| line.ends_with(&format!(" T {function}")))
        .unwrap();
    u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
}

/// The bytes of text at an address of modules whose name ends with `suffix`.
fn bytes_at(snapshot: &Snapshot, suffix: &str, at: u64) -> Vec<u8> {
    let holds = |text: &&hbbp_model::snapshot::Text| {
        let module = &snapshot.modules[text.module.0 as usize];
        module.name.ends_with(suffix) && text.start.0 <= at && at < text.start.0 + text.bytes.len() as u64
    };
    let text = snapshot.text.iter().find(holds);
    let skip = |text: &hbbp_model::snapshot::Text| usize::try_from(at - text.start.0).unwrap();
    text.map(|text| text.bytes[skip(text)..].to_vec())
        .unwrap_or_default()
}

/// Figures show the breakpoint, which is executed there. The instruction that it replaces is executed in a page of the
/// kernel, `[uprobes]`, which cannot be read (VM_IO): its samples have no text, and are counted as such.
#[test]
fn uprobe_is_shown_at_its_address() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = compile(folder.path(), "probed", PROBED);
    let at = address(&path, "probed");
    let Some(tracing) = Tracing::mount(folder.path()) else {
        return super::skip::skip("tracefs cannot be mounted here");
    };
    let load = start(&path, &[]);
    let profile_path = folder.path().join("profile");
    // The linker maps text at its address.
    let Some(_probe) = tracing.probe(&path, at) else {
        return super::skip::skip("this kernel has no uprobes");
    };
    let report = record(load.0.id(), &profile_path, "3");
    let snapshot = profile::read(&profile_path).unwrap();
    let bytes = bytes_at(&snapshot, "probed (patched)", at);
    assert_eq!(bytes.get(..2), Some(&[0xcc, 0xc8][..]), "{}", report["warnings"]);
    assert!(
        warned(&report, "differed from their file"),
        "{}",
        report["warnings"]
    );
    let (in_mix, counted) = resolved(&report, "user");
    let unread = super::unresolved(&report, "ip.no_text", "user");
    assert!(
        0.98 * counted as f64 <= (in_mix + unread) as f64,
        "{}",
        report["accounting"]
    );
}

#[test]
fn twenty_thousand_mappings_are_resolved() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = compile(folder.path(), "mapper", MAPPER);
    for (early, late) in [("20000", "0"), ("0", "20000")] {
        let load = start(&path, &[early, late]);
        let report = record(load.0.id(), &folder.path().join("profile"), "4");
        let (in_mix, counted) = resolved(&report, "user");
        println!("{early} early and {late} late: {in_mix} of {counted} user samples resolved");
        assert!(100 < counted);
        assert!(0.98 * counted as f64 <= in_mix as f64, "{}", report["accounting"]);
    }
}
