//! Running another program as a step of a task: it must succeed, and talks to the terminal itself unless it is asked for its output.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Error, Result, anyhow, ensure};

/// Runs a command to its end, with our terminal; an error names the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("failed to start {command:?}"))?;
    ensure!(status.success(), "failed to run {command:?}: {status}");
    Ok(())
}

/// Becomes a command, so that Ctrl-C and the exit code are its own; returns only if that fails.
pub(crate) fn exec(command: &mut Command) -> Error {
    let err = command.exec();
    anyhow!("failed to start {command:?}: {err}")
}

/// What a command prints to its standard output; an error names the command.
pub(crate) fn stdout(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("failed to start {command:?}"))?;
    ensure!(
        output.status.success(),
        "failed to run {command:?}: {}",
        output.status
    );
    String::from_utf8(output.stdout).with_context(|| format!("failed to read the output of {command:?}"))
}

/// The cargo that runs xtask, in the top folder of the workspace.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    cargo.current_dir(workspace());
    cargo
}

/// The top folder of the workspace.
pub(crate) fn workspace() -> PathBuf {
    let xtask = env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.parent().map_or_else(|| xtask.clone(), Path::to_path_buf)
}
