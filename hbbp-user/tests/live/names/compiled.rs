//! Code of compilers at run time, which name it in a perf map.

use super::*;

/// A compiler: `compiler MODE`. It runs for longer than it takes from one drain to the next, as its code goes with it.
///
/// It names code three times at one address, each time longer; what it names
/// last is `hot_mul`, which runs. Mode `memfd`: the code is in a file in memory that is mapped twice, once writable and once
/// executable (as .NET does since 7, clrfeatures.md "W^X"); mode `long`: 36 MB of other lines come before. Mode `late`: the map is
/// written while the code has been running for seconds, and it names also `hot_new`, which has just replaced other code.
const COMPILER: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}
static const unsigned char code[] = "\xb9\x00\x09\x3d\x00\x48\x0f\xaf\xc0\x48\x83\xc0\x07\xff\xc9\x75\xf4\xc3";
int main(int argc, char **argv) {
  size_t len = 1 << 16;
  unsigned char *w, *x;
  if (!strcmp(argv[1], "memfd")) {
    int fd = memfd_create("doublemapper", MFD_CLOEXEC);
    if (ftruncate(fd, len)) return 1;
    w = mmap(0, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    x = mmap(0, len, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
  } else
    w = x = mmap(0, len, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char path[64];
  snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
  unsigned char *hot = x + 4096, *other = x + 8192;
  int late = !strcmp(argv[1], "late");
  if (late) {
    memcpy(w + 4096, code, sizeof code);
    memcpy(w + 8192, code, sizeof code);
    w[8192 + 12] = 5;
    for (double end = now() + 5; now() < end; ((void (*)(void))other)()) ((void (*)(void))hot)();
    w[8192 + 12] = 9;
    for (double end = now() + 5; now() < end; ((void (*)(void))other)()) ((void (*)(void))hot)();
  }
  FILE *map = fopen(path, "w");
  if (late) fprintf(map, "%lx %zx hot_new\n", (long)other, sizeof code - 1);
  if (!strcmp(argv[1], "long"))
    for (int i = 0; i < 120000; i++)
      fprintf(map, "%lx 10 method number %0280d\n", 0x100000000000 + i * 16L, i);
  fprintf(map, "%lx 40 whole_before\n", (long)hot - 32);
  for (int i = 0; i < 3; i++)
    fprintf(map, "%lx 6 part_before_%d\n", (long)hot + 6 * i, i);
  memcpy(w + 4096, code, sizeof code);
  fprintf(map, "%lx %zx hot_mul\n", (long)hot, sizeof code - 1);
  fclose(map);
  for (double end = now() + 5; now() < end;) ((void (*)(void))hot)();
  unlink(path);
}
"#;

#[test]
fn newest_name_of_an_address_counts() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let compiler = built(folder.path(), "compiler", COMPILER, &[]);
    for (mode, module) in [
        ("plain", "[anon]"),
        ("memfd", "/memfd:doublemapper"),
        ("long", "[anon]"),
    ] {
        let profile = measured(folder.path(), &[compiler.as_os_str(), mode.as_ref()]);
        let shares = shares(&profile, module);
        assert!(0.8 < share(&shares, "hot_mul"), "{mode}: {shares:?}");
        assert!(
            shares.iter().all(|(name, _)| !name.contains("before")),
            "{mode}: {shares:?}"
        );
    }
}

/// Java writes its map when it is asked to. Code that replaced other code before that has no name.
#[test]
fn map_that_comes_late_names_code_that_did_not_change() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let compiler = built(folder.path(), "compiler", COMPILER, &[]);
    let profile = measured(folder.path(), &[compiler.as_os_str(), "late".as_ref()]);
    let shares = shares(&profile, "[anon]");
    // 10 of 15 seconds.
    assert!(0.6 < share(&shares, "hot_mul"), "{shares:?}");
    assert_eq!(share(&shares, "hot_new"), 0.0, "{shares:?}");
}
