//! Leaves the eBPF object in `OUT_DIR` to be embedded, twice: as `hbbp`, and as `hbbp-verbose` with the feature `log`, whose
//! programs say what they refuse. A release holds both, and the environment may name those of another build; else they are
//! built from the source in `hbbp-ebpf`.
//!
//! It calls cargo itself and not through aya-build: that one warns at every build where the compiler is not rustup's,
//! and mixes cargo's progress into our warnings.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hbbp_toolchain::{
    DEBIAN_CARGO, DEBIAN_RUSTC, LLVM_MAJOR, OBJECTS_VARIABLE, TARGET, Toolchain, find_linker,
    objects_built_elsewhere,
};

/// The binary target of the package `hbbp-ebpf`.
const OBJECT: &str = "hbbp";

/// The objects: name and features.
const OBJECTS: [(&str, &str); 2] = [("hbbp", ""), ("hbbp-verbose", "log")];

/// Flags of the object: the layout of the registers that aya-ebpf shall assume, and BTF, which the linker makes from full debug
/// information.
const FLAGS: [&str; 3] = [
    "--cfg=bpf_target_arch=\"x86_64\"",
    "-Cdebuginfo=2",
    "-Clink-arg=--btf",
];

/// What determines the object, in addition to the source, which cargo watches.
const INPUTS: [&str; 4] = [
    "build.rs",
    "../../hbbp-ebpf",
    "../../Cargo.toml",
    "../../Cargo.lock",
];

fn main() {
    println!("cargo::rerun-if-env-changed={OBJECTS_VARIABLE}");
    if let Err(err) = provide_objects() {
        for line in err.to_string().lines() {
            println!("cargo::error={line}");
        }
    }
}

fn provide_objects() -> Result<(), Box<dyn Error>> {
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("CARGO_MANIFEST_DIR is not set")?);
    match objects_built_elsewhere(env::var_os(OBJECTS_VARIABLE), &package)? {
        Some(folder) => {
            for (name, _) in OBJECTS {
                let object = folder.join(name);
                println!("cargo::rerun-if-changed={}", object.display());
                copy(&object, &out_dir.join(name))?;
            }
            Ok(())
        }
        None => build_objects(&package, &out_dir),
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |err| format!("failed to copy {} to {}: {err}", from.display(), to.display());
    fs::copy(from, to).map(drop).map_err(failed)
}

fn build_objects(package: &Path, out_dir: &Path) -> Result<(), Box<dyn Error>> {
    for path in INPUTS {
        println!("cargo::rerun-if-changed={path}");
    }
    for name in ["CARGO_HOME", "RUSTUP_HOME"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let toolchain = Toolchain::find().ok_or_else(|| {
        format!(
            "found no compiler for the eBPF object: expected a rustup nightly with rust-src, or Debian's \
             rustc-web, cargo-web and libstd-rust-web-dev-bpf, with LLVM {LLVM_MAJOR} at most; run `cargo \
             xtask setup` to install it, or name a directory with the object of another build in {OBJECTS_VARIABLE}"
        )
    })?;
    let linker = find_linker().ok_or("found no bpf-linker; run `cargo xtask setup` to install it")?;
    // Lines in BTF name the sources. By their paths in the workspace, the object is the same wherever that lies.
    let workspace = package
        .ancestors()
        .nth(2)
        .ok_or("the package is not in a workspace")?;
    let build = Build {
        toolchain,
        linker,
        paths: format!("--remap-path-prefix={}=.", workspace.display()),
        // A folder of its own, because the cargo that called us holds the lock of the outer one.
        target_dir: out_dir.join("target"),
    };
    for (name, features) in OBJECTS {
        copy(&build.object(features)?, &out_dir.join(name))?;
    }
    Ok(())
}

/// How the objects are built.
struct Build {
    toolchain: Toolchain,
    linker: PathBuf,
    /// The flag that names sources by their paths in the workspace.
    paths: String,
    target_dir: PathBuf,
}

impl Build {
    /// Builds the object with these features; the next one replaces it.
    fn object(&self, features: &str) -> Result<PathBuf, Box<dyn Error>> {
        let mut flags = FLAGS.to_vec();
        flags.push(&self.paths);
        let mut cargo = cargo_build(&self.toolchain);
        cargo
            .args([
                "--quiet",
                "--release",
                "--locked",
                "--package",
                "hbbp-ebpf",
                "--bin",
                OBJECT,
                "--features",
                features,
            ])
            .arg("--target-dir")
            .arg(&self.target_dir)
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
            .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &self.linker);
        let output = cargo
            .output()
            .map_err(|err| format!("failed to start {cargo:?}: {err}"))?;
        let messages = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(format!(
                "failed to build the eBPF object with {}: {cargo:?}\n{messages}",
                self.toolchain
            )
            .into());
        }
        for line in messages.lines() {
            println!("cargo::warning={line}");
        }

        Ok(self.target_dir.join(TARGET).join("release").join(OBJECT))
    }
}

/// `cargo build` by this compiler for the object, with nothing inherited from the cargo that called us.
fn cargo_build(toolchain: &Toolchain) -> Command {
    let mut cargo = match toolchain {
        Toolchain::Nightly(name) => {
            let mut rustup = Command::new("rustup");
            rustup.args(["run", name, "cargo", "build", "-Z", "build-std=core"]);
            rustup
        }
        Toolchain::Debian => {
            let mut cargo = Command::new(DEBIAN_CARGO);
            cargo.arg("build");
            cargo
        }
    };
    // Cargo and clippy point these at the compiler of the host.
    for name in [
        "CARGO",
        "RUSTC",
        "RUSTDOC",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTFLAGS",
    ] {
        cargo.env_remove(name);
    }
    if matches!(toolchain, Toolchain::Debian) {
        // A compiler named in full keeps rustup out of it, wherever its proxies are in PATH. A stable compiler takes
        // unstable features only on request.
        cargo.env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1");
    }
    cargo.args(["--target", TARGET]);
    cargo
}
