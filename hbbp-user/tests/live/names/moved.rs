//! Text that a program moved to memory before it was measured, as for huge pages.

use super::*;

/// Maps memory over its own text: `mover MODE`. `part`: over both functions, `all`: over all of its text, `other`: over both
/// functions, with code of a compiler at run time instead of theirs.
const MOVER: &str = r#"
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
extern char __executable_start[], etext[], hot_end[];
static const unsigned char other[] = "\xb9\x00\x09\x3d\x00\x48\x83\xc0\x07\xff\xc9\x75\xf8\xc3";
static void move(char *mode) {
  unsigned long start = (unsigned long)hot_mul & -4096, end = ((unsigned long)hot_end + 4095) & -4096;
  if (*mode == 'a') start = (unsigned long)__executable_start + 4096, end = ((unsigned long)etext + 4095) & -4096;
  char *copy = mmap(0, end - start, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(copy, (void *)start, end - start);
  if (*mode == 'o') {
    memcpy(copy + ((unsigned long)hot_mul - start), other, sizeof other);
    memset(copy + ((unsigned long)hot_rot - start), 0xc3, 1);
  }
  mprotect(copy, end - start, PROT_READ | PROT_EXEC);
  mremap(copy, end - start, end - start, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)start);
}
int main(int argc, char **argv) {
  move(argv[1]);
  write(1, "\n", 1);
  for (double end = now() + 60; now() < end; hot_rot()) hot_mul();
}
"#;

/// Measures the program, which has moved its text already.
fn measured_after_moving(file: &Path, mode: &str) -> Vec<(String, f64)> {
    let mut child = Command::new(file)
        .arg(mode)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut moved = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut moved).unwrap();
    let profile = file.with_extension("profile");
    let [pid, path] = [child.id().to_string(), profile.to_str().unwrap().to_owned()];
    let output = program(&["record", "-o", &path, "--pid", &pid, "--duration", "3"])
        .output()
        .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = report_by(&path, "function");
    let rows = report["mix"]["rows"].as_array().unwrap();
    let amount = |row: &Value| number(&row["user"]["amount"]);
    let all: u64 = rows.iter().map(amount).sum();
    let share = |row: &Value| {
        (
            row["key"][0].as_str().unwrap().to_owned(),
            amount(row) as f64 / all as f64,
        )
    };
    rows.iter().map(share).collect()
}

#[test]
fn text_that_was_moved_to_memory_has_its_names() {
    let Some(_kernel) = kernel() else { return };
    let folder = tempfile::tempdir().unwrap();
    let clock = MAIN.split("int main").next().unwrap();
    let hot = HOT
        .replacen(".text\\n%s", &format!(".text\\n.balign 4096\\n{LABELS}"), 1)
        .replace("%s", "");
    let source = format!(
        "#define _GNU_SOURCE\n{clock}{MOVER}{}",
        hot.replace("hot_end:", ".balign 4096\\n.globl hot_end\\nhot_end:")
    );
    let file = built(folder.path(), "mover", &source, &[]);
    for mode in ["part", "all"] {
        let shares = measured_after_moving(&file, mode);
        let (mul, rot) = (share(&shares, "hot_mul"), share(&shares, "hot_rot"));
        assert!(0.9 < mul + rot && 0.05 < rot && rot < mul, "{mode}: {shares:?}");
    }
    let shares = measured_after_moving(&file, "other");
    assert!(0.8 < share(&shares, "[[anon]]"), "{shares:?}");
    assert_eq!(
        (share(&shares, "hot_mul"), share(&shares, "hot_rot")),
        (0.0, 0.0),
        "{shares:?}"
    );
}
