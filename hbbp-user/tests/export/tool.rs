//! Programs that read exports, and the program under test.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) use crate::missing::missing;

/// LLVM of Debian's packages, as for the eBPF linker.
const LLVM: &str = "22";

/// A program of LLVM, such as `llvm-profgen`; `None`, with the reason printed, where it is not installed.
pub(crate) fn llvm(name: &str) -> Option<PathBuf> {
    found(
        name,
        &[
            PathBuf::from(format!("/usr/bin/{name}-{LLVM}")),
            PathBuf::from(format!("/usr/lib/llvm-{LLVM}/bin/{name}")),
        ],
    )
}

/// Any other program in the path.
pub(crate) fn other(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> = std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .collect();
    found(name, &places)
}

fn found(name: &str, places: &[PathBuf]) -> Option<PathBuf> {
    let place = places.iter().find(|place| place.is_file()).cloned();
    if place.is_none() {
        missing(&format!(
            "{name} is not installed; `cargo xtask setup` installs it"
        ));
    }
    place
}

/// Runs a command, which must succeed.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// What a command prints, which must succeed.
#[track_caller]
pub(crate) fn said(command: &mut Command) -> String {
    String::from_utf8_lossy(&run(command).stdout).into_owned()
}

/// `hbbp-sys` with these arguments.
pub(crate) fn hbbp(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hbbp-sys"));
    command.args(args);
    command
}

/// Exports to a file: what is printed, and what is said on standard error.
#[track_caller]
pub(crate) fn export(input: &Path, format: &str, output: &Path, more: &[&str]) -> (String, String) {
    let mut command = hbbp(&["export", input.to_str().unwrap(), "--format", format, "-o"]);
    let output = run(command.arg(output).args(more));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// What a script of this folder prints, run by the Python that `cargo xtask setup` installs packages for; `None`, with the
/// reason printed, where it is not there.
#[track_caller]
pub(crate) fn python(script: &str, files: &[&Path]) -> Option<String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let python = target.join("readers/bin/python");
    if !python.is_file() {
        missing("Python packages that read exports are not installed; `cargo xtask setup` installs them");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/export")
        .join(script);
    Some(said(Command::new(python).arg(script).args(files)))
}
