//! One run of the emulated machine: what is in it, and how long it may take.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::hardware_profile::HardwareProfile;
use crate::initramfs::Initramfs;
use crate::kernel::Kernel;
use crate::outcome::{Outcome, RunDirectory};
use crate::watchdog::{self, Verdict};
use crate::{artifacts, guest, layout};

/// RAM of the guest in MiB: the root file system lives in it.
const MEMORY: u64 = 2048;
/// One device for its log, none that nobody asked for.
const PLAIN_MACHINE: [&str; 12] = [
    "-machine",
    "pc,memory-backend=ram",
    "-accel",
    "tcg,thread=single,tb-size=512",
    "-nodefaults",
    "-display",
    "none",
    "-monitor",
    "none",
    "-serial",
    "stdio",
    "-no-reboot",
];
/// A host that is busy delays the emulated timer; the kernel's check of it then ends the boot
/// (arch/x86/kernel/apic/io_apic.c, check_timer).
/// Self-tests of ciphers and keys for signatures, neither of which runs in a test, took a seventh of a boot.
const COMMAND_LINE: &str = "console=ttyS0 panic=-1 loglevel=5 nmi_watchdog=0 tsc=nowatchdog no_timer_check \
                            cryptomgr.notests initcall_blacklist=jent_mod_init,load_system_certificate_list";

/// By the host's time, a CPU of a guest stands still for as long as the host is busy: the longest time that the kernel grants
/// before it complains (kernel/rcu/tree_stall.h, rcu_jiffies_till_stall_check; kernel/watchdog.c, twice the threshold).
const PATIENCE: &str = " rcupdate.rcu_cpu_stall_timeout=300 watchdog_thresh=60";

/// QEMU 7.2 computes the flags behind CMPXCHG16B from what it last stored of them, not from the instructions before it in the same
/// block (target/i386/tcg/translate.c, `case 0x1c7` without `gen_update_cc_op`). Where a block begins behind an interrupt, that is
/// an operand of a comparison: a guest of four CPUs then failed within minutes, as half of a pointer stood in the flags that it
/// saved. By instructions, a run that passed always passes.
const WITHOUT_CMPXCHG16B: &str = ",-cx16";

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
    /// One nanosecond per instruction (`-icount shift=0,sleep=off`), with the same date and the same chance in
    /// every run: runs repeat whatever else the host does, and costs can be told in instructions.
    Instructions,
    /// The host's time.
    Host,
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
    files: Initramfs,
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
            files: Initramfs::default(),
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

    /// What chance begins with, by the clock of instructions: RDRAND, KASLR, and the seeds of hashes.
    pub const fn seed(mut self, seed: u32) -> Self {
        self.seed = seed;
        self
    }

    /// The guest's clock, where it is to be another one than [`Self::cpus`] gives.
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
        self.install(command)?;
        fs::write(path.join("hardware_profile"), &self.hardware_profile)?;
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

    fn install<S: AsRef<str>>(&mut self, command: &[S]) -> Result<()> {
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
            .copy("init", &artifacts::guest_program("guest-init")?)?;
        let words: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
        self.files.file(guest::COMMAND, words.join("\0").as_bytes());
        let rate = HardwareProfile::parse(&self.hardware_profile)?.sample_rate;
        if 0 < rate {
            self.files.file(guest::SAMPLE_RATE, rate.to_string().as_bytes());
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

    fn qemu(&self, directory: &Path) -> Result<Command> {
        let hardware_profile = HardwareProfile::parse(&self.hardware_profile)?;
        // Without SMAP, FSRM and ERMS: they cut blocks and copy byte by byte, which only costs time here.
        let mut cpu = format!(
            "max,la57=off,-smap,-erms,-fsrm{}",
            prefixed(&hardware_profile.cpu)
        );
        if self.clock == Clock::Host {
            cpu += WITHOUT_CMPXCHG16B;
        }
        let file = |name: &str| directory.join(name).display().to_string();
        let trace = self.trace;
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
        // The emulator must not outlive a test that is killed.
        let mut qemu = Command::new("setpriv");
        qemu.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
        qemu.args(PLAIN_MACHINE);
        let (memory_size, cpus) = (format!("{MEMORY}M"), self.cpus.to_string());
        qemu.args(["-cpu", &cpu, "-m", &memory_size, "-smp", &cpus]);
        qemu.args(["-object", &memory("ram", MEMORY << 20)]);
        qemu.args(["-object", &memory("shared", layout::BYTES as u64)]);
        qemu.args(["-device", "ivshmem-plain,memdev=shared", "-plugin", &plugin]);
        qemu.arg("-kernel")
            .arg(&self.image)
            .arg("-initrd")
            .arg(directory.join("initramfs"));
        let mut parameters = format!("{COMMAND_LINE} {}", self.kernel_parameters);
        if self.clock == Clock::Host {
            parameters += PATIENCE;
        }
        qemu.args(["-append", parameters.trim_end()]);
        if self.clock == Clock::Instructions {
            // Everything else that could differ between two runs: the date, and chance (RDRAND, KASLR).
            qemu.args(["-icount", "shift=0,sleep=off", "-seed", &self.seed.to_string()]);
            qemu.args(["-rtc", "base=2026-01-01,clock=vm"]);
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
