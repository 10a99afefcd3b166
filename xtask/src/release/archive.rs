//! The archives of a release. Their bytes depend on what is in them alone: names are sorted, and times are that of the commit.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use hbbp_toolchain::OBJECTS_OF_RELEASE;

use super::{Release, bill_of_materials, files, git, objects, time_of_commit};
use crate::{command, manual};

/// What is packed with the program, by its path in the workspace.
const BESIDE_THE_PROGRAM: [&str; 7] = [
    "README.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "hbbp-user/package/Containerfile",
    "hbbp-user/package/hbbp-sys.service",
    "hbbp-user/package/monitoring/alerts.yaml",
    "hbbp-user/package/monitoring/dashboard.json",
];

/// The program with its man pages, completions and service.
pub(super) fn program_archive(release: &Release) -> Result<()> {
    let folder = release.file("-x86_64-linux");
    files::empty(&folder)?;
    let copy_into = |from: &Path| {
        let to = folder.join(from.file_name().unwrap_or_default());
        fs::copy(from, &to).with_context(|| format!("failed to copy {} to {}", from.display(), to.display()))
    };
    copy_into(&release.program.path)?;
    for file in BESIDE_THE_PROGRAM {
        copy_into(&command::workspace().join(file))?;
    }
    let mut copy = Command::new("cp");
    copy.arg("--recursive")
        .arg(command::workspace().join(manual::FOLDER));
    command::run(copy.arg(&folder))?;
    pack(&folder)?;
    files::remove(&folder)
}

/// The source of the commit with the eBPF objects: builds of it need no compiler for eBPF, and crates are published from it.
/// The bill of materials is read from it too.
pub(super) fn source_archive(release: &Release) -> Result<()> {
    let folder = release.file("-source");
    files::empty(&folder)?;
    let tar = release.file("-source.tar");
    command::run(git(&["archive", "--format=tar", "HEAD", "--output"]).arg(&tar))?;
    let mut unpack = Command::new("tar");
    command::run(
        unpack
            .arg("--extract")
            .arg("--file")
            .arg(&tar)
            .arg("--directory")
            .arg(&folder),
    )?;
    fs::remove_file(&tar).with_context(|| format!("failed to remove {}", tar.display()))?;
    let collect = folder.join("hbbp-user/collect");
    objects::copy(&release.program.objects, &collect.join(OBJECTS_OF_RELEASE))?;
    pack(&folder)?;
    // It leaves files among the sources.
    bill_of_materials::write(release, &folder)?;
    files::remove(&folder)
}

/// Packs a folder to an archive next to it.
fn pack(folder: &Path) -> Result<()> {
    let time = time_of_commit()?;
    let name = folder.file_name().unwrap_or_default();
    let mut archive = folder.as_os_str().to_owned();
    archive.push(".tar.gz");
    let mut tar = Command::new("tar");
    tar.args([
        "--create",
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
    ]);
    tar.arg(format!("--mtime=@{time}"));
    tar.args([
        "--mode=u+rw,go+r,go-w",
        "--use-compress-program=gzip -9 --no-name",
        "--file",
    ]);
    tar.arg(&archive).arg("--directory");
    command::run(tar.arg(folder.parent().unwrap_or(folder)).arg(name))
}
