//! One run of the emulated machine: what is in it, and how long it may take.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::checkpoint::Checkpoint;
use crate::files::GuestFiles;
pub use crate::hardware::Clock;
use crate::hardware::{self, Hardware};
use crate::hardware_profile::HardwareProfile;
use crate::kernel::Kernel;
use crate::monitor::Monitor;
use crate::outcome::{Outcome, RunDirectory};
use crate::watchdog::{self, Running, Verdict};
use crate::{artifacts, guest, initramfs, layout};

/// When the reference counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// While the command runs, on every CPU.
    Command,
    /// On each CPU, while it has a running event that samples: reference and measurement span the same work.
    Events,
    /// When programs in the guest say so (`mark.rs`, `workloads/mark.h`).
    Program,
}

/// Where a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// With a boot.
    Cold,
    /// With a guest that has booted ([`crate::checkpoint`]).
    Checkpoint,
}

/// A machine to be booted.
pub struct Machine {
    kernel: Kernel,
    cpus: u32,
    clock: Clock,
    seed: u32,
    image: PathBuf,
    marks: Marks,
    trace: &'static str,
    hardware_profile: String,
    driver_parameters: Option<String>,
    kernel_parameters: String,
    limit: Duration,
    start: Start,
    files: GuestFiles,
    modules: u32,
}

impl Machine {
    /// A machine with one CPU, the faultless hardware profile, the clock of instructions, and half an hour to live.
    pub fn new(kernel: &Kernel) -> Self {
        Self {
            kernel: kernel.clone(),
            cpus: 1,
            clock: Clock::Instructions,
            seed: 1,
            image: kernel.uncompressed.clone(),
            marks: Marks::Command,
            trace: "",
            hardware_profile: String::new(),
            driver_parameters: Some(String::new()),
            kernel_parameters: String::new(),
            limit: Duration::from_secs(1800),
            start: Start::Checkpoint,
            files: GuestFiles::default(),
            modules: 0,
        }
    }

