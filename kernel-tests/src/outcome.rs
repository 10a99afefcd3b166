//! The outcome of a run of the machine: output and files of the command, the reference, the log.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::reference::{self, Reference};
use crate::{guest, host, watchdog};

/// The outcome of a run; its files on the host are removed on drop.
pub struct Outcome {
    /// Exit code of the command.
    pub exit_code: i32,
    /// Files of the guest's `/out`, with `stdout` and `stderr`.
    pub files: BTreeMap<String, Vec<u8>>,
    /// The guest's console.
    pub log: String,
    /// Time from QEMU's start to its end.
    pub took: Duration,
    pub(crate) directory: RunDirectory,
}

impl Outcome {
    /// The reference of the marked spans.
    ///
    /// # Errors
    /// When the run wrote none.
    pub fn reference(&self) -> Result<Reference> {
        self.reference_of(0)
    }

    /// The `n`th reference that the guest had written, from 0.
    ///
    /// # Errors
    /// When the run wrote fewer.
    pub fn reference_of(&self, n: u32) -> Result<Reference> {
        reference::read(&self.directory.path.join(reference::file(n)))
    }

    /// The driver's and the emulated PMU's own counters: how many records were written, delivered, lost.
    ///
    /// # Errors
    /// When the guest left none: it had no driver.
    pub fn counters(&self) -> Result<BTreeMap<String, u64>> {
        let text = self.text("counters")?;
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        lines
            .map(|(name, number)| Ok((name.to_owned(), number.parse()?)))
            .collect()
    }

    /// Directory on the host with `reference`, later ones, and the trace if there is one.
    pub fn directory(&self) -> &Path {
        &self.directory.path
    }

    /// A file of the guest's `/out` as text.
    ///
    /// # Errors
    /// When the guest left no file of that name.
    pub fn text(&self, name: &str) -> Result<String> {
        let bytes = self
            .files
            .get(name)
            .with_context(|| format!("the guest left no file /out/{name}"))?;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// What the command printed, once it has succeeded.
    ///
    /// # Errors
    /// When it did not end with exit code 0; the message holds its standard error.
    pub fn stdout(&self) -> Result<String> {
        if self.exit_code != 0 {
            let said = self
                .text(guest::STDERR)
                .unwrap_or_else(|_| watchdog::tail(&self.log));
            bail!("the command ended with {}:\n{said}", self.exit_code);
        }
        self.text(guest::STDOUT)
    }
}

/// A directory in memory for the files that the guest's memory is made of.
pub(crate) struct RunDirectory {
    pub(crate) path: PathBuf,
}

impl RunDirectory {
    pub(crate) fn new() -> Result<Self> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() {
            memory.to_owned()
        } else {
            host::work_directory()?
        };
        remove_abandoned(&parent);
        let number = RUNS.fetch_add(1, Relaxed);
        let path = parent.join(format!("hbbp-vm-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("failed to make {}", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        // What cannot be removed is left to the host's own cleaning; it cannot be reported here.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes what runs left whose process was killed: their memory files would fill the host's memory.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name
            .to_str()
            .and_then(|name| name.strip_prefix("hbbp-vm-")?.split('-').next());
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
            // Another run may have removed it first.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
