//! Distribution kernels: found with apt, unpacked under `target/`, never installed on the host.

use std::fs::{self, File};
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::host;

/// A kernel that can be booted and that modules can be built for.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// As `uname -r` says, for example `6.1.0-56-amd64`.
    pub release: String,
    /// The boot image: a compressed kernel and what unpacks it and moves it to a random address (KASLR).
    pub image: PathBuf,
    /// The kernel in it, which boots at its link-time address without being unpacked by the emulated processor first:
    /// that took half the time of a boot.
    pub uncompressed: PathBuf,
    /// The unpacked packages.
    root: PathBuf,
}

impl Kernel {
    /// The newest kernel of a series (`6.1`, `6.12`, or `7` for any 7.x): unpacked before, or fetched with apt now.
    ///
    /// # Errors
    /// When neither apt nor an earlier run has one; the message is the reason to print when skipping.
    pub fn get(series: &str) -> Result<Self> {
        let kernels = host::work_directory()?.join("kernels");
        let root = kernels.join(series);
        if !root.join("complete").exists() {
            fs::create_dir_all(&kernels)?;
            // Tests run at the same time, in threads and processes: one fetches, and apt serves one at a time.
            let lock = File::create(kernels.join("lock"))?;
            lock.lock()
                .context("failed to wait for other tests that fetch kernels")?;
            if !root.join("complete").exists() {
                fetch(series, &root)
                    .with_context(|| format!("no kernel {series} to test on, and none from apt"))?;
            }
        }
        let release = fs::read_to_string(root.join("complete"))?;
        let image = root.join("boot").join(format!("vmlinuz-{release}"));
        let uncompressed = uncompressed(&image, root.join("boot").join(format!("vmlinux-{release}")))?;
        Ok(Self {
            release,
            image,
            uncompressed,
            root,
        })
    }

    /// Directory to run `make` in for a module of this kernel.
    pub fn headers(&self) -> PathBuf {
        self.root
            .join("usr/src")
            .join(format!("linux-headers-{}", self.release))
    }

    /// The makefile of the common headers; the one in [`Kernel::headers`] names a path of an installed host.
    pub fn makefile(&self) -> PathBuf {
        let common = self.release.strip_suffix("-amd64").unwrap_or(&self.release);
        self.root
            .join("usr/src")
            .join(format!("linux-headers-{common}-common/Makefile"))
    }

    /// A module of the kernel's own package by its file name, for example `tun.ko`.
    ///
    /// # Errors
    /// When the kernel has no such module.
    pub fn module(&self, name: &str) -> Result<PathBuf> {
        find(&self.root.join("lib/modules"), name)?
            .with_context(|| format!("kernel {} has no module {name}", self.release))
    }
}

/// The kernel in a boot image, unpacked to the file by the first process that asks.
///
/// Format: Documentation/arch/x86/boot.rst of the kernel, `payload_offset` and `payload_length`.
fn uncompressed(image: &Path, to: PathBuf) -> Result<PathBuf> {
    if to.exists() {
        return Ok(to);
    }
    let bytes = fs::read(image).with_context(|| format!("failed to read {}", image.display()))?;
    let payload = payload(&bytes).with_context(|| format!("{} is not a boot image", image.display()))?;
    let program = match payload {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "xz",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        _ => bail!("{} is compressed in an unknown way", image.display()),
    };
    // Other threads and processes may do the same at the same time.
    let mut packed = tempfile::tempfile()?;
    packed.write_all(payload)?;
    packed.rewind()?;
    let unpacked = tempfile::NamedTempFile::new_in(to.parent().context("the file has a directory")?)?;
    let status = Command::new(program)
        .arg("-dc")
        .stdin(packed)
        .stdout(unpacked.reopen()?)
        .status()
        .with_context(|| format!("failed to start {program}: is it installed?"))?;
    ensure!(
        status.success(),
        "{program} failed on {}: {status}",
        image.display()
    );
    unpacked.persist(&to)?;
    Ok(to)
}

