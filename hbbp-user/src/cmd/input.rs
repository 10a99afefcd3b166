//! Opening what the user names: a profile, a recording (a file, perf's folder, or a stream that is copied first), or a
//! folder of segments.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail};

use hbbp_import::{Format, ImportError, START, format_of};
use hbbp_model::segments::is_folder_of_segments;
use hbbp_model::snapshot::file;
use hbbp_resolve::kernel::recorded::KernelPlace;

/// A recording, open at its start.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) file: File,
    /// Length in bytes.
    pub(super) len: u64,
    pub(super) format: Format,
    /// Where the kernel's text is: as the user says, else as perf stored it with the recording.
    pub(super) kernel: KernelPlace,
}

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

/// Copies a stream to a file without a name, which goes away with its last user. Of what is neither a profile nor a recording only the
/// start is copied: it may have no end.
fn put_aside(stream: &mut dyn io::Read) -> anyhow::Result<File> {
    let mut file = tempfile::tempfile()?;
    let mut start = Vec::new();
    stream.take(u64::try_from(START)?).read_to_end(&mut start)?;
    let failed = "failed to copy the input to a temporary file";
    file.write_all(&start).context(failed)?;
    if file::is_snapshot(&start) || format_of(&start).is_some() {
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
        let refused = open(Path::new("/dev/zero"), &KernelPlace::None).err().unwrap();
        assert!(refused.is::<ImportError>(), "{refused:#}");
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
