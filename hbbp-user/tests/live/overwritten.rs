//! Files that are overwritten while they run: a private mapping shows the new bytes, and figures show the
//! instructions executed before and after.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread;

use hbbp_model::profile::read_runs;
use hbbp_model::snapshot::Loss;

use super::load::built;
use super::{kernel, program, report_by};

/// Runs `code` of a file, overwrites its multiplications by byte swaps, and runs it again. Each run holds at least one of the
/// drains, which come every two seconds. It sleeps between, as samples between a write and the look that finds it count for
/// the old bytes. `early` overwrites the file before it runs.
const OVERWRITER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
static double now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}
static void run(void (*code)(void)) {
  double end = now(CLOCK_MONOTONIC) + 4.5, cpu = now(CLOCK_THREAD_CPUTIME_ID) + 0.5;
  do code(); while (now(CLOCK_MONOTONIC) < end || now(CLOCK_THREAD_CPUTIME_ID) < cpu);
}
int main(int argc, char **argv) {
  int fd = open(argv[1], O_RDWR), shared = !strcmp(argv[3], "shared"), early = !strcmp(argv[3], "early");
  struct stat about;
  if (fstat(fd, &about)) return 1;
  void *code;
  if (!strcmp(argv[2], "elf")) code = dlsym(dlopen(argv[1], RTLD_NOW), "code");
  else code = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
  if (early) sleep(3);
  else run(code);
  unsigned char *file = mmap(0, about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  for (long at = 0; at + 3 <= about.st_size; at++)
    if (!memcmp(file + at, "\x0f\xaf\xc0", 3)) {
      if (shared) memcpy(file + at, "\x0f\xc8\x90", 3);
      else if (pwrite(fd, "\x0f\xc8\x90", 3, at) != 3) return 1;
    }
  if (!early) sleep(3);
  run(code);
  return 0;
}
"#;

/// Position-independent, so that its bytes are a plain file with code as well.
const CODE: &str = r#"
__asm__(".text\n.globl code\n.type code, @function\ncode:\nmov $100000, %ecx\n"
        "1: imul %eax, %eax\nimul %eax, %eax\nimul %eax, %eax\nimul %eax, %eax\ndec %ecx\njnz 1b\nret\n.size code, .-code\n");
"#;

fn plain_file(folder: &Path) -> PathBuf {
    let mut code = vec![0xb9, 0xa0, 0x86, 0x01, 0x00];
    code.extend([0x0f, 0xaf, 0xc0].repeat(4));
    code.extend([0xff, 0xc9, 0x75, 0xf0, 0xc3]);
    code.resize(4096, 0);
    let path = folder.join("code");
    std::fs::write(&path, code).unwrap();
    path
}

/// What a profile says of a file that was overwritten while it was measured.
struct Reported {
    mnemonics: BTreeSet<String>,
    /// Text ranges that are not sure.
    uncertain: u64,
}

/// Measures a program that overwrites a file, by kind of file and of write.
fn reported(kind: &str, way: &str) -> Reported {
    // On a disk: file systems in memory do not note when a mapping was written to.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let overwriter = built(folder.path(), "overwriter", OVERWRITER, &[]);
    let file = match kind {
        "elf" => built(folder.path(), "code.so", CODE, &["-shared", "-nostdlib"]),
        _ => plain_file(folder.path()),
    };
    let profile = folder.path().join("profile");
    let profile = profile.to_str().unwrap();
    let output = program(&["record", "--period", "400009", "-o", profile, "--"])
        .args([
            overwriter.as_os_str(),
            file.as_os_str(),
            kind.as_ref(),
            way.as_ref(),
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report = report_by(profile, "module,mnemonic");
    let rows = report["mix"]["rows"].as_array().unwrap();
    let name = |row: &serde_json::Value, nth: usize| row["key"][nth].as_str().unwrap().to_owned();
    let of_file = rows
        .iter()
        .filter(|row| name(row, 0).starts_with(file.to_str().unwrap()));
    let runs = read_runs(Path::new(profile)).unwrap();
    Reported {
        mnemonics: of_file.map(|row| name(row, 1)).collect(),
        uncertain: runs.iter().map(|run| run.losses.get(Loss::TextUncertain)).sum(),
    }
}

#[test]
fn overwritten_file_is_reported_as_executed() {
    let Some(_kernel) = kernel() else { return };
    let ways = [
        ("elf", "written"),
        ("elf", "shared"),
        ("plain", "written"),
        ("plain", "shared"),
        ("elf", "early"),
        ("plain", "early"),
    ];
    thread::scope(|scope| {
        let running = ways.map(|(kind, way)| (kind, way, scope.spawn(move || reported(kind, way))));
        for (kind, way, found) in running {
            let found = found.join().unwrap();
            let ran = &found.mnemonics;
            assert!(ran.contains("BSWAP"), "{kind}, {way}: {ran:?}");
            assert_eq!(ran.contains("IMUL"), way != "early", "{kind}, {way}: {ran:?}");
            let code = ["BSWAP", "DEC", "IMUL", "JNE", "MOV", "NOP", "RET"].map(str::to_owned);
            assert!(ran.is_subset(&code.into()), "{kind}, {way}: {ran:?}");
            assert!(0 < found.uncertain, "{kind}, {way}");
        }
    });
}