/// The compressed kernel of a boot image, without the four bytes of its size that the kernel's build appends.
fn payload(image: &[u8]) -> Option<&[u8]> {
    const SECTOR: usize = 512;
    let word = |at: usize| Some(u32::from_le_bytes(*image.get(at..)?.first_chunk()?) as usize);
    let protected_mode = (usize::from(*image.get(0x1f1)?) + 1) * SECTOR;
    let (offset, length) = (protected_mode + word(0x248)?, word(0x24c)?);
    image.get(offset..offset + length.checked_sub(4)?)
}

fn find(directory: &Path, name: &str) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() && !path.is_symlink() {
            if let Some(found) = find(&path, name)? {
                return Ok(Some(found));
            }
        } else if path.file_name().is_some_and(|file| file == name) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// An old package list names versions that the archive no longer has; then the list is renewed once.
fn fetch(series: &str, root: &Path) -> Result<()> {
    if unpack(series, root).is_ok() {
        return Ok(());
    }
    host::run(Command::new("apt-get").arg("update"))?;
    unpack(series, root)
}

fn unpack(series: &str, root: &Path) -> Result<()> {
    let release = newest(series)?;
    let common = release.strip_suffix("-amd64").unwrap_or(&release);
    let downloads = root.join("packages");
    fs::create_dir_all(&downloads)?;
    let headers = format!("linux-headers-{release}");
    let kbuild = kbuild_package(&headers)?;
    let names = [
        format!("linux-image-{release}"),
        headers,
        format!("linux-headers-{common}-common"),
        kbuild,
    ];
    host::run(
        Command::new("apt-get")
            .arg("download")
            .args(&names)
            .current_dir(&downloads),
    )?;
    for entry in fs::read_dir(&downloads)? {
        let package = entry?.path();
        // apt downloads a damaged file again, and leaves it under another ending.
        if package.extension().is_some_and(|ending| ending == "deb") {
            host::run(Command::new("dpkg-deb").arg("-x").arg(package).arg(root))?;
        }
    }
    fs::remove_dir_all(&downloads)?;
    fs::write(root.join("complete"), release)?;
    Ok(())
}

/// The newest release of a series, by apt's own order of versions.
fn newest(series: &str) -> Result<String> {
    let pattern = format!("^linux-image-{}[.]", series.replace('.', "[.]"));
    let names = host::output(Command::new("apt-cache").args(["search", "--names-only", &pattern]))?;
    let mut releases: Vec<&str> = names
        .lines()
        .filter_map(|line| line.split_whitespace().next()?.strip_prefix("linux-image-"))
        .filter(|release| release.ends_with("-amd64"))
        .filter(|release| {
            !["cloud", "rt", "dbg"]
                .iter()
                .any(|flavour| release.contains(flavour))
        })
        .collect();
    releases.sort_by_key(|release| numbers(release));
    match releases.last() {
        Some(release) => Ok((*release).to_owned()),
        None => bail!("apt knows no package linux-image-{series}.*-amd64"),
    }
}

fn kbuild_package(headers: &str) -> Result<String> {
    let depends = host::output(Command::new("apt-cache").args(["depends", headers]))?;
    let mut packages = depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "));
    let package = packages.rfind(|name| name.starts_with("linux-kbuild-"));
    Ok(package
        .with_context(|| format!("{headers} names no linux-kbuild package"))?
        .to_owned())
}

fn numbers(release: &str) -> Vec<u64> {
    release
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|part| part.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_found_and_bounded() {
        let mut image = vec![0; 0x600];
        image[0x1f1] = 1;
        image[0x248] = 0x10;
        image[0x24c] = 0x0c;
        image[0x410..0x418].copy_from_slice(b"a kernel");
        assert_eq!(payload(&image), Some(&b"a kernel"[..]));
        image[0x24e] = 1;
        assert_eq!(payload(&image), None);
        assert_eq!(payload(&image[..0x200]), None);
    }

    #[test]
    fn releases_are_sorted_numerically() {
        let mut releases = [
            "6.12.101+deb12-amd64",
            "6.12.9+deb12-amd64",
            "6.12.117+deb12-amd64",
        ];
        releases.sort_by_key(|release| numbers(release));
        assert_eq!(releases[2], "6.12.117+deb12-amd64");
    }
}
