//! Programs that are compiled and started by the test, and their output.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use hbbp_resolve::user::proc_scan::{Scanned, read_process};

use super::skip::skip;

/// Prints the address of its function `spin` and waits.
pub(super) const PROGRAM: &str = r#"
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) int spin(int n) { int s = 0; for (int i = 0; i < n; i++) s += i * n; return s; }
int main(int argc, char **argv) { printf("%lx\n", (unsigned long)spin); fflush(stdout); pause(); return spin(argc); }
"#;

/// The same for 32-bit code on machines without a 32-bit C library: system calls by hand.
pub(super) const NARROW: &str = r#"
static int call(int n, int a, const void *b, int c) {
  int r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(n), "b"(a), "c"(b), "d"(c) : "memory"); return r;
}
__attribute__((noinline)) int spin(int n) { int s = 0; for (int i = 0; i < n; i++) s += i * n; return s; }
void _start(void) {
  char out[9]; unsigned at = (unsigned)spin;
  for (int i = 7; 0 <= i; i--, at >>= 4) out[i] = "0123456789abcdef"[at & 15];
  out[8] = '\n';
  call(4, 1, out, 9); call(29, 0, 0, 0); call(1, spin(at), 0, 0);
}
"#;

/// Maps its own code twice: as a file in memory and as memory without a file. Prints both addresses.
pub(super) const COMPILER: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
int main(void) {
  unsigned char code[64]; memset(code, 0x90, 64); code[63] = 0xc3;
  int fd = memfd_create("jit", 0);
  if (write(fd, code, 64) != 64) return 1;
  void *shared = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
  void *plain = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(plain, code, 64);
  printf("%lx\n%lx\n", (unsigned long)shared, (unsigned long)plain); fflush(stdout);
  pause(); return 0;
}
"#;

/// A program that prints where its code is, and waits.
pub(super) struct Running {
    pub(super) child: Child,
    folder: PathBuf,
    pub(super) addresses: Vec<u64>,
}

impl Running {
    pub(super) fn start(program: &Path, n_addresses: usize) -> Self {
        let folder = program.parent().expect("a folder of its own");
        Self::of_command(Command::new(program).stdout(Stdio::piped()), folder, n_addresses)
            .expect("it starts")
    }

    /// Starts a command and reads the addresses that it prints; `None` if it prints none.
    pub(super) fn of_command(command: &mut Command, folder: &Path, n_addresses: usize) -> Option<Self> {
        let mut child = command.spawn().ok()?;
        let lines = BufReader::new(child.stdout.take()?).lines().take(n_addresses);
        let addresses = lines
            .map(|line| u64::from_str_radix(&line.ok()?, 16).ok())
            .collect::<Option<Vec<_>>>();
        let addresses = addresses
            .filter(|found| found.len() == n_addresses)
            .unwrap_or_default();
        let running = Self {
            child,
            folder: folder.to_owned(),
            addresses,
        };
        (!running.addresses.is_empty()).then_some(running)
    }

    pub(super) fn scanned(&self) -> Scanned {
        read_process(self.child.id()).expect("it waits")
    }

    pub(super) fn end(&mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Compiles a program into a folder of its own; `None`, with the reason printed, where this machine cannot.
pub(super) fn compile(name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let dir = std::env::temp_dir().join(format!("hbbp-resolve-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("scratch folder");
    let (input, output) = (dir.join("program.c"), dir.join(name));
    std::fs::write(&input, source).expect("write");
    let made = Command::new("cc")
        .args(["-O1", "-o"])
        .arg(&output)
        .arg(&input)
        .args(flags)
        .output();
    match made {
        Ok(made) if made.status.success() => Some(output),
        Ok(made) => {
            std::fs::remove_dir_all(dir).expect("clean up");
            skip(&format!(
                "{name}: {}",
                String::from_utf8_lossy(&made.stderr).replace('\n', " ")
            ));
            None
        }
        Err(error) => {
            std::fs::remove_dir_all(dir).expect("clean up");
            skip(&format!("{name}: no C compiler: {error}"));
            None
        }
    }
}
