//! Running the program on files of a test.

use std::path::{Path, PathBuf};
use std::process::Command;

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
    assert!(!target.exists(), "nothing may be left behind");
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
