//! Snapshot files on the disk: reading one from any source, and replacing one as a whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::{container, encode, parse};
use crate::snapshot::Snapshot;

/// Most bytes of a file that are read: no section may pass 256 MiB, and there is a handful of large ones.
const MAX_FILE: u64 = 1 << 30;

/// Reads a snapshot file; `-` is the standard input.
pub fn read(path: &Path) -> anyhow::Result<Snapshot> {
    let failed = || format!("failed to read profile {}", path.display());
    if path == Path::new("-") {
        return read_from(io::stdin().lock()).context("failed to read a profile from standard input");
    }
    let source = File::open(path).with_context(failed)?;
    read_from(source).with_context(failed)
}

/// Reads a snapshot to the end of `source`, but gives up at once where it does not begin like one.
fn read_from(mut source: impl Read) -> anyhow::Result<Snapshot> {
    let mut bytes = Vec::new();
    let magic_len = u64::try_from(container::MAGIC.len())?;
    source.by_ref().take(magic_len).read_to_end(&mut bytes)?;
    if bytes == container::MAGIC {
        source.take(MAX_FILE).read_to_end(&mut bytes)?;
    }
    Ok(parse(&bytes)?)
}

/// Writes a snapshot so that at every moment `path` holds either what it held before or the whole new snapshot.
///
/// The bytes go to a new file in the same directory, reach the disk, and then take the name; where anything fails the
/// new file goes away and the old one stays.
/// A symbolic link stays, and what it points to is replaced.
/// A pipe, a terminal or another character device is written to directly, because it holds nothing that could be lost.
/// Directories, block devices and sockets are refused.
pub fn write_atomic(path: &Path, snapshot: &Snapshot) -> anyhow::Result<()> {
    let failed = || format!("failed to write profile {}", path.display());
    let bytes = encode(snapshot).with_context(failed)?;
    let Some(target) = target(path)? else {
        let mut stream = OpenOptions::new().write(true).open(path).with_context(failed)?;
        return stream.write_all(&bytes).with_context(failed);
    };
    let (temporary, file) = create_beside(&target).with_context(failed)?;
    let written = fill(file, &bytes, &target).and_then(|()| fs::rename(&temporary, &target));
    if written.is_err() {
        // The first error is the one to report; a file that is left behind because of a second one is no loss.
        let _ = fs::remove_file(&temporary);
    }
    written.with_context(failed)?;
    // The new name itself is durable only with its directory; the snapshot is complete in either case.
    if let Some(Ok(directory)) = target.parent().map(parent_or_here).map(File::open) {
        let _ = directory.sync_all();
    }
    Ok(())
}

/// Whether [`write_atomic`] could begin now: what is found out before a measurement need not be found out behind it.
pub fn check_writable(path: &Path) -> anyhow::Result<()> {
    let failed = || format!("cannot write a profile to {}", path.display());
    if let Some(target) = target(path)? {
        let (temporary, _) = create_beside(&target).with_context(failed)?;
        fs::remove_file(temporary).with_context(failed)?;
    }
    Ok(())
}

/// The file to replace; `None` where the path names something to be written to directly.
fn target(path: &Path) -> anyhow::Result<Option<PathBuf>> {
    let failed = || format!("failed to write profile {}", path.display());
    match fs::metadata(path) {
        Ok(there) if there.is_file() => fs::canonicalize(path).map(Some).with_context(failed),
        Ok(there) if there.file_type().is_fifo() || there.file_type().is_char_device() => Ok(None),
        Ok(_) => bail!("{} is neither a regular file nor a pipe", path.display()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(path.to_owned())),
        Err(error) => Err(error).with_context(failed),
    }
}

/// Writes the bytes to the disk, with the permissions of the file that is to be replaced.
fn fill(mut file: File, bytes: &[u8], target: &Path) -> io::Result<()> {
    if let Ok(old) = fs::metadata(target) {
        file.set_permissions(old.permissions())?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}

/// Creates a file that was not there before in the directory of `target`.
fn create_beside(target: &Path) -> io::Result<(PathBuf, File)> {
    /// So many leftovers of killed processes with our id are stepped over.
    const ATTEMPTS: u32 = 64;

    let name = target.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let directory = parent_or_here(target.parent().unwrap_or(Path::new("")));
    for attempt in 0..ATTEMPTS {
        let temporary = directory.join(format!(
            ".{}.{}-{attempt}.part",
            name.display(),
            std::process::id()
        ));
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// The parent of a bare file name is empty, and means the current directory.
fn parent_or_here(parent: &Path) -> &Path {
    if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    }
}
