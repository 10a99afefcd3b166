//! One run of the emulated machine: what is in it, how long it may take, what it left behind.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::initramfs::Initramfs;
use crate::kernel::Kernel;
use crate::reference::{self, Reference};
use crate::watchdog::{self, Verdict};
use crate::{artifacts, guest, host, layout};

/// RAM of the guest in MiB: the root file system lives in it.
const MEMORY: u64 = 2048;

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

/// The guest's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The host's time.
    Host,
    /// One nanosecond per instruction (`-icount shift=0,sleep=off`): runs repeat, and costs can be told in
    /// instructions.
    Instructions,
}

/// A machine to be booted.
pub struct Machine {
    kernel: Kernel,
    cpus: u32,
    clock: Clock,
    marks: Marks,
    traced: bool,
    personality: String,
    driver_parameters: Option<String>,
    limit: Duration,
    files: Initramfs,
    modules: u32,
}

/// What a run left behind; its files on the host go when it is dropped.
pub struct Outcome {
    /// Exit code of the command.
    pub exit_code: i32,
    /// Files of the guest's `/out`, with `stdout` and `stderr`.
    pub files: BTreeMap<String, Vec<u8>>,
    /// The guest's console.
    pub log: String,
    /// Time from QEMU's start to its end.
    pub took: Duration,
    directory: RunDirectory,
}

impl Machine {
    /// A machine with one CPU, the faultless personality, the host's clock, and five minutes to live.
    pub fn new(kernel: &Kernel) -> Self {
        Self {
            kernel: kernel.clone(),
            cpus: 1,
            clock: Clock::Host,
            marks: Marks::Command,
            traced: false,
            personality: String::new(),
            driver_parameters: Some(String::new()),
            limit: Duration::from_secs(300),
            files: Initramfs::default(),
            modules: 0,
        }
    }

    /// Virtual CPUs, at most 8.
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// The guest's clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// When the reference counts.
    pub fn marks(mut self, marks: Marks) -> Self {
        self.marks = marks;
        self
    }

    /// Keeps every branch and sample of the marked spans; slower by far ([`crate::trace`]).
    pub fn traced(mut self) -> Self {
        self.traced = true;
        self
    }

    /// Text of a personality file ([`crate::personality`]).
    pub fn personality(mut self, text: &str) -> Self {
        text.clone_into(&mut self.personality);
        self
    }

    /// Module parameters of the driver, for example `name=silicon drain_us=100`.
    pub fn driver(mut self, parameters: &str) -> Self {
        self.driver_parameters = Some(parameters.to_owned());
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
    pub fn files(&mut self) -> &mut Initramfs {
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

    /// Boots, runs the command in the guest, and brings everything back.
    ///
    /// # Errors
    /// When something is missing or does not build, and when the guest panics, stalls, hangs or ends
    /// without a verdict; the message then holds the end of the guest's log.
    pub fn run<S: AsRef<str>>(mut self, command: &[S]) -> Result<Outcome> {
        let directory = RunDirectory::new()?;
        let path = directory.path.as_path();
        self.furnish(command)?;
        fs::write(path.join("personality"), &self.personality)?;
        File::create(path.join("shared"))?.set_len(layout::BYTES as u64)?;
        File::create(path.join("ram"))?.set_len(MEMORY << 20)?;
        std::mem::take(&mut self.files).write(&path.join("initramfs"))?;
        let Verdict { exit_code, log, took } = watchdog::watch(&mut self.qemu(path)?, self.limit)?;
        let mut shared = File::open(path.join("shared"))?;
        shared.seek(SeekFrom::Start(layout::OUT as u64))?;
        let mut memory = Vec::new();
        shared.read_to_end(&mut memory)?;
        let files = guest::unpack(&memory)?;
        fs::remove_file(path.join("ram"))?;
        Ok(Outcome {
            exit_code,
            files,
            log,
            took,
            directory,
        })
    }

    fn furnish<S: AsRef<str>>(&mut self, command: &[S]) -> Result<()> {
        for directory in [
            "proc",
            "sys",
            "dev",
            "tmp",
            "out",
            "run",
            "root",
            "bin",
            guest::MODULES,
        ] {
            self.files.directory(directory);
        }
        self.files
            .copy("init", &artifacts::guest_program("kernel-tests", "guest-init")?)?;
        let words: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
        self.files.file(guest::COMMAND, words.join("\0").as_bytes());
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
            let driver = artifacts::module("driver", "hbbp_silicon", &self.kernel)?;
            self.files.copy(guest::DRIVER, &driver)?;
        }
        Ok(())
    }

    fn qemu(&self, directory: &Path) -> Result<Command> {
        let personality = crate::personality::Personality::parse(&self.personality)?;
        // Without SMAP, FSRM and ERMS: they cut blocks and copy byte by byte, which only costs time here.
        let cpu = format!("max,la57=off,-smap,-erms,-fsrm{}", prefixed(&personality.cpu));
        let file = |name: &str| directory.join(name).display().to_string();
        let trace = if self.traced { ",trace=on" } else { "" };
        let plugin = format!(
            "{},dir={}{trace}",
            artifacts::plugin()?.display(),
            directory.display()
        );
        let memory = |id: &str, bytes: u64| {
            format!(
                "memory-backend-file,id={id},share=on,size={bytes},mem-path={}",
                file(id)
            )
        };
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args([
            "-machine",
            "pc,memory-backend=ram",
            "-accel",
            "tcg,thread=single,tb-size=512",
        ]);
        qemu.args([
            "-nodefaults",
            "-display",
            "none",
            "-monitor",
            "none",
            "-serial",
            "stdio",
            "-no-reboot",
        ]);
        qemu.args([
            "-cpu",
            &cpu,
            "-m",
            &format!("{MEMORY}M"),
            "-smp",
            &self.cpus.to_string(),
        ]);
        qemu.args(["-object", &memory("ram", MEMORY << 20)]);
        qemu.args(["-object", &memory("shared", layout::BYTES as u64)]);
        qemu.args(["-device", "ivshmem-plain,memdev=shared", "-plugin", &plugin]);
        qemu.arg("-kernel")
            .arg(&self.kernel.image)
            .arg("-initrd")
            .arg(directory.join("initramfs"));
        qemu.args([
            "-append",
            "console=ttyS0 panic=-1 loglevel=5 nmi_watchdog=0 tsc=nowatchdog",
        ]);
        if self.clock == Clock::Instructions {
            qemu.args(["-icount", "shift=0,sleep=off"]);
        }
        Ok(qemu)
    }
}

fn prefixed(cpu: &str) -> String {
    if cpu.is_empty() {
        String::new()
    } else {
        format!(",{cpu}")
    }
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

    /// The driver's and the silicon's own counters: how many records were written, delivered, lost.
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
struct RunDirectory {
    path: PathBuf,
}

impl RunDirectory {
    fn new() -> Result<Self> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() {
            memory.to_owned()
        } else {
            host::work_directory()?
        };
        let number = RUNS.fetch_add(1, Relaxed);
        let path = parent.join(format!("hbbp-vm-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("failed to make {}", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        // What cannot be removed is left to the host's own cleaning; there is nobody to tell here.
        let _ = fs::remove_dir_all(&self.path);
    }
}
