//! Opening what the user names: a profile, a recording (a file, perf's folder, or a stream that is copied first), or a
//! folder of segments.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use jiff::Timestamp;

use super::import::{ImportOptions, import_input};
use hbbp_import::{Format, ImportError, START, format_of};
use hbbp_model::profile;
use hbbp_model::segments::{TimeRange, is_folder_of_segments, read_range};
use hbbp_model::snapshot::{Snapshot, file};
use hbbp_resolve::kernel::recorded::KernelPlace;

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

/// What the user names, open at its start.
enum Named {
    Profile(File),
    Recording(Input),
    Segments,
}

/// Reads a profile of one run, or imports a recording.
pub(super) fn read_profile(options: &ImportOptions) -> anyhow::Result<Snapshot> {
    let failed = || format!("failed to read profile {}", options.file.display());
    profile::only(read_runs(options)?).with_context(failed)
}

/// Reads the runs of a profile or of a folder of segments, or imports a recording.
pub(super) fn read_runs(options: &ImportOptions) -> anyhow::Result<Vec<Snapshot>> {
    let shown = options.file.display();
    let named = open(&options.file, &options.kernel).with_context(|| format!("failed to open {shown}"))?;
    if !matches!(named, Named::Segments) {
        check_whole(&options.file, options.range)?;
    }
    match named {
        Named::Segments => read_segments(&options.file, options.range),
        Named::Profile(file) => {
            profile::read_from(file).with_context(|| format!("failed to read profile {shown}"))
        }
        Named::Recording(input) => Ok(vec![import_input(input, options)?]),
    }
}

/// Reads the runs of a profile or of a folder of segments.
pub(super) fn read_saved(path: &Path, range: TimeRange) -> anyhow::Result<Vec<Snapshot>> {
    if is_folder_of_segments(path) {
        return read_segments(path, range);
    }
    check_whole(path, range)?;
    profile::read_runs(path)
}

fn read_segments(folder: &Path, range: TimeRange) -> anyhow::Result<Vec<Snapshot>> {
    let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
    read_range(folder, range, now)
        .with_context(|| format!("failed to read the segments of {}", folder.display()))
}

/// Refuses a part of the time of what has no parts.
fn check_whole(path: &Path, range: TimeRange) -> anyhow::Result<()> {
    if !range.is_open() {
        bail!(
            "--since and --until need the directory of a `hbbp-sys daemon`, and {} is none",
            path.display()
        );
    }
    Ok(())
}

/// Opens a recording.
pub(super) fn open_recording(path: &Path, kernel: &KernelPlace) -> anyhow::Result<Input> {
    match open(path, kernel)? {
        Named::Recording(input) => Ok(input),
        Named::Profile(_) | Named::Segments => {
            bail!("this is a profile, not a recording: `hbbp-sys report` reads it as it is")
        }
    }
}

/// Opens a file, by its start. Standard input (`-`) and pipes are copied to a file without a name first, as a recording is
/// read twice.
fn open(path: &Path, kernel: &KernelPlace) -> anyhow::Result<Named> {
    let mut kernel = kernel.clone();
    let mut file = if path == Path::new("-") {
        put_aside(&mut io::stdin().lock())?
    } else if is_folder_of_segments(path) {
        return Ok(Named::Segments);
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
    if file::is_snapshot(&start) {
        return Ok(Named::Profile(file));
    }
    let format = format_of(&start).ok_or(ImportError::Unknown)?;
    Ok(Named::Recording(Input {
        file,
        len,
        format,
        kernel,
    }))
}

/// Copies a stream to a file without a name, which goes away with its last user.
fn put_aside(stream: &mut dyn io::Read) -> anyhow::Result<File> {
    let mut file = tempfile::tempfile()?;
    io::copy(stream, &mut file).context("failed to copy the input to a temporary file")?;
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
        let opened = || open(&path, &KernelPlace::None).unwrap();
        assert!(matches!(opened(), Named::Profile(_)));
        std::fs::write(&path, b" 401000  0x1/0x2/P/-/-/0\n").unwrap();
        assert!(matches!(opened(), Named::Recording(_)));
    }
}
