//! `cargo xtask try-release`: the packages in `target/dist` on fresh systems of old and new C libraries, from nothing to the
//! first table, and away again; then their service, and the source release.

mod service;
mod source;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::{FOLDER, files, program};
use crate::command;
use crate::root::Root;

/// A system and the package manager that is tried on it.
struct Trial {
    /// The suite of Debian's.
    suite: &'static str,
    manager: &'static Manager,
}

/// The commands of a package manager.
struct Manager {
    /// The end of the name of its packages.
    ending: &'static str,
    /// What Debian needs for it.
    packages: &'static [&'static str],
    /// Makes what a system of this manager has.
    prepare: &'static str,
    /// Takes the path of the package.
    install: &'static str,
    remove: &'static str,
}

const DPKG: Manager = Manager {
    ending: ".deb",
    packages: &[],
    prepare: "true",
    install: "dpkg --install",
    remove: "dpkg --purge hbbp-sys",
};

/// Debian's rpm asks whether it is meant, and does not know that Debian has `/bin/sh`. Its packages have no directory that
/// several of them use: the system has these (Fedora's packages `filesystem`, `fish` and `zsh`).
const RPM: Manager = Manager {
    ending: ".rpm",
    packages: &["rpm"],
    prepare: "mkdir -p /usr/share/licenses /usr/share/fish/vendor_completions.d /usr/share/zsh/site-functions",
    install: "rpm --install --force-debian --nodeps",
    remove: "rpm --verify --nodeps hbbp-sys && rpm --erase hbbp-sys",
};

/// Debian 11, whose C library is that of Ubuntu 20.04, 12 and 13. No system of an rpm distribution is in Debian's archive.
const TRIALS: [Trial; 4] = [
    Trial {
        suite: "bullseye",
        manager: &DPKG,
    },
    Trial {
        suite: "bookworm",
        manager: &DPKG,
    },
    Trial {
        suite: "trixie",
        manager: &DPKG,
    },
    Trial {
        suite: "bookworm",
        manager: &RPM,
    },
];

/// The first table.
const MEASURE: &str = "hbbp-sys --duration 5";

/// What else the program must do without a system around it.
const USE: &str = "hbbp-sys man report > /dev/null && hbbp-sys completions bash > /dev/null";

/// All files but the logs and lists that package managers keep of what they did.
const LIST: &str = "find / -xdev -path /var/lib/dpkg -prune -o -path /var/lib/rpm -prune -o -name .rpmdb -prune -o \
                    -path /var/log -prune -o -path /var/cache -prune -o -path /trial -prune -o -print | sort";

/// Tries the packages on each system, the service on one with systemd, and the source; prints the times.
pub(crate) fn try_release() -> Result<()> {
    let mut results = Vec::new();
    for trial in &TRIALS {
        let package = the_file(trial.manager.ending)?;
        let seconds = trial.run(&package)?;
        results.push(format!(
            "{seconds:6.1} s  {} *{}",
            trial.suite, trial.manager.ending
        ));
    }
    let package = the_file(DPKG.ending)?;
    let required = required(&package)?;
    service::try_service(&package)?;
    source::try_source(&the_file("-source.tar.gz")?)?;
    println!("from the package to the first table, of which 5 s are measured:");
    for result in results {
        println!("{result}");
    }
    println!("loader, libraries and versions of symbols that the program requires: {required}");
    println!("the service was started, measured, and left nothing");
    println!("the source was built, installed and packed without a toolchain for eBPF");
    Ok(())
}

impl Trial {
    /// Installs, measures, removes, and looks for what is left; the seconds from the package to the table.
    fn run(&self, package: &Path) -> Result<f64> {
        let manager = self.manager;
        let root = Root::create(self.suite, manager.packages, "roots/trial")?;
        let path = format!("trial/hbbp-sys{}", manager.ending);
        root.copy(package, &path)?;
        root.enter(manager.prepare)?;
        root.enter(&format!("{LIST} > /trial/before"))?;
        let start = Instant::now();
        root.enter(&format!("{} /{path}", manager.install))?;
        root.enter(MEASURE)?;
        let seconds = start.elapsed().as_secs_f64();
        root.enter(USE)?;
        root.enter(manager.remove)?;
        root.enter(&format!("{LIST} > /trial/after; diff /trial/before /trial/after"))
            .with_context(|| format!("the package leaves files on {}", self.suite))?;
        root.remove()?;
        Ok(seconds)
    }
}

/// What the program in a Debian package requires of the system.
fn required(package: &Path) -> Result<String> {
    let folder = command::workspace().join("target/roots/package");
    files::empty(&folder)?;
    let mut extract = Command::new("dpkg-deb");
    command::run(extract.arg("--extract").args([package, &folder]))?;
    let required = program::required(&folder.join("usr/bin/hbbp-sys"))?;
    files::remove(&folder)?;
    Ok(if required.is_empty() {
        "none".to_owned()
    } else {
        required.into_iter().collect::<Vec<_>>().join(", ")
    })
}

/// The file of the release with this ending. There is one, as each release empties the folder.
fn the_file(ending: &str) -> Result<PathBuf> {
    let folder = command::workspace().join(FOLDER);
    let entries = fs::read_dir(&folder)
        .with_context(|| format!("failed to list {}: run `cargo xtask release`", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(ending) {
            return Ok(path);
        }
    }
    bail!("{FOLDER} holds no *{ending}: run `cargo xtask release`")
}
