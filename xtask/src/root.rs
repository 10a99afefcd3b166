//! A fresh Debian in a folder, by debootstrap, whose commands are run as root of it.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::{command, system};

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

/// The variables of ours that a command in the system has as well.
const KEPT_VARIABLES: [&str; 4] = ["TERM", "http_proxy", "https_proxy", "no_proxy"];

/// What of this machine reaches the packages: where they are, whom to trust, how to resolve names.
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

/// A system in a folder.
pub(crate) struct Root {
    pub(crate) path: PathBuf,
}

impl Root {
    /// Makes the system of this suite of Debian's with some more packages in a folder below `target`, instead of what is there.
    pub(crate) fn create(suite: &str, packages: &[&str], folder: &str) -> Result<Self> {
        ensure!(system::is_root(), "creating a system in a directory needs root");
        let path = command::workspace().join("target").join(folder);
        let root = Self { path };
        root.clear()?;
        println!("creating a {suite} system in {}", root.path.display());
        fs::create_dir_all(&root.path)
            .with_context(|| format!("failed to create {}", root.path.display()))?;
        let mut debootstrap = Command::new("debootstrap");
        debootstrap.arg("--variant=minbase");
        if !packages.is_empty() {
            debootstrap.arg(format!("--include={}", packages.join(",")));
        }
        // Its errors go elsewhere than its hundreds of lines of progress.
        command::run(debootstrap.arg(suite).arg(&root.path).stdout(Stdio::null()))
            .context("failed to create the system with debootstrap (Debian package debootstrap)")?;
        Ok(root)
    }

    /// Runs a shell line in the system, with nothing of our environment but the terminal and the proxies.
    pub(crate) fn enter(&self, line: &str) -> Result<()> {
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--mount", "sh", "-c", ENTER, "enter"])
            .arg(&self.path)
            .arg(line)
            .env_clear();
        unshare
            .envs(env::vars_os().filter(|(name, _)| KEPT_VARIABLES.iter().any(|variable| name == variable)));
        let path = format!("{HOME}/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        let status = unshare
            .env("HOME", HOME)
            .env("PATH", path)
            .status()
            .context("failed to start unshare")?;
        ensure!(
            status.success(),
            "failed to run `{line}` in {}: {status}",
            self.path.display()
        );
        Ok(())
    }

    /// Copies a file to this path in the system, and makes its folder.
    pub(crate) fn copy(&self, from: &Path, to: &str) -> Result<()> {
        let to = self.path.join(to);
        let parent = to.parent().unwrap_or(&self.path);
        fs::create_dir_all(parent).with_context(|| format!("failed to create {}", parent.display()))?;
        fs::copy(from, &to).with_context(|| format!("failed to copy {}", from.display()))?;
        Ok(())
    }

    /// Copies what reaches the packages from here. Certificate authorities that this machine has added to Debian's are copied
    /// as files of their own too, as Debian's package writes the list anew.
    pub(crate) fn copy_network(&self) -> Result<()> {
        for name in NETWORK {
            let from = Path::new("/").join(name);
            if from.exists() {
                self.copy(&from, name)?;
            }
        }
        let added = Path::new("/usr/local/share/ca-certificates");
        if !added.is_dir() {
            return Ok(());
        }
        let mut copy = Command::new("cp");
        copy.args(["--recursive", "--no-target-directory"]).arg(added);
        command::run(copy.arg(self.path.join("usr/local/share/ca-certificates")))
    }

    /// Copies rustup and its stable toolchain, and nothing else of what cargo and rustup keep.
    pub(crate) fn copy_rust(&self) -> Result<()> {
        let sysroot = path(Command::new("rustup").args(["run", "stable", "rustc", "--print", "sysroot"]))?;
        let rustup = path(Command::new("sh").args(["-c", "command -v rustup"]))?;
        let toolchains = self.path.join("root/.rustup/toolchains");
        let bin = self.path.join("root/.cargo/bin");
        for folder in [&toolchains, &bin] {
            fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
        }
        command::run(Command::new("cp").arg("--archive").arg(&sysroot).arg(&toolchains))?;
        let to = bin.join("rustup");
        fs::copy(&rustup, &to).with_context(|| format!("failed to copy {}", rustup.display()))?;
        for name in PROXIES {
            symlink("rustup", bin.join(name)).with_context(|| format!("failed to link {name} to rustup"))?;
        }
        self.enter("rustup default stable")
    }

    /// Removes the system.
    pub(crate) fn remove(self) -> Result<()> {
        self.clear()
    }

    fn clear(&self) -> Result<()> {
        // Not fs::remove_dir_all: what is mounted there must stay, whatever went wrong before.
        command::run(
            Command::new("rm")
                .args(["--recursive", "--force", "--one-file-system"])
                .arg(&self.path),
        )
    }
}

/// The path that a command prints.
fn path(command: &mut Command) -> Result<PathBuf> {
    Ok(PathBuf::from(command::stdout(command)?.trim_end()))
}
