//! The files that a run brings into the guest.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::artifacts;

/// Files by their path without the first slash, and directories, whose paths end with a slash.
#[derive(Debug, Default)]
pub struct GuestFiles {
    entries: BTreeMap<String, Vec<u8>>,
}

impl GuestFiles {
    /// Creates a directory and its parents, unless they exist.
    pub fn directory(&mut self, path: &str) {
        let path = path.trim_matches('/');
        for (end, _) in path.match_indices('/') {
            self.entries.entry(path[..=end].to_owned()).or_default();
        }
        self.entries.entry(format!("{path}/")).or_default();
    }

    /// A file with these bytes, executable; the first one of a name stays.
    pub fn file(&mut self, path: &str, bytes: &[u8]) {
        let path = path.trim_matches('/');
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        self.entries
            .entry(path.to_owned())
            .or_insert_with(|| bytes.to_vec());
    }

    /// A copy of a host's file under another name.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn copy(&mut self, path: &str, from: &Path) -> Result<()> {
        let bytes =
            fs::read(from).with_context(|| format!("failed to read {} for the guest", from.display()))?;
        self.file(path, &bytes);
        Ok(())
    }

    /// hbbp-sys at `/bin/hbbp-sys`, with its shared libraries.
    ///
    /// # Errors
    /// When it does not build, or one of its libraries cannot be read.
    pub fn hbbp_sys(&mut self) -> Result<()> {
        let program = artifacts::hbbp_sys()?;
        self.copy("bin/hbbp-sys", &program)?;
        self.libraries(&program)
    }

    /// A program of the host at its own path, with the shared libraries it names.
    ///
    /// # Errors
    /// When the program or one of its libraries cannot be read.
    pub fn program(&mut self, path: &Path) -> Result<()> {
        self.copy(&path.to_string_lossy(), path)?;
        self.libraries(path)
    }

    /// The shared libraries of a program, at their own paths.
    fn libraries(&mut self, path: &Path) -> Result<()> {
        let output = Command::new("ldd")
            .arg(path)
            .output()
            .context("failed to run ldd; install libc-bin")?;
        // A static program makes ldd fail; it needs nothing.
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Some(library) = line.split_whitespace().find(|word| word.starts_with('/')) else {
                continue;
            };
            self.copy(library, Path::new(library))?;
        }
        Ok(())
    }

    /// A directory of the host at its own path, with everything below it.
    ///
    /// # Errors
    /// When something in it cannot be read.
    pub fn tree(&mut self, path: &Path) -> Result<()> {
        for entry in fs::read_dir(path).with_context(|| format!("failed to list {}", path.display()))? {
            let path = entry?.path();
            match path.is_dir() {
                true => self.tree(&path)?,
                false => self.copy(&path.to_string_lossy(), &path)?,
            }
        }
        Ok(())
    }

    /// All paths with their bytes; a directory comes before what is in it.
    pub(crate) const fn entries(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_first_and_the_first_file_of_a_name_stays() {
        let mut files = GuestFiles::default();
        files.file("/a/b/hello", b"text");
        files.file("a/b/hello", b"second");
        files.directory("/a/c/");
        let paths: Vec<&str> = files.entries().keys().map(String::as_str).collect();
        assert_eq!(paths, ["a/", "a/b/", "a/b/hello", "a/c/"]);
        assert_eq!(files.entries()["a/b/hello"], b"text");
    }
}
