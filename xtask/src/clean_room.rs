//! `cargo xtask clean-room`: proves the README on a fresh Debian 12 with rustup's stable toolchain and nothing else.
//!
//! debootstrap makes the system in a folder, and the commands of the README run in it, on a clean clone of the
//! commit that is checked out here. Packages come from where this machine gets them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::{command, system};

/// Debian 12.
const SUITE: &str = "bookworm";

/// Where the folder becomes the root of a system; the mounts go when the command ends, with their namespace.
const ENTER: &str = r#"
set -e
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
exec chroot "$1" sh -c "cd; $2"
"#;

/// The home of root.
const HOME: &str = "/root";

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
    ensure!(system::is_root(), "creating a system in a directory needs root");
    let root = command::workspace().join("target/clean-room");
    remove(&root)?;
    println!("creating a {SUITE} system in {}", root.display());
    let mut debootstrap = Command::new("debootstrap");
    // Its errors go elsewhere than its hundreds of lines of progress.
    command::run(
        debootstrap
            .args(["--variant=minbase", SUITE])
            .arg(&root)
            .stdout(Stdio::null()),
    )
    .context("failed to create the system with debootstrap (Debian package debootstrap)")?;
    copy_network(&root)?;
    copy_authorities(&root)?;
    copy_rustup(&root)?;
    enter(&root, "rustup default stable")?;
    let clone = root.join("root/hbbp-sys");
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
        enter(&root, &format!("cd hbbp-sys && {command}"))?;
        let time = start.elapsed();
        println!("== {:.1} s", time.as_secs_f64());
        times.push((command, time));
    }
    for (command, time) in times {
        println!("{:7.1} s  {command}", time.as_secs_f64());
    }
    remove(&root)
}

/// Runs a shell line in the system, with nothing of our environment but the terminal and the proxies.
fn enter(root: &Path, line: &str) -> Result<()> {
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--mount", "sh", "-c", ENTER, "enter"])
        .arg(root)
        .arg(line)
        .env_clear();
    let kept = ["TERM", "http_proxy", "https_proxy", "no_proxy"];
    unshare.envs(std::env::vars_os().filter(|(name, _)| kept.iter().any(|it| name == it)));
    let path = format!("{HOME}/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    let status = unshare
        .env("HOME", HOME)
        .env("PATH", path)
        .status()
        .context("failed to start unshare")?;
    ensure!(
        status.success(),
        "failed to run `{line}` in {}: {status}",
        root.display()
    );
    Ok(())
}

fn copy_network(root: &Path) -> Result<()> {
    for name in NETWORK {
        let from = Path::new("/").join(name);
        let to = root.join(name);
        if from.exists() {
            create_parent(&to)?;
            fs::copy(&from, &to).with_context(|| format!("failed to copy {}", from.display()))?;
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

fn create_parent(path: &Path) -> Result<()> {
    let Some(parent) = path.parent() else {
        return Ok(());
    };
    fs::create_dir_all(parent).with_context(|| format!("failed to create {}", parent.display()))
}

fn remove(root: &Path) -> Result<()> {
    // Not fs::remove_dir_all: what is mounted there must stay, whatever went wrong before.
    command::run(
        Command::new("rm")
            .args(["--recursive", "--force", "--one-file-system"])
            .arg(root),
    )
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
