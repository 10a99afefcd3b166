//! `cargo xtask clean-room`: proves the README on a fresh Debian 12 with rustup's stable toolchain and nothing else.
//!
//! debootstrap makes the system in a folder, and the commands of the README run in it, on a clean clone of the
//! commit that is checked out here. Packages come from where this machine gets them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::command;
use crate::root::Root;

/// Debian 12.
const SUITE: &str = "bookworm";

/// The commands to prove, from the README, and at last a build of what is built already.
const COMMANDS: [&str; 4] = [
    "apt-get update -qq && apt-get install -qq --yes --no-install-recommends gcc libc6-dev",
    "cargo xtask run -- --duration 10",
    "cargo xtask test",
    "cargo xtask build",
];

/// What of this machine reaches the packages: where they are, whom to trust, how to resolve names. See [`copy_authorities`].
const NETWORK: [&str; 5] = [
    "etc/apt/sources.list",
    "etc/apt/sources.list.d/debian.sources",
    "etc/ssl/certs/ca-certificates.crt",
    "etc/resolv.conf",
    "etc/hosts",
];

/// The names under which rustup replaces the programs of a toolchain.
const PROXIES: [&str; 7] = [
    "cargo",
    "rustc",
    "rustdoc",
    "cargo-fmt",
    "rustfmt",
    "cargo-clippy",
    "clippy-driver",
];

/// Makes the system, runs the commands in it, prints their times, and removes it.
pub(crate) fn clean_room() -> Result<()> {
    let root = Root::create(SUITE, &[], "clean-room")?;
    copy_network(&root)?;
    copy_authorities(&root.path)?;
    copy_rustup(&root.path)?;
    root.enter("rustup default stable")?;
    let clone = root.path.join("root/hbbp-sys");
    command::run(
        Command::new("git")
            .args(["clone", "--quiet"])
            .arg(command::workspace())
            .arg(&clone),
    )?;

    let mut times = Vec::new();
    for command in COMMANDS {
        println!("== {command}");
        let start = Instant::now();
        root.enter(&format!("cd hbbp-sys && {command}"))?;
        let time = start.elapsed();
        println!("== {:.1} s", time.as_secs_f64());
        times.push((command, time));
    }
    for (command, time) in times {
        println!("{:7.1} s  {command}", time.as_secs_f64());
    }
    root.remove()
}

fn copy_network(root: &Root) -> Result<()> {
    for name in NETWORK {
        let from = Path::new("/").join(name);
        if from.exists() {
            root.copy(&from, name)?;
        }
    }
    Ok(())
}

/// Copies the certificate authorities that this machine has added to Debian's: the package of those writes the file anew.
fn copy_authorities(root: &Path) -> Result<()> {
    let added = Path::new("/usr/local/share/ca-certificates");
    if !added.is_dir() {
        return Ok(());
    }
    command::run(
        Command::new("cp")
            .args(["--recursive", "--no-target-directory"])
            .arg(added)
            .arg(root.join("usr/local/share/ca-certificates")),
    )
}

/// Copies rustup and its stable toolchain, and nothing else of what cargo and rustup keep.
fn copy_rustup(root: &Path) -> Result<()> {
    let sysroot = path(Command::new("rustup").args(["run", "stable", "rustc", "--print", "sysroot"]))?;
    let rustup = path(Command::new("sh").args(["-c", "command -v rustup"]))?;
    let toolchains = root.join("root/.rustup/toolchains");
    let bin = root.join("root/.cargo/bin");
    for folder in [&toolchains, &bin] {
        fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    }
    command::run(Command::new("cp").arg("--archive").arg(&sysroot).arg(&toolchains))?;
    let to = bin.join("rustup");
    fs::copy(&rustup, &to).with_context(|| format!("failed to copy {}", rustup.display()))?;
    for name in PROXIES {
        symlink("rustup", bin.join(name)).with_context(|| format!("failed to link {name} to rustup"))?;
    }
    Ok(())
}

/// The path that a command prints.
fn path(command: &mut Command) -> Result<PathBuf> {
    Ok(PathBuf::from(command::stdout(command)?.trim_end()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::COMMANDS;
    use crate::command;

    #[test]
    fn first_commands_are_those_of_the_readme() {
        let readme = fs::read_to_string(command::workspace().join("README.md")).unwrap();
        let [_, run, test, _] = COMMANDS;
        for command in [run, test] {
            assert!(readme.lines().any(|line| line.starts_with(command)), "{command}");
        }
    }
}
