//! The host side of a run: where files are kept, and how other programs are called.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Directory of everything the harness keeps between runs: `target/vm` of the workspace.
///
/// # Errors
/// When it cannot be made.
pub fn work_directory() -> Result<PathBuf> {
    let directory = target_directory().join("vm");
    fs::create_dir_all(&directory).with_context(|| format!("failed to make {}", directory.display()))?;
    Ok(directory)
}

/// Cargo's target directory.
pub fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// Root of the workspace.
pub fn workspace() -> PathBuf {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    package.parent().map_or_else(|| package.clone(), PathBuf::from)
}

/// Runs a program to its end.
///
/// # Errors
/// When it cannot be started or fails; the message holds the command and what it printed.
pub fn run(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

/// Runs a program to its end and returns its standard output.
///
/// # Errors
/// As [`run`].
pub fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("failed to start {name}: is it installed?"))?;
    if !output.status.success() {
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{name} {} ended with {}:\n{}",
            words.join(" "),
            output.status,
            said.trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
