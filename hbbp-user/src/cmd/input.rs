//! Opening what the user names: a profile, or a recording (a file, perf's folder, or a stream that is copied first).

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::Path;

use anyhow::{Context as _, bail};

use super::import::{ImportOptions, import};
use crate::import::{Format, ImportError, START, format_of};
use crate::profile;
use crate::resolve::kernel::recorded::KernelPlace;
use crate::snapshot::{Snapshot, file};

/// A recording, open at its start.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) file: File,
    /// Length in bytes.
    pub(super) len: u64,
    pub(super) format: Format,
    /// Where the kernel's text is: as the user says, else as perf put it beside the recording.
    pub(super) kernel: KernelPlace,
}

/// Reads a profile, or imports a recording.
pub(super) fn read_profile(options: &ImportOptions) -> anyhow::Result<Snapshot> {
    if is_recording(&options.file) {
        import(options)
    } else {
        profile::read(&options.file)
    }
}

/// Whether a file is a recording, by its start. What cannot be read is left to the reader of profiles to complain of,
/// and standard input is a profile.
fn is_recording(path: &Path) -> bool {
    let read_start = || {
        let mut start = Vec::new();
        let file = File::open(path)
            .ok()
            .filter(|file| file.metadata().is_ok_and(|data| data.is_file()))?;
        file.take(u64::try_from(START).ok()?)
            .read_to_end(&mut start)
            .ok()?;
        format_of(&start).filter(|_| !file::is_snapshot(&start))
    };
    path.is_dir() || read_start().is_some()
}

/// Opens a recording. Standard input (`-`) and pipes are copied to a file without a name first, as a recording is read
/// twice.
pub(super) fn open_input(path: &Path, kernel: &KernelPlace) -> anyhow::Result<Input> {
    let mut kernel = kernel.clone();
    let mut file = if path == Path::new("-") {
        put_aside(&mut io::stdin().lock())?
    } else if path.is_dir() {
        // `perf record --kcore` writes a folder with the recording and a copy of the kernel's text.
        let copy = path.join("kcore_dir");
        if kernel == KernelPlace::None && copy.is_dir() {
            kernel = KernelPlace::Kcore(copy);
        }
        let data = path.join("data");
        File::open(&data).with_context(|| format!("the directory holds no recording ({})", data.display()))?
    } else {
        let mut opened = File::open(path)?;
        if opened.metadata()?.is_file() {
            opened
        } else {
            put_aside(&mut opened)?
        }
    };
    let len = file.metadata()?.len();
    if len == 0 {
        bail!("the file is empty");
    }
    let mut start = Vec::new();
    (&file).take(u64::try_from(START)?).read_to_end(&mut start)?;
    file.rewind()?;
    let format = format_of(&start).ok_or(ImportError::Unknown)?;
    Ok(Input {
        file,
        len,
        format,
        kernel,
    })
}

/// Copies a stream to a file without a name, which goes away with its last user.
fn put_aside(stream: &mut dyn io::Read) -> anyhow::Result<File> {
    let mut file = tempfile::tempfile()?;
    io::copy(stream, &mut file).context("failed to copy the recording to a temporary file")?;
    file.rewind()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_not_a_recording_whatever_its_bytes_look_like() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile");
        std::fs::write(&path, b"HBBPSNAP\n 401000  0x1/0x2/P/-/-/0\n").unwrap();
        assert!(!is_recording(&path));
        std::fs::write(&path, b" 401000  0x1/0x2/P/-/-/0\n").unwrap();
        assert!(is_recording(&path));
    }
}
