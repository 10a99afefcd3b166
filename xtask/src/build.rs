//! `cargo xtask build`: leaves `target/release/hbbp-sys`, with the eBPF object in it.

use anyhow::{Context as _, Result, ensure};

use crate::command;
use crate::toolchain::{LLVM_MAJOR, TARGET, Toolchain, find_linker};

/// Builds the program, once the compiler and the linker of its eBPF object are there.
pub(crate) fn build() -> Result<()> {
    let toolchain = Toolchain::find().with_context(|| format!("found no compiler for {TARGET}"))?;
    ensure!(
        find_linker().is_some(),
        "found no bpf-linker (on LLVM {LLVM_MAJOR}) for {TARGET}"
    );
    println!("building the eBPF object with {toolchain}");
    command::run(command::cargo().args(["build", "--release", "--package", "hbbp-user"]))
}
