//! What a run is built from: the plugin, the driver, PID 1 and the workloads. Each is built when a process asks for it
//! for the first time; asking cargo, make and gcc again for each machine took a second of CPU time for each boot.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use crate::host;
use crate::kernel::Kernel;

/// What this process has built, by name.
static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());

/// The artifact of this name: from an earlier call, or built now. One build at a time, since tests run in parallel.
fn built(name: String, build: impl FnOnce() -> Result<PathBuf>) -> Result<PathBuf> {
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = built.get(&name) {
        return Ok(path.clone());
    }
    let _one = one_build()?;
    let path = build()?;
    built.insert(name, path.clone());
    Ok(path)
}

/// The lock against builds of other processes, until what is returned is dropped.
fn one_build() -> Result<File> {
    let path = host::work_directory()?.join("building");
    let file = File::create(&path).with_context(|| format!("failed to create {}", path.display()))?;
    file.lock()
        .with_context(|| format!("failed to lock {}", path.display()))?;
    Ok(file)
}

/// A build of what the test command builds, with the features of dependencies that it has there: those of the whole workspace and
/// of its tests. With others, cargo would compile hbbp-sys and what is below it once more, for minutes.
fn build_beside_tests() -> Command {
    let mut cargo = cargo();
    cargo.args(["build", "--quiet", "--release", "--workspace", "--test", "live"]);
    cargo
}

/// The TCG plugin, a shared object for QEMU.
///
/// # Errors
/// When it does not build.
pub fn plugin() -> Result<PathBuf> {
    built("plugin".to_owned(), || {
        host::run(cargo().args([
            "build",
            "--quiet",
            "--release",
            "--package",
            "kernel-tests-plugin",
        ]))?;
        Ok(host::target_directory().join("release/libkernel_tests_plugin.so"))
    })
}

/// hbbp-sys as users run it, without debug information: the guest unpacks it at each boot.
///
/// # Errors
/// When it does not build; strip, of binutils, is needed.
pub fn hbbp_sys() -> Result<PathBuf> {
    built("hbbp-sys".to_owned(), || {
        host::run(build_beside_tests().args(["--bin", "hbbp-sys"]))?;
        stripped(&host::target_directory().join("release/hbbp-sys"))
    })
}

/// A copy of a program without debug information.
fn stripped(program: &Path) -> Result<PathBuf> {
    let stripped = host::work_directory()?.join(program.file_name().context("a program has a name")?);
    // Another process may be reading or running the one of before.
    let new = stripped.with_extension(std::process::id().to_string());
    let mut strip = Command::new("strip");
    strip.args(["--strip-debug", "-o"]).arg(&new);
    host::run(strip.arg(program))?;
    fs::rename(&new, &stripped)?;
    Ok(stripped)
}

/// The program that prints the functions of a kernel, which needs the shared libraries that hbbp-sys needs.
///
/// # Errors
/// When it does not build; strip, of binutils, is needed.
pub fn kernel_functions() -> Result<PathBuf> {
    built("kernel-functions".to_owned(), || {
        host::run(build_beside_tests().args(["--bin", "kernel-functions"]))?;
        stripped(&host::target_directory().join("release/kernel-functions"))
    })
}

/// A statically linked program of this package for the guest, for example `guest-init`.
///
/// # Errors
/// When it does not build.
pub fn guest_program(program: &str) -> Result<PathBuf> {
    built(format!("program {program}"), || build_guest_program(program))
}

fn build_guest_program(program: &str) -> Result<PathBuf> {
    const TARGET: &str = "x86_64-unknown-linux-gnu";
    let directory = host::work_directory()?.join("guest");
    let mut cargo = cargo();
    cargo.args([
        "build",
        "--quiet",
        "--release",
        "--package",
        "kernel-tests",
        "--bin",
        program,
        "--target",
        TARGET,
    ]);
    // The flag holds only for the target, not for build scripts, because a target is named.
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static");
    // The guest unpacks it at each boot; names stay, for the tests that look at them.
    cargo.env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo");
    host::run(cargo.arg("--target-dir").arg(&directory))?;
    Ok(directory.join(TARGET).join("release").join(program))
}

/// A kernel module of this package (`driver` or a directory of `workloads`), built for a kernel.
///
/// # Errors
/// When it does not build; gcc-12 and make are needed.
pub fn module(source: &str, name: &str, kernel: &Kernel) -> Result<PathBuf> {
    built(format!("module {} {source} {name}", kernel.release), || {
        build_module(source, name, kernel)
    })
}

fn build_module(source: &str, name: &str, kernel: &Kernel) -> Result<PathBuf> {
    let directory = host::work_directory()?
        .join("modules")
        .join(&kernel.release)
        .join(name);
    fs::create_dir_all(&directory)?;
    let from = package().join(source);
    for entry in fs::read_dir(&from).with_context(|| format!("failed to list {}", from.display()))? {
        copy_if_changed(&entry?.path(), &directory)?;
    }
    let mut make = Command::new("make");
    make.arg("--silent")
        .arg("-C")
        .arg(kernel.headers())
        .arg("-f")
        .arg(kernel.makefile());
    host::run(make.arg(format!("M={}", directory.display())).arg("modules"))?;
    Ok(directory.join(format!("{name}.ko")))
}

/// A static user program from one source file of `workloads` (C, C++ or assembly).
///
/// # Errors
/// When it does not build; gcc and g++ are needed.
pub fn workload(source: &str) -> Result<PathBuf> {
    built(format!("workload {source}"), || build_workload(source))
}

fn build_workload(source: &str) -> Result<PathBuf> {
    let from = package().join("workloads").join(source);
    let directory = host::work_directory()?.join("workloads");
    fs::create_dir_all(&directory)?;
    let program = directory.join(Path::new(source).file_stem().context("a workload has a name")?);
    let compiler = if source.ends_with(".cc") { "g++" } else { "gcc" };
    let mut compile = Command::new(compiler);
    compile
        .args(["-O2", "-g", "-static", "-fno-stack-protector", "-pthread", "-o"])
        .arg(&program)
        .arg(&from);
    host::run(&mut compile)?;
    Ok(program)
}

/// Directory of this package's sources.
pub fn package() -> PathBuf {
    host::workspace().join("kernel-tests")
}

pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(host::workspace());
    // Set by the cargo that runs the tests; they would make this build a different one from theirs.
    cargo
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo
}

/// An unchanged source keeps its time, so that make has nothing to do.
fn copy_if_changed(from: &Path, directory: &Path) -> Result<()> {
    let to = directory.join(from.file_name().context("a source has a name")?);
    let bytes = fs::read(from)?;
    if fs::read(&to).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    fs::write(&to, bytes).with_context(|| format!("failed to write {}", to.display()))
}
