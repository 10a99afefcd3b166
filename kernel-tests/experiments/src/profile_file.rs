//! The file of a hardware profile.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use kernel_tests::artifacts;

/// The text of a hardware profile, by name or path.
pub(crate) fn hardware_profile(name: &str) -> Result<String> {
    let named = artifacts::package().join("hardware-profiles").join(name);
    let path = if named.exists() {
        named
    } else {
        PathBuf::from(name)
    };
    fs::read_to_string(&path).with_context(|| format!("unknown hardware profile `{name}`"))
}
