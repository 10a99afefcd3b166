//! Which compiler and which linker build the eBPF object: the only module that decides.
//!
//! xtask asks it what is missing before it builds, and `hbbp-user/collect/build.rs` builds the object with it, so that plain
//! `cargo build` picks what `cargo xtask build` picks. Neither is needed where the object was built elsewhere
//! ([`objects_built_elsewhere`]).
//!
//! The stable toolchain cannot do it: it lacks `core` for bpfel-unknown-none, and aya-ebpf asks for
//! an unstable feature. In order of preference:
//! 1. rustup's nightly with its `rust-src` component, which compiles `core` itself (`-Z build-std=core`);
//! 2. Debian's own `rustc-web` and `cargo-web` with `libstd-rust-web-dev-bpf`, which has `core` prebuilt.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The target of the object: eBPF bytecode for a little-endian machine.
pub const TARGET: &str = "bpfel-unknown-none";

/// The newest LLVM whose bitcode our bpf-linker reads; a compiler built on a newer one cannot be linked.
pub const LLVM_MAJOR: u32 = 22;

/// The oldest bpf-linker that will do, and the one that set-up installs.
pub const LINKER_VERSION: &str = "0.13.0";

/// The environment variable that names a directory with the objects of another build.
pub const OBJECTS_VARIABLE: &str = "HBBP_EBPF_OBJECTS";

/// The directory of the objects in the package `hbbp-collect` of a release; git does not hold it.
pub const OBJECTS_OF_RELEASE: &str = "objects";

/// The oldest compiler that the workspace accepts: `rust-version` in the top-level Cargo.toml.
const RUST_VERSION: &str = "1.95";

/// The compiler of Debian, by its full name: in PATH, rustup's comes first.
pub const DEBIAN_RUSTC: &str = "/usr/bin/rustc";

/// The build tool of Debian, likewise.
pub const DEBIAN_CARGO: &str = "/usr/bin/cargo";

/// A compiler that can build the object.
#[derive(Debug)]
pub enum Toolchain {
    /// A rustup nightly with rust-src, by its full name.
    Nightly(String),
    /// Debian's compiler, which rustup knows nothing about.
    Debian,
}

impl Toolchain {
    /// The best compiler of this machine, if there is one.
    pub fn find() -> Option<Self> {
        nightly_with_source()
            .map(Self::Nightly)
            .or_else(|| debian_with_core().then_some(Self::Debian))
    }
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nightly(name) => write!(f, "rustup's {name} with rust-src"),
            Self::Debian => write!(f, "Debian's {DEBIAN_RUSTC} with its core for {TARGET}"),
        }
    }
}

/// The directory of the objects of another build: the one that the user names in [`OBJECTS_VARIABLE`], else that of a release
/// in this directory of the package `hbbp-collect`. Without one, the objects are built here.
///
/// # Errors
/// When the user names a directory by a relative path: cargo runs build scripts elsewhere.
pub fn objects_built_elsewhere(named: Option<OsString>, package: &Path) -> Result<Option<PathBuf>, String> {
    if let Some(named) = named.filter(|named| !named.is_empty()).map(PathBuf::from) {
        return if named.is_absolute() {
            Ok(Some(named))
        } else {
            Err(format!(
                "{OBJECTS_VARIABLE}={} is a relative path: name the directory by an absolute one",
                named.display()
            ))
        };
    }
    let released = package.join(OBJECTS_OF_RELEASE);
    Ok(released.is_dir().then_some(released))
}

/// The linker that the target asks for, if it is new enough: where cargo installs it, else in PATH.
pub fn find_linker() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = cargo_bin().into_iter().chain(env::split_paths(&path));
    let is_new_enough = |linker: &PathBuf| {
        let version = stdout_of(Command::new(linker).arg("--version"));
        version.is_some_and(|version| {
            number(LINKER_VERSION) <= number(version.trim_start_matches("bpf-linker "))
        })
    };
    folders
        .map(|folder| folder.join("bpf-linker"))
        .find(is_new_enough)
}

