//! Libraries that are loaded and unloaded, and take turns at one address.

use super::*;
use crate::resolved;

/// Runs `hot` of two libraries in turn. The last arguments are the length of a turn in ms, and seconds of CPU time for all. The second
/// library gets the addresses of the first.
const LOADER: &str = r#"
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
static double now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}
int main(int argc, char **argv) {
  double turn = atof(argv[3]) / 1e3;
  for (long i = 0; i < atof(argv[4]) / turn; i++) {
    void *library = dlopen(argv[1 + i % 2], RTLD_NOW);
    void (*hot)(void) = (void (*)(void))dlsym(library, "hot");
    for (double until = now(CLOCK_THREAD_CPUTIME_ID) + turn; now(CLOCK_THREAD_CPUTIME_ID) < until;) hot();
    dlclose(library);
  }
}
"#;

/// Code of one length and another instruction, so that an address alone does not say which of the two it was.
fn library(instruction: &str) -> String {
    format!(
        "__asm__(\".text\\n.globl hot\\n.type hot, @function\\nhot: mov $100000, %ecx\\n1: {instruction}\\n dec %ecx\\n jnz 1b\\n \
         ret\\n.size hot, .-hot\\n\");\n"
    )
}

/// Equal times come out as equal, however short the turns, and next to nothing is lost. The shortest are ten thousand in a minute,
/// over several drains, after each of which text is compared with memory, where the other library may be by then.
#[test]
fn samples_belong_to_the_library_that_was_there() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let loader = built(folder.path(), "loader", LOADER, &["-ldl"]);
    let options = ["-shared", "-nostdlib"];
    let first = built(folder.path(), "first.so", &library("imul %rax, %rax"), &options);
    let second = built(folder.path(), "second.so", &library("rorq $5, %rax"), &options);
    for (turn, seconds) in [("100", "2"), ("25", "2"), ("6", "7")] {
        let command = [
            loader.as_os_str(),
            first.as_os_str(),
            second.as_os_str(),
            turn.as_ref(),
            seconds.as_ref(),
        ];
        let profile = measured(folder.path(), &command);
        let report = report_by(profile.to_str().unwrap(), "module,function");
        let (in_mix, counted) = resolved(&report, "user");
        assert!(
            0.99 * counted as f64 <= in_mix as f64,
            "{turn}: {in_mix} of {counted}"
        );
        let of = |module| share(&shares(&profile, module), "hot");
        let (first, second) = (of("first.so"), of("second.so"));
        assert!(0.9 < first + second, "{turn}: {first} and {second}");
        let part = first / (first + second);
        assert!((0.42..0.58).contains(&part), "{turn}: {first} and {second}");
    }
}
