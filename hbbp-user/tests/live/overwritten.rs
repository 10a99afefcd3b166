//! Files that are overwritten in place while they run: a private mapping shows the new bytes, and figures the instructions
//! that ran before and after.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::load::built;
use super::{kernel, program, report_by};

/// Runs `code` of a file, overwrites its multiplications by byte swaps, and runs it again. It sleeps after that, as samples
/// before the next drain count for the old bytes.
const OVERWRITER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
static void run(void (*code)(void)) {
  struct timespec t, from;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
  do { code(); clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); } while (t.tv_sec < from.tv_sec + 2);
}
int main(int argc, char **argv) {
  int fd = open(argv[1], O_RDWR), shared = !strcmp(argv[3], "shared");
  struct stat about;
  if (fstat(fd, &about)) return 1;
  void *code;
  if (!strcmp(argv[2], "elf")) code = dlsym(dlopen(argv[1], RTLD_NOW), "code");
  else code = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
  run(code);
  unsigned char *file = mmap(0, about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  for (long at = 0; at + 3 <= about.st_size; at++)
    if (!memcmp(file + at, "\x0f\xaf\xc0", 3)) {
      if (shared) memcpy(file + at, "\x0f\xc8\x90", 3);
      else if (pwrite(fd, "\x0f\xc8\x90", 3, at) != 3) return 1;
    }
  sleep(2);
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

/// What was executed of a file while it was overwritten.
fn mnemonics(kind: &str, way: &str) -> BTreeSet<String> {
    // On a disk: file systems in memory do not note when a mapping was written to.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let overwriter = built(folder.path(), "overwriter", OVERWRITER, &[]);
    let file = match kind {
        "elf" => built(folder.path(), "code.so", CODE, &["-shared", "-nostdlib"]),
        _ => plain_file(folder.path()),
    };
    let profile = folder.path().join("profile");
    let output = program(&[
        "record",
        "--period",
        "400009",
        "-o",
        profile.to_str().unwrap(),
        "--",
    ])
    .args([
        overwriter.as_os_str(),
        file.as_os_str(),
        kind.as_ref(),
        way.as_ref(),
    ])
    .output()
    .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report = report_by(profile.to_str().unwrap(), "module,mnemonic");
    let rows = report["mix"]["rows"].as_array().unwrap();
    let of_file = rows.iter().filter(|row| {
        row["key"][0]
            .as_str()
            .unwrap()
            .starts_with(file.to_str().unwrap())
    });
    of_file
        .map(|row| row["key"][1].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_file_that_is_overwritten_is_reported_as_it_ran() {
    let Some(_kernel) = kernel() else { return };
    for (kind, way) in [
        ("elf", "written"),
        ("elf", "shared"),
        ("plain", "written"),
        ("plain", "shared"),
    ] {
        let ran = mnemonics(kind, way);
        for expected in ["IMUL", "BSWAP"] {
            assert!(ran.contains(expected), "{kind}, {way}: {ran:?}");
        }
        let code = ["BSWAP", "DEC", "IMUL", "JNE", "MOV", "NOP", "RET"].map(str::to_owned);
        assert!(ran.is_subset(&code.into()), "{kind}, {way}: {ran:?}");
    }
}
