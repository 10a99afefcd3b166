//! Files and folders of a release.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command;

/// The file of checksums.
const CHECKSUMS: &str = "SHA256SUMS";

/// Removes a folder with its contents, if it exists.
pub(super) fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => {
            Err(err).with_context(|| format!("failed to remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Makes a folder that holds nothing.
pub(super) fn empty(folder: &Path) -> Result<()> {
    remove(folder)?;
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))
}

/// Writes the checksums of the files in a folder, for `sha256sum --check`.
pub(super) fn write_checksums(folder: &Path) -> Result<()> {
    let names = fs::read_dir(folder).with_context(|| format!("failed to list {}", folder.display()))?;
    let mut names: Vec<_> = names
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<Result<_, _>>()?;
    names.sort();
    let sums = command::stdout(Command::new("sha256sum").args(&names).current_dir(folder))?;
    let path = folder.join(CHECKSUMS);
    fs::write(&path, sums).with_context(|| format!("failed to write {}", path.display()))
}
