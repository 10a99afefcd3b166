//! What a run is built from: the plugin, the driver, PID 1 and the workloads. Each is built when a process asks for it
//! for the first time; asking cargo, make and gcc again for each machine took a second of CPU time for each boot.
//!
//! What goes into the guest holds no path of the workspace. With the clock of instructions, a run repeats itself only where these files
//! are the same: with the path of a folder in one of them, each checkout would have a run of its own, with chance of its own.

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
/// When it does not build; nm and objcopy, of binutils, are needed.
pub fn hbbp_sys() -> Result<PathBuf> {
    built("hbbp-sys".to_owned(), || {
        host::run(build_beside_tests().args(["--bin", "hbbp-sys"]))?;
        without_paths(&host::target_directory().join("release/hbbp-sys"))
    })
}

/// A copy of a Rust program without debug information, which holds paths. Two hashes of it remain elsewhere and are replaced: the number
/// after `.llvm.` in names of functions that several LLVM modules use, and the build id.
fn without_paths(program: &Path) -> Result<PathBuf> {
    let name = program
        .file_name()
        .context("a program has a name")?
        .to_string_lossy();
    let copy = host::work_directory()?.join(&*name);
    // Another process may be reading or running the one of before.
    let new = copy.with_extension(std::process::id().to_string());
    let (names, build_id) = (new.with_extension("names"), new.with_extension("id"));
    fs::write(
        &names,
        numbered(&host::output(Command::new("nm").arg("--no-sort").arg(program))?),
    )?;
    fs::write(&build_id, build_id_note(&name))?;
    let mut objcopy = Command::new("objcopy");
    objcopy
        .arg("--strip-debug")
        .arg(format!("--redefine-syms={}", names.display()))
        .arg(format!(
            "--update-section=.note.gnu.build-id={}",
            build_id.display()
        ));
    host::run(objcopy.args([program, &new]))?;
    fs::remove_file(names)?;
    fs::remove_file(build_id)?;
    fs::rename(&new, &copy)?;
    Ok(copy)
}

/// Names with `.llvm.` in a list of nm's, each with one that ends in its index among equal ones.
fn numbered(symbols: &str) -> String {
    let mut turns: BTreeMap<&str, u32> = BTreeMap::new();
    let mut numbered = String::new();
    for name in symbols.lines().filter_map(|line| line.rsplit(' ').next()) {
        if let Some((own, _)) = name.rsplit_once(".llvm.") {
            let turn = turns.entry(own).or_default();
            numbered += &format!("{name} {own}.llvm.{turn}\n");
            *turn += 1;
        }
    }
    numbered
}

/// A build id as the linker writes it (elf.h, NT_GNU_BUILD_ID): twenty bytes, here the name of the program.
fn build_id_note(name: &str) -> Vec<u8> {
    let (owner, id) = (*b"GNU\0", 20_u32);
    let words = [owner.len() as u32, id, 3];
    let header = words.iter().flat_map(|word| word.to_le_bytes());
    let name = name.bytes().chain(std::iter::repeat(0)).take(id as usize);
    header.chain(owner).chain(name).collect()
}

/// The program that prints the functions of a kernel, which needs the shared libraries that hbbp-sys needs.
///
/// # Errors
/// When it does not build; nm and objcopy, of binutils, are needed.
pub fn kernel_functions() -> Result<PathBuf> {
    built("kernel-functions".to_owned(), || {
        host::run(build_beside_tests().args(["--bin", "kernel-functions"]))?;
        without_paths(&host::target_directory().join("release/kernel-functions"))
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
    host::run(cargo.arg("--target-dir").arg(&directory))?;
    without_paths(&directory.join(TARGET).join("release").join(program))
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
    // Without BTF, which nothing here reads: pahole writes it with several threads, in another order in each build.
    make.arg("CONFIG_DEBUG_INFO_BTF_MODULES=");
    make.arg(format!("KCFLAGS={}", without_workspace()));
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
    let from = Path::new("kernel-tests/workloads").join(source);
    let directory = host::work_directory()?.join("workloads");
    fs::create_dir_all(&directory)?;
    let program = directory.join(Path::new(source).file_stem().context("a workload has a name")?);
    let compiler = if source.ends_with(".cc") { "g++" } else { "gcc" };
    let mut compile = Command::new(compiler);
    compile
        .args(["-O2", "-g", "-static", "-fno-stack-protector", "-pthread", "-o"])
        .arg(&program)
        .args([&from, Path::new(&without_workspace())])
        .current_dir(host::workspace());
    host::run(&mut compile)?;
    Ok(program)
}

/// Has gcc name files by their paths in the workspace.
fn without_workspace() -> String {
    format!("-ffile-prefix-map={}=.", host::workspace().display())
}

/// Directory of this package's sources.
pub fn package() -> PathBuf {
    host::workspace().join("kernel-tests")
}

/// Cargo in the top folder of the workspace, for builds as those of the tests.
pub fn cargo() -> Command {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_modules_share_end_with_their_turn() {
        let symbols =
            "0000 t first.llvm.123\n     U puts\n0010 t second.llvm.77\n0020 t first.llvm.9\n0030 T main\n";
        assert_eq!(
            numbered(symbols),
            "first.llvm.123 first.llvm.0\nsecond.llvm.77 second.llvm.0\nfirst.llvm.9 first.llvm.1\n"
        );
    }
}
