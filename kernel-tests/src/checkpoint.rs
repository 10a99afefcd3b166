//! Guests that have booted: saved once for each hardware and kernel, and continued by each run.
//!
//! A boot takes as long as the load of many tests. PID 1 stops the machine before it reads the files of its run
//! ([`crate::guest::CHECKPOINT_PORT`]), so that all runs on the same hardware share what comes before. By the clock of
//! instructions, a run from a checkpoint executes what it executes after a boot that stops there (`tests/vm/checkpoint.rs`).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::hardware::{Hardware, MEMORY};
use crate::monitor::Monitor;
use crate::watchdog::{self, Running};
use crate::{host, layout};

/// A guest that is at its checkpoint.
pub(crate) struct Checkpoint {
    directory: PathBuf,
}

impl Checkpoint {
    /// The checkpoint of this hardware, with this archive: saved before, or now.
    ///
    /// # Errors
    /// When the guest does not reach it, or cannot be saved.
    pub(crate) fn of(hardware: &Hardware, initramfs: &[u8]) -> Result<Self> {
        let checkpoints = host::work_directory()?.join("checkpoints");
        let directory = checkpoints.join(hardware.fingerprint(initramfs)?);
        fs::create_dir_all(&directory).with_context(|| format!("failed to make {}", directory.display()))?;
        // Tests run at the same time, in threads and processes: one boots, the others wait for it.
        let lock = File::create(directory.join("lock"))?;
        lock.lock().context("failed to wait for a test that boots")?;
        let checkpoint = Self { directory };
        if !checkpoint.path("complete").exists() {
            fs::write(checkpoint.initramfs(), initramfs)?;
            checkpoint.save(hardware)?;
            File::create(checkpoint.path("complete"))?;
        }
        Ok(checkpoint)
    }

    /// The archive that the guest booted with.
    pub(crate) fn initramfs(&self) -> PathBuf {
        self.path("initramfs")
    }

    /// What the guest said until then.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.path("log"))?)
    }

    /// Copies the guest's memory to the `ram` of a run.
    ///
    /// # Errors
    /// When there is no room for it.
    pub(crate) fn copy_memory(&self, to: &Path) -> Result<()> {
        copy(&self.path("ram"), to)
    }

    /// Has a QEMU that waits for a guest continue this one.
    ///
    /// # Errors
    /// When QEMU refuses.
    pub(crate) fn load(&self, monitor: &mut Monitor) -> Result<()> {
        monitor.load(&self.path("state"))
    }

    /// Boots the guest and saves it where it stops.
    fn save(&self, hardware: &Hardware) -> Result<()> {
        let run = crate::outcome::RunDirectory::new()?;
        File::create(run.path.join("ram"))?.set_len(MEMORY << 20)?;
        File::create(run.path.join("shared"))?.set_len(layout::BYTES as u64)?;
        let socket = run.path.join("monitor");
        let mut qemu = hardware.qemu(&run.path, &self.initramfs());
        qemu.args(["-action", "panic=pause"]);
        Monitor::offer(&mut qemu, &socket);
        let mut running = Running::start(&mut qemu)?;
        let lines = running.lines();
        let saved = Monitor::connect(&socket, || running.runs()).and_then(|mut monitor| {
            monitor.wait_for_stop()?;
            monitor.save(&self.path("state"))
        });
        drop(running);
        let log: Vec<String> = lines.iter().map(|line| line + "\n").collect();
        let log = log.concat();
        saved.with_context(|| format!("the guest was not saved{}", watchdog::tail(&log)))?;
        fs::write(self.path("log"), log)?;
        copy(&run.path.join("ram"), &self.path("ram"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// Copies a file; cp leaves its holes, as most of the memory of a guest was never touched.
fn copy(from: &Path, to: &Path) -> Result<()> {
    host::run(Command::new("cp").arg(from).arg(to))
}
