//! Code of compilers at run time, which write it to a jitdump.

use std::ffi::OsString;

use tempfile::TempDir;

use super::*;

/// A compiler: `dumper FOLDER MS [MS]`. A function runs for this CPU time, and then another one for its own, at the same address and of
/// the same length.
const DUMPER: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static uint64_t now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}
static unsigned char code[] = "\xb9\x00\x09\x3d\x00\x48\x0f\xaf\xc0\x48\x83\xc0\x07\xff\xc9\x75\xf4\xc3";
struct load { uint32_t id, size; uint64_t time; uint32_t pid, tid; uint64_t vma, at, len, index; };
static void put(FILE *dump, unsigned char *at, const char *name) {
  static uint64_t index;
  struct load load = { 0, sizeof load + strlen(name) + 1 + sizeof code - 1, now(CLOCK_MONOTONIC), getpid(), getpid(),
                       (uintptr_t)at, (uintptr_t)at, sizeof code - 1, index++ };
  fwrite(&load, sizeof load, 1, dump);
  fwrite(name, strlen(name) + 1, 1, dump);
  fwrite(code, sizeof code - 1, 1, dump);
  fflush(dump);
  memcpy(at, code, sizeof code);
}
static void run(void (*hot)(void), const char *ms) {
  clockid_t own = CLOCK_THREAD_CPUTIME_ID;
  for (uint64_t end = now(own) + atoi(ms) * 1000000ull; now(own) < end;) hot();
}
int main(int argc, char **argv) {
  unsigned char *x = mmap(0, 1 << 16, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char path[4096];
  snprintf(path, sizeof path, "%s/jit-%d.dump", argv[1], getpid());
  FILE *dump = fopen(path, "w+");
  uint32_t head[10] = { 0x4a695444, 1, 40, 62, 0, getpid() };
  fwrite(head, sizeof head, 1, dump);
  fflush(dump);
  mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(dump), 0);
  put(dump, x + 4096, "hot_mul");
  run((void (*)(void))(x + 4096), argv[2]);
  if (!argv[3]) return 0;
  memcpy(code + 5, "\x48\xc1\xc8\x05", 4);
  put(dump, x + 4096, "hot_rot");
  run((void (*)(void))(x + 4096), argv[3]);
}
"#;

/// The compiler, with these arguments and a folder for its files.
struct Dumper {
    folder: TempDir,
    command: Vec<OsString>,
}

impl Dumper {
    fn new(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = built(folder.path(), "dumper", DUMPER, &[]);
        let mut command = vec![program.into(), folder.path().into()];
        command.extend(arguments.iter().map(OsString::from));
        Self { folder, command }
    }

    fn command(&self) -> Vec<&OsStr> {
        self.command.iter().map(OsString::as_os_str).collect()
    }

    fn recorded(&self, options: &[&str]) -> PathBuf {
        recorded_with(self.folder.path(), options, &self.command())
    }

    fn measured(&self) -> PathBuf {
        measured(self.folder.path(), &self.command())
    }
}

/// The functions and mnemonics of a profile.
fn code(profile: &Path) -> Vec<(String, String)> {
    let report: Value = report_by(profile.to_str().unwrap(), "function,mnemonic");
    let rows = report["mix"]["rows"].as_array().unwrap().iter();
    let word = |row: &Value, nth: usize| row["key"][nth].as_str().unwrap().to_owned();
    rows.map(|row| (word(row, 0), word(row, 1))).collect()
}

fn has(code: &[(String, String)], function: &str, mnemonic: &str) -> bool {
    let mut rows = code.iter();
    rows.any(|(name, instruction)| name == function && instruction == mnemonic)
}

/// A sample of a recording belongs to the function that was there, and to its bytes.
#[test]
fn code_of_a_jitdump_has_its_time() {
    let Some(_kernel) = kernel() else { return };
    let dumper = Dumper::new(&["2000", "2000"]);
    let recording = dumper.recorded(&["-k", "mono"]);
    let shares = shares(&recording, ".dump");
    let (mul, rot) = (share(&shares, "hot_mul"), share(&shares, "hot_rot"));
    assert!(
        0.9 < mul + rot && (0.4..0.6).contains(&(mul / (mul + rot))),
        "{shares:?}"
    );
    let code = code(&recording);
    assert!(
        has(&code, "hot_mul", "IMUL") && has(&code, "hot_rot", "ROR"),
        "{code:?}"
    );
    assert!(
        !has(&code, "hot_mul", "ROR") && !has(&code, "hot_rot", "IMUL"),
        "{code:?}"
    );
}

/// Times of another clock are not those of the jitdump, so that nothing is named by them.
#[test]
fn jitdump_of_another_clock_is_left_out() {
    let Some(_kernel) = kernel() else { return };
    let dumper = Dumper::new(&["2000", "2000"]);
    let recording = dumper.recorded(&[]);
    let report: Value = report_by(recording.to_str().unwrap(), "module,function");
    let text = report.to_string();
    assert!(text.contains("perf record -k mono"), "{text}");
    assert!(!text.contains("hot_mul") && !text.contains("hot_rot"), "{text}");
}

#[test]
fn jitdump_of_a_live_process_names_its_memory() {
    let Some(_kernel) = kernel() else { return };
    let dumper = Dumper::new(&["4000"]);
    let shares = shares(&dumper.measured(), "[anon]");
    assert!(0.8 < share(&shares, "hot_mul"), "{shares:?}");
}

/// Counts of both are together, so that neither can have its name: where the first one is gone before a drain reads it, and where
/// both are seen.
#[test]
fn code_that_replaces_other_code_has_not_its_name() {
    let Some(_kernel) = kernel() else { return };
    for times in [["1000", "3500"], ["3500", "3000"]] {
        let code = code(&Dumper::new(&times).measured());
        assert!(has(&code, "[[anon]]", "ADD"), "{times:?}: {code:?}");
        let named = |name: &str| code.iter().any(|(function, _)| function == name);
        assert!(!named("hot_mul") && !named("hot_rot"), "{times:?}: {code:?}");
    }
}