    /// Virtual CPUs, at most 8. Several of them go by the host's clock: counting instructions, the emulator gives each
    /// one its turn up to the next timer, and one that waits for another spins for so long.
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        if 1 < cpus {
            self.clock = Clock::Host;
        }
        self
    }

    /// What chance begins with, by the clock of instructions: addresses of programs, and the seeds of hashes.
    pub const fn seed(mut self, seed: u32) -> Self {
        self.seed = seed;
        self
    }

    /// The guest's clock, if it differs from the one that [`Self::cpus`] selects.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Boots the compressed image, which unpacks itself to a random address; slower.
    pub fn randomized(mut self) -> Self {
        self.image.clone_from(&self.kernel.image);
        self
    }

    /// When the reference counts.
    pub fn marks(mut self, marks: Marks) -> Self {
        self.marks = marks;
        self
    }

    /// Keeps every branch and sample of the marked spans; slower by far ([`crate::trace`]).
    pub fn traced(mut self) -> Self {
        self.trace = ",trace=on";
        self
    }

    /// Keeps every branch stack as the emulated PMU wrote it ([`crate::trace::Stack`]).
    pub fn keep_stacks(mut self) -> Self {
        self.trace = ",trace=stacks";
        self
    }

    /// Text of a hardware profile file ([`crate::hardware_profile`]).
    pub fn hardware_profile(mut self, text: &str) -> Self {
        text.clone_into(&mut self.hardware_profile);
        self
    }

    /// Module parameters of the driver, for example `name=cpu drain_us=100`.
    pub fn driver(mut self, parameters: &str) -> Self {
        self.driver_parameters = Some(parameters.to_owned());
        self
    }

    /// Parameters of the kernel's command line, after the usual ones.
    pub fn kernel_parameters(mut self, parameters: &str) -> Self {
        parameters.clone_into(&mut self.kernel_parameters);
        self
    }

    /// Boots without the driver: a machine without branch records, as most virtual machines are.
    pub fn without_driver(mut self) -> Self {
        self.driver_parameters = None;
        self
    }

    /// Time from QEMU's start to the verdict.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The guest's files, to add more.
    pub fn files(&mut self) -> &mut GuestFiles {
        &mut self.files
    }

    /// A module that PID 1 loads before the command, after those added before it.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn module(&mut self, path: &Path) -> Result<()> {
        let name = path.file_name().context("a module has a name")?.to_string_lossy();
        self.modules += 1;
        self.files
            .copy(&format!("{}/{:02}-{name}", guest::MODULES, self.modules), path)
    }

    /// Boots for this run alone, instead of continuing a guest that has booted. It stops at the checkpoint as well: the
    /// stop moves the guest's clock by some instructions.
    pub fn cold(mut self) -> Self {
        self.start = Start::Cold;
        self
    }

    /// Runs the command in the guest, and brings everything back.
    ///
    /// # Errors
    /// When something is missing or does not build, and when the guest panics, stalls, hangs or ends
    /// without a verdict; the message then holds the end of the guest's log.
    pub fn run<S: AsRef<str>>(mut self, command: &[S]) -> Result<Outcome> {
        let directory = RunDirectory::new()?;
        let path = directory.path.as_path();
        let profile = HardwareProfile::parse(&self.hardware_profile)?;
        self.install(command, profile.sample_rate)?;
        fs::write(path.join("hardware_profile"), &self.hardware_profile)?;
        self.share_files(&path.join("shared"))?;
        let Verdict { exit_code, log, took } = self.start(path, profile.cpu)?;
        let mut shared = File::open(path.join("shared"))?;
        shared.seek(SeekFrom::Start(layout::FILES as u64))?;
        // The memory after the files was never touched.
        let mut length = [0; guest::LENGTH];
        shared.read_exact(&mut length)?;
        let mut memory = length.to_vec();
        shared.take(u64::from_le_bytes(length)).read_to_end(&mut memory)?;
        let files = guest::unpack(&memory)?;
        let files = files.into_iter().map(|(name, bytes)| (name, bytes.to_vec()));
        fs::remove_file(path.join("ram"))?;
        Ok(Outcome {
            exit_code,
            files: files.collect(),
            log,
            took,
            directory,
        })
    }

    /// Starts QEMU in the directory of the run, and waits for the verdict.
    fn start(&self, directory: &Path, cpu: String) -> Result<Verdict> {
        let hardware = Hardware {
            image: self.image.clone(),
            cpus: self.cpus,
            clock: self.clock,
            cpu,
            kernel_parameters: self.kernel_parameters.clone(),
        };
        let initramfs = boot_archive()?;
        let ram = directory.join("ram");
        match self.start {
            Start::Cold => {
                let archive = directory.join("initramfs");
                fs::write(&archive, initramfs)?;
                File::create(ram)?.set_len(hardware::MEMORY << 20)?;
                let mut qemu = hardware.qemu(directory, &archive);
                qemu.args(["-action", "panic=pause"]);
                let socket = directory.join("monitor");
                Monitor::offer(&mut qemu, &socket);
                self.add_plugin(&mut qemu, directory)?;
                watchdog::watch(&mut qemu, self.limit, |qemu: &mut Running| {
                    let mut monitor = Monitor::connect(&socket, || qemu.runs())?;
                    monitor.wait_for_stop()?;
                    monitor.go_on()
                })
            }
            Start::Checkpoint => {
                let checkpoint = Checkpoint::of(&hardware, &initramfs)?;
                checkpoint.copy_memory(&ram)?;
                let socket = directory.join("monitor");
                let mut qemu = hardware.qemu(directory, &checkpoint.initramfs());
                qemu.args(["-action", "panic=none", "-incoming", "defer"]);
                Monitor::offer(&mut qemu, &socket);
                self.add_plugin(&mut qemu, directory)?;
                let load =
                    |qemu: &mut Running| checkpoint.load(&mut Monitor::connect(&socket, || qemu.runs())?);
                let verdict = watchdog::watch(&mut qemu, self.limit, load)?;
                let log = checkpoint.log()? + &verdict.log;
                Ok(Verdict { log, ..verdict })
            }
        }
    }

    fn add_plugin(&self, qemu: &mut Command, directory: &Path) -> Result<()> {
        let (plugin, trace) = (artifacts::plugin()?, self.trace);
        let plugin = format!("{},dir={}{trace}", plugin.display(), directory.display());
        qemu.args(["-plugin", &plugin]);
        Ok(())
    }

    /// The memory that the guest shares with the host, with the files of the run in it.
    fn share_files(&self, to: &Path) -> Result<()> {
        let packed = guest::pack(self.files.entries());
        let room = layout::BYTES - layout::FILES;
        ensure!(
            packed.len() <= room,
            "the guest's files have {} bytes and {room} fit into the shared memory: bring fewer",
            packed.len()
        );
        let shared = File::create(to)?;
        shared.set_len(layout::BYTES as u64)?;
        shared.write_all_at(&packed, layout::FILES as u64)?;
        Ok(())
    }

    /// Adds what PID 1 needs for the command.
    fn install<S: AsRef<str>>(&mut self, command: &[S], sample_rate: u32) -> Result<()> {
        self.files.directory(guest::MODULES);
        let words: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
        self.files.file(guest::COMMAND, words.join("\0").as_bytes());
        self.files.file(guest::SEED, &self.seed.to_le_bytes());
        if 0 < sample_rate {
            self.files
                .file(guest::SAMPLE_RATE, sample_rate.to_string().as_bytes());
        }
        let marks = match self.marks {
            Marks::Command => "command",
            Marks::Events => "events",
            Marks::Program => "program",
        };
        self.files.file(guest::MARKS, marks.as_bytes());
        if let Some(parameters) = &self.driver_parameters {
            let events = u32::from(self.marks == Marks::Events);
            let parameters = format!("mark_events={events} {parameters}");
            self.files.file(guest::DRIVER_PARAMETERS, parameters.as_bytes());
            let driver = artifacts::module("driver", "hbbp_emu", &self.kernel)?;
            self.files.copy(guest::DRIVER, &driver)?;
        }
        Ok(())
    }
}

/// What a guest boots with: PID 1, and the directories that it and its commands expect.
fn boot_archive() -> Result<Vec<u8>> {
    let mut files = GuestFiles::default();
    for directory in ["proc", "sys", "dev", "tmp", "out", "run", "root", "bin"] {
        files.directory(directory);
    }
    files.copy("init", &artifacts::guest_program("guest-init")?)?;
    Ok(initramfs::archive(&files))
}
