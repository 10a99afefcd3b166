//! `cargo xtask release`: makes the files of a release in `target/dist`, on a tag as on any machine.
//!
//! | file | what it is |
//! |---|---|
//! | `hbbp-sys-VERSION-x86_64-linux.tar.gz` | the program, its man pages, completions and service |
//! | `hbbp-sys-VERSION-x86_64-linux.debug` | the debug information of the program |
//! | `hbbp-sys_VERSION-1_amd64.deb`, `hbbp-sys-VERSION-1.x86_64.rpm` | the same as packages |
//! | `hbbp-sys-VERSION-source.tar.gz` | the source of the commit, and the eBPF objects of its build |
//! | `hbbp-sys-VERSION.cdx.json` | the crates in the program, as a CycloneDX bill of materials |
//! | `SHA256SUMS` | checksums of these |

pub(crate) mod objects;
pub(crate) mod trial;

mod archive;
mod bill_of_materials;
mod changelog;
mod files;
mod program;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::setup::{self, Install, Needs};
use crate::{command, manual};
use archive::{program_archive, source_archive};
use program::{Program, TARGET};

/// Where the files go.
const FOLDER: &str = "target/dist";

/// The package of the program, and its folder.
const PACKAGE: &str = "hbbp-sys";
const PACKAGE_FOLDER: &str = "hbbp-user";

/// A release in the making.
struct Release {
    version: String,
    folder: PathBuf,
    program: Program,
}

impl Release {
    fn file(&self, rest: &str) -> PathBuf {
        self.folder.join(format!("hbbp-sys-{}{rest}", self.version))
    }
}

/// Makes all files.
pub(crate) fn release(install: Install) -> Result<()> {
    setup::setup(Needs::Release, install)?;
    let version = changelog::released_version()?;
    let folder = command::workspace().join(FOLDER);
    files::empty(&folder)?;
    let program = Program::build()?;
    manual::write(&program.path)?;
    let release = Release {
        version,
        folder,
        program,
    };
    program_archive(&release)?;
    let debug = release.file("-x86_64-linux.debug");
    fs::copy(&release.program.debug, &debug)
        .with_context(|| format!("failed to write {}", debug.display()))?;
    source_archive(&release)?;
    debian_package(&release)?;
    rpm_package(&release)?;
    files::write_checksums(&release.folder)?;
    println!("the files of release {} are in {FOLDER}", release.version);
    Ok(())
}

/// Its contents are listed in the manifest of the program (`package.metadata.deb`).
fn debian_package(release: &Release) -> Result<()> {
    let mut deb = command::cargo();
    deb.args(["deb", "--quiet", "--no-build", "--no-strip", "--package", PACKAGE]);
    deb.args(["--target", TARGET, "--maintainer", &maintainer()?]);
    deb.env("SOURCE_DATE_EPOCH", time_of_commit()?);
    command::run(deb.arg("--output").arg(&release.folder))
}

/// What is in it is in the manifest of the program (`package.metadata.generate-rpm`), which is found by its folder.
fn rpm_package(release: &Release) -> Result<()> {
    let mut rpm = command::cargo();
    rpm.args(["generate-rpm", "--package", PACKAGE_FOLDER]);
    rpm.args(["--target", TARGET, "--output"]);
    rpm.env("SOURCE_DATE_EPOCH", time_of_commit()?);
    command::run(rpm.arg(&release.folder))
}

/// Who made the commit that is released.
fn maintainer() -> Result<String> {
    let author = command::stdout(&mut git(&["log", "-1", "--format=%an <%ae>"]))?;
    Ok(author.trim().to_owned())
}

/// When that was, in seconds: files of a release have no other time.
fn time_of_commit() -> Result<String> {
    let time = command::stdout(&mut git(&["log", "-1", "--format=%ct"]))?;
    Ok(time.trim().to_owned())
}

/// Git in the top folder of the workspace.
fn git(args: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.args(args).current_dir(command::workspace());
    git
}

/// Writes the eBPF objects that a build here makes to a folder.
pub(crate) fn write_objects(folder: &Path, install: Install) -> Result<()> {
    setup::setup(Needs::Build, install)?;
    let mut build = command::cargo();
    build.args(["check", "--package", "hbbp-collect"]);
    objects::copy(&objects::folder_of_build(&mut build)?, folder)
}
