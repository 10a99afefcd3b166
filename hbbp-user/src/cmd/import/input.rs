//! Opening a recording: a file, perf's folder, or a stream that has to be put aside first.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::import::{Format, ImportError, START, format_of};
use crate::resolve::recorded::kernel::KernelPlace;

/// A recording, open at its start.
#[derive(Debug)]
pub(in crate::cmd) struct Input {
    pub(in crate::cmd) file: File,
    /// Length in bytes.
    pub(in crate::cmd) len: u64,
    pub(in crate::cmd) format: Format,
    /// Where the kernel's text is: as the user says, else as perf put it beside the recording.
    pub(in crate::cmd) kernel: KernelPlace,
}

/// Opens a recording. Standard input (`-`) and pipes are copied to a file without a name first, as a recording is read
/// twice.
pub(in crate::cmd) fn open_input(path: &Path, kernel: &KernelPlace) -> anyhow::Result<Input> {
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

fn put_aside(stream: &mut dyn io::Read) -> anyhow::Result<File> {
    let mut file = tempfile::tempfile()?;
    io::copy(stream, &mut file).context("failed to copy the recording to a temporary file")?;
    file.rewind()?;
    Ok(file)
}
