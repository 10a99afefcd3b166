//! Opening what the user names: a profile, a recording (a file, perf's folder, or a stream that is copied first), or a
//! folder of segments.

use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use flate2::read::MultiGzDecoder;
use hbbp_import::{ImportError, RecordingFiles, START, format_of};
use hbbp_model::segments::is_folder_of_segments;
use hbbp_model::snapshot::file;
use hbbp_resolve::kernel::recorded::KernelPlace;

/// A recording, open at its start.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) files: RecordingFiles<File>,
    /// Where the kernel's text is: as the user says, else as perf put it next to the recording.
    pub(super) kernel: KernelPlace,
}

/// Most bytes that a compressed recording may unpack to: a small one may claim to hold any number of them.
const MOST_UNPACKED: u64 = 64 << 30;

/// Most files of a `perf record --threads` directory: one for each CPU.
const MOST_PARTS: usize = 1 << 13;

/// What the user names, open at its start.
pub(super) enum Named {
    Profile(File),
    Recording(Input),
    Segments,
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
pub(super) fn open(path: &Path, kernel: &KernelPlace) -> anyhow::Result<Named> {
    let mut kernel = kernel.clone();
    let mut parts = Vec::new();
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
        parts = open_parts(&data)?;
        File::open(&data).with_context(|| format!("the directory holds no recording ({})", data.display()))?
    } else {
        let mut opened = File::open(path)?;
        if opened.metadata()?.is_file() {
            opened
        } else {
            put_aside(&mut opened)?
        }
    };
    let mut start = start_of(&mut file)?;
    if is_gzip(&start) {
        file = unpack(file)?;
        start = start_of(&mut file)?;
    }
    let len = file.metadata()?.len();
    if len == 0 {
        bail!("the file is empty");
    }
    if file::is_snapshot(&start) {
        return Ok(Named::Profile(file));
    }
    let format = format_of(&start).ok_or(ImportError::Unknown)?;
    let files = RecordingFiles {
        file,
        len,
        format,
        parts,
    };
    Ok(Named::Recording(Input { files, kernel }))
}

/// The first bytes of a file, which is left at its start.
fn start_of(file: &mut File) -> anyhow::Result<Vec<u8>> {
    let mut start = Vec::new();
    (&*file).take(u64::try_from(START)?).read_to_end(&mut start)?;
    file.rewind()?;
    Ok(start)
}

/// Opens `data.0` and on, in which the threads of `perf record --threads` put their records.
fn open_parts(data: &Path) -> anyhow::Result<Vec<File>> {
    let mut parts = Vec::new();
    for n in 0..=MOST_PARTS {
        let mut part = data.as_os_str().to_owned();
        part.push(format!(".{n}"));
        let part = PathBuf::from(part);
        if !part.is_file() {
            return Ok(parts);
        }
        parts.push(File::open(&part).with_context(|| format!("failed to open {}", part.display()))?);
    }
    bail!("the directory holds more than {MOST_PARTS} files of records")
}

/// Whether a file that begins like this is compressed by gzip (RFC 1952).
fn is_gzip(start: &[u8]) -> bool {
    start.starts_with(&[0x1f, 0x8b, 8])
}

/// Unpacks a file into one without a name.
fn unpack(file: File) -> anyhow::Result<File> {
    let mut unpacked = MultiGzDecoder::new(BufReader::new(file)).take(MOST_UNPACKED + 1);
    let file = put_aside(&mut unpacked).context("failed to unpack the gzip file")?;
    if MOST_UNPACKED < file.metadata()?.len() {
        bail!("the gzip file unpacks to more than {} GiB", MOST_UNPACKED >> 30);
    }
    Ok(file)
}

/// Copies a stream to a file without a name, which goes away with its last user. Of what is neither a profile nor a recording only the
/// start is copied: it may have no end.
fn put_aside(stream: &mut dyn io::Read) -> anyhow::Result<File> {
    let mut file = tempfile::tempfile()?;
    let mut start = Vec::new();
    stream.take(u64::try_from(START)?).read_to_end(&mut start)?;
    let failed = "failed to copy the input to a temporary file";
    file.write_all(&start).context(failed)?;
    if file::is_snapshot(&start) || is_gzip(&start) || format_of(&start).is_some() {
        io::copy(stream, &mut file).context(failed)?;
    }
    file.rewind()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_without_end_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("profile.hbbp");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        for device in [Path::new("/dev/zero"), Path::new("/dev/full"), &link] {
            let refused = open(device, &KernelPlace::None).err().unwrap();
            assert!(refused.is::<ImportError>(), "{refused:#}");
        }
    }

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