/// The folder of the programs that cargo installs.
fn cargo_bin() -> Option<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    home.or_else(|| Some(env::home_dir()?.join(".cargo")))
        .map(|home| home.join("bin"))
}

fn nightly_with_source() -> Option<String> {
    let list = stdout_of(Command::new("rustup").args(["toolchain", "list", "--quiet"]))?;
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    let is_fit = |name: &&str| {
        let rustc = |args: &[&str]| stdout_of(Command::new("rustup").args(["run", name, "rustc"]).args(args));
        let sysroot = rustc(&["--print", "sysroot"]).unwrap_or_default();
        // Cargo builds `core` with the versions that this file pins.
        let source = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/Cargo.lock");
        source.is_file() && rustc(&["-vV"]).is_some_and(|version| is_usable(&version))
    };
    names
        .filter(|name| name.starts_with("nightly"))
        .find(is_fit)
        .map(str::to_owned)
}

fn debian_with_core() -> bool {
    let libdir = ["--print", "target-libdir", "--target", TARGET];
    let has_core = stdout_of(Command::new(DEBIAN_RUSTC).args(libdir))
        .is_some_and(|libdir| Path::new(libdir.trim()).is_dir());
    let version = stdout_of(Command::new(DEBIAN_RUSTC).arg("-vV"));
    has_core && Path::new(DEBIAN_CARGO).is_file() && version.is_some_and(|version| is_usable(&version))
}

/// Whether a compiler of this `rustc -vV` is new enough for the workspace and old enough for the linker.
fn is_usable(version: &str) -> bool {
    let field = |name: &str| {
        version
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .map(number)
    };
    let is_new_enough = field("release:").is_some_and(|rust| number(RUST_VERSION) <= rust);
    is_new_enough
        && field("LLVM version:").is_some_and(|llvm| llvm.first().is_some_and(|major| *major <= LLVM_MAJOR))
}

/// The parts of a version number, in an order that compares; the first other character ends it.
fn number(version: &str) -> Vec<u32> {
    version
        .trim()
        .split(['.', '-'])
        .map_while(|part| part.parse().ok())
        .collect()
}

fn stdout_of(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    if !output.status.success() {
        return None;
    }
    String::from_utf8(output.stdout).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{OBJECTS_OF_RELEASE, is_usable, number, objects_built_elsewhere};

    #[track_caller]
    fn check(release: &str, llvm: &str, expected: bool) {
        let version = format!("rustc {release}\nbinary: rustc\nrelease: {release}\nLLVM version: {llvm}\n");
        assert_eq!(is_usable(&version), expected, "{version}");
    }

    #[test]
    fn a_compiler_must_fit_the_workspace_and_the_linker() {
        check("1.96.0", "22.1.8", true);
        check("1.97.0-nightly", "22.1.4", true);
        check("1.95.0", "21.1.8", true);
        check("1.94.1", "21.1.8", false);
        check("1.99.0-nightly", "23.1.0", false);
        check("", "", false);
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(number("0.13.0") <= number("0.13.0\n"));
        assert!(number("0.9.15") < number("0.13.0"));
        assert!(number("nonsense") < number("0.13.0"));
    }

    /// Objects of another build are the named ones, else those of the release.
    #[test]
    fn objects_of_another_build_are_named_or_of_the_release() {
        let package = tempfile::tempdir().unwrap();
        let find = |named: &str| objects_built_elsewhere(Some(named.into()), package.path());
        assert_eq!(find(""), Ok(None), "git holds none");
        assert_eq!(objects_built_elsewhere(None, package.path()), Ok(None));

        let released = package.path().join(OBJECTS_OF_RELEASE);
        fs::create_dir(&released).unwrap();
        assert_eq!(find(""), Ok(Some(released)));
        assert_eq!(find("/named"), Ok(Some("/named".into())), "the user decides");
        assert!(find("named").is_err_and(|error| error.contains("absolute")));
    }
}
