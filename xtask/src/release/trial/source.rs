//! The source release on a system with a C compiler and Rust alone: no LLVM, no linker and no second Rust for eBPF.

use std::path::Path;

use anyhow::Result;

use super::MEASURE;
use crate::root::Root;

/// Debian 12, as in the README; the toolchain is that of this machine.
const SUITE: &str = "bookworm";

/// What the README asks for.
const PACKAGES: [&str; 2] = ["gcc", "libc6-dev"];

/// The crates of others are fetched first; then there is no network. What is installed is what was built.
const COMMANDS: [&str; 6] = [
    "mkdir source && tar --extract --gzip --strip-components=1 --directory source --file /trial/source.tar.gz",
    "! command -v bpf-linker && ! command -v llvm-config && ! ls /usr/lib/llvm-* /usr/bin/rustc 2> /dev/null",
    "cd source && cargo fetch --quiet --locked --target x86_64-unknown-linux-gnu",
    "cd source && unshare --net cargo build --quiet --release --locked --offline",
    "cd source && unshare --net cargo install --quiet --locked --offline --path hbbp-user",
    // Each crate is packed as it would be published, in the order of the registry.
    "cd source && cargo publish --quiet --workspace --locked --dry-run --no-verify",
];

/// Builds and installs the program there, and measures with it.
pub(super) fn try_source(archive: &Path) -> Result<()> {
    let root = Root::create(SUITE, &PACKAGES, "roots/source")?;
    root.copy_network()?;
    root.copy_rust()?;
    root.copy(archive, "trial/source.tar.gz")?;
    for command in COMMANDS {
        println!("== {command}");
        root.enter(command)?;
    }
    root.enter(MEASURE)?;
    root.remove()
}
