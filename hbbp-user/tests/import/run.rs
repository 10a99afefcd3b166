//! Running the program on files of a test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What a run printed.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: Option<i32>,
}

/// Runs `hbbp-sys` with these arguments.
pub(crate) fn hbbp(args: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_hbbp-sys"))
        .args(args)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran {
        out: text(&output.stdout),
        err: text(&output.stderr),
        code: output.status.code(),
    }
}

/// What a run cost, by the kernel's own account of the finished process.
#[derive(Debug)]
pub(crate) struct Usage {
    /// CPU time, which is the same on a busy machine.
    pub(crate) cpu: Duration,
    /// Peak resident memory in KiB.
    pub(crate) memory: u64,
}

/// Runs `hbbp-sys` with these arguments and its output thrown away; it must succeed.
#[track_caller]
#[expect(
    clippy::zombie_processes,
    reason = "wait4 waits for it, and says what it cost"
)]
pub(crate) fn usage(args: &[&str]) -> Usage {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hbbp-sys"));
    let child = command.args(args).stdout(Stdio::null()).spawn().unwrap();
    let (pid, mut status) = (i32::try_from(child.id()).unwrap(), 0);
    // SAFETY: rusage is plain numbers, and all zeroes is a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a child that has no other waiter, and valid memory for both results.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    assert_eq!((waited, status), (pid, 0), "{args:?}");
    let time = |time: libc::timeval| {
        let micros = time.tv_sec * 1_000_000 + time.tv_usec;
        Duration::from_micros(micros.try_into().unwrap())
    };
    Usage {
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        memory: usage.ru_maxrss.try_into().unwrap(),
    }
}

/// Fails where four times the input cost more than eight times the CPU time: a cost of n log n is within that, one of n^2 is
/// 16 times. Each of the two is the cheapest of some runs.
#[track_caller]
pub(crate) fn assert_no_worse_than_linear(quarter: &[Usage], whole: &[Usage]) {
    let cheapest = |runs: &[Usage]| runs.iter().map(|usage| usage.cpu).min().unwrap();
    assert!(
        cheapest(whole) < 8 * cheapest(quarter),
        "a quarter: {quarter:?}; the whole: {whole:?}"
    );
}

/// Runs `hbbp-sys report --details` of a recording of this program.
pub(crate) fn details(file: &Path, program: &str) -> Ran {
    hbbp(&["report", "--details", file.to_str().unwrap(), "--binary", program])
}

/// Runs `hbbp-sys export`, which must succeed, and returns what it printed.
#[track_caller]
pub(crate) fn export(file: &Path, args: &[&str]) -> String {
    let ran = hbbp(&[&["export", file.to_str().unwrap()], args].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.out
}

/// Runs `hbbp-sys import`, which must fail with one line, and returns that line.
#[track_caller]
pub(crate) fn refused(file: &Path, args: &[&str]) -> String {
    let target = file.with_extension("hbbp");
    let ran = hbbp(
        &[
            &["import", file.to_str().unwrap(), "-o", target.to_str().unwrap()],
            args,
        ]
        .concat(),
    );
    assert_eq!(
        (ran.code, ran.err.lines().count(), ran.out.as_str()),
        (Some(1), 1, ""),
        "{ran:?}"
    );
    assert!(!target.exists(), "no file may be left");
    ran.err
}

/// The lines that begin like this.
pub(crate) fn lines<'a>(text: &'a str, prefix: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.starts_with(prefix)).collect()
}

/// A folder for the files of a test.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }
}
