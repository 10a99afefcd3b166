//! The guest's root file system: a cpio archive in the "newc" form that Linux unpacks at boot.
//!
//! Format: Documentation/driver-api/early-userspace/buffer-format.rst of the kernel. It is written
//! uncompressed: the emulated processor would take longer to unpack it than the host to write it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::artifacts;

const DIRECTORY: u32 = 0o040_755;
const REGULAR: u32 = 0o100_755;

/// An archive that is being put together.
#[derive(Default)]
pub struct Initramfs {
    bytes: Vec<u8>,
    known: BTreeSet<String>,
}

impl Initramfs {
    /// An empty directory and the directories it stands in; nothing when it is there already.
    pub fn directory(&mut self, path: &str) {
        let path = path.trim_matches('/');
        if path.is_empty() || self.known.contains(path) {
            return;
        }
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        self.entry(path, DIRECTORY, &[]);
    }

    /// A file with these bytes, executable; the first one of a name stays.
    pub fn file(&mut self, path: &str, bytes: &[u8]) {
        let path = path.trim_matches('/');
        if self.known.contains(path) {
            return;
        }
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        self.entry(path, REGULAR, bytes);
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

    /// Writes the archive.
    ///
    /// # Errors
    /// When the file cannot be written or the archive is larger than the guest could hold.
    pub fn write(mut self, to: &Path) -> Result<()> {
        self.entry("TRAILER!!!", 0, &[]);
        if 1 << 30 < self.bytes.len() {
            bail!("the guest's files are over 1 GiB: bring fewer");
        }
        fs::write(to, &self.bytes).with_context(|| format!("failed to write {}", to.display()))
    }

    fn entry(&mut self, path: &str, mode: u32, bytes: &[u8]) {
        let inode = self.known.len() as u32 + 1;
        let links = if mode == DIRECTORY { 2 } else { 1 };
        let (size, name_size) = (bytes.len() as u32, path.len() as u32 + 1);
        // ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check
        let fields = [inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(bytes);
        self.pad();
        self.known.insert(path.to_owned());
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_is_readable_by_cpio() {
        let mut archive = Initramfs::default();
        archive.file("/a/b/hello", b"text");
        archive.file("/a/b/hello", b"second");
        archive.directory("proc");
        let path = std::env::temp_dir().join(format!("initramfs-{}", std::process::id()));
        archive.write(&path).unwrap();
        let list = Command::new("cpio")
            .arg("-t")
            .stdin(fs::File::open(&path).unwrap())
            .output();
        fs::remove_file(&path).unwrap();
        let Ok(list) = list else {
            return crate::missing::missing("cpio is not installed; `cargo xtask setup` installs it");
        };
        assert_eq!(String::from_utf8_lossy(&list.stdout), "a\na/b\na/b/hello\nproc\n");
    }
}
