//! The program of a release: static, so that it runs on any distribution, and without debug information.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::objects;
use crate::{build, command};

/// It is named to cargo, so that the flag for static programs does not hold for build scripts.
pub(super) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Most bytes of the program.
const LARGEST: u64 = 30_000_000;

/// The program, built.
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// Its debug information.
    pub(super) debug: PathBuf,
    /// The folder of the eBPF objects in it.
    pub(super) objects: PathBuf,
}

impl Program {
    /// Builds it and checks that it needs nothing of the system.
    pub(super) fn build() -> Result<Self> {
        let mut cargo = command::cargo();
        cargo.args(["build", "--release", "--locked", "--package", super::PACKAGE]);
        cargo.args(["--bin", "hbbp-sys", "--target", TARGET]);
        cargo.env_remove("CARGO_ENCODED_RUSTFLAGS");
        cargo.env("RUSTFLAGS", "-C target-feature=+crt-static");
        let objects = objects::folder_of_build(&mut cargo)?;
        let path = command::workspace()
            .join("target")
            .join(TARGET)
            .join("release/hbbp-sys");
        let debug = build::split(&path)?;
        let required = required(&path)?;
        ensure!(
            required.is_empty(),
            "{} is not static: it requires {required:?}",
            path.display()
        );
        let size = fs::metadata(&path)
            .with_context(|| format!("failed to read {}", path.display()))?
            .len();
        ensure!(
            size <= LARGEST,
            "{} has {size} bytes, more than {LARGEST}",
            path.display()
        );
        println!("{}: static, {size} bytes", path.display());
        Ok(Self { path, debug, objects })
    }
}

/// What a program requires of the system it runs on: its interpreter, shared libraries, and versions of their symbols.
pub(super) fn required(program: &Path) -> Result<BTreeSet<String>> {
    let mut readelf = Command::new("readelf");
    readelf.args(["--wide", "--program-headers", "--dynamic", "--version-info"]);
    readelf.arg(program).env("LC_ALL", "C");
    Ok(parse_required(&command::stdout(&mut readelf)?))
}

/// The names in brackets after `NEEDED` and `interpreter:`, and those after `Name:` of versions.
fn parse_required(readelf: &str) -> BTreeSet<String> {
    let bracketed = |line: &str| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned());
    let requirement = |line: &str| {
        if line.contains("(NEEDED)") || line.contains("program interpreter:") {
            bracketed(line)
        } else {
            let version = line.split_once("Name: ")?.1.split_whitespace().next()?;
            Some(version.to_owned())
        }
    };
    readelf.lines().filter_map(requirement).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_program_requires_its_loader_and_versions_of_symbols() {
        let required = required(&std::env::current_exe().unwrap()).unwrap();
        assert!(required.contains("libc.so.6"), "{required:?}");
        assert!(
            required.iter().any(|name| name.contains("ld-linux")),
            "{required:?}"
        );
        assert!(
            required.iter().any(|name| name.starts_with("GLIBC_2.")),
            "{required:?}"
        );
    }

    #[test]
    fn a_static_program_requires_nothing() {
        let folder = std::env::temp_dir().join(format!("xtask-static-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (source, program) = (folder.join("empty.c"), folder.join("empty"));
        fs::write(&source, "int main(void) { return 0; }").unwrap();
        let mut gcc = Command::new("gcc");
        command::run(gcc.args(["-static-pie", "-o"]).args([&program, &source])).unwrap();
        let required = required(&program);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(required.unwrap(), BTreeSet::new());
    }
}
