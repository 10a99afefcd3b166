//! What the guest's kernel boots on: the part of QEMU's command line that a checkpoint and the runs from it share.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::{host, layout};

/// The guest's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clock {
    /// One nanosecond per instruction (`-icount shift=0,sleep=off`), with the same date and the same chance in
    /// every run: runs repeat whatever else the host does, and costs can be stated in instructions.
    Instructions,
    /// The host's time.
    Host,
}

/// RAM of the guest in MiB: the root file system lives in it.
pub(crate) const MEMORY: u64 = 2048;
/// One device for its log, the one that stops it at the checkpoint, no default devices. The HPET's time is rounded when
/// it is saved, and Linux 6.1 measures the time stamp counter by it: one more interrupt of the timer came after a
/// checkpoint.
const PLAIN_MACHINE: [&str; 12] = [
    "-machine",
    "pc,memory-backend=ram,nvdimm=on,hpet=off",
    "-accel",
    "tcg,thread=single,tb-size=512",
    "-nodefaults",
    "-display",
    "none",
    "-serial",
    "stdio",
    "-no-reboot",
    "-device",
    "pvpanic",
];
/// A host that is busy delays the emulated timer; the kernel's check of it then ends the boot
/// (arch/x86/kernel/apic/io_apic.c, check_timer).
/// Self-tests of ciphers and keys for signatures, neither of which runs in a test, took a seventh of a boot.
const COMMAND_LINE: &str = "console=ttyS0 panic=-1 loglevel=5 nmi_watchdog=0 tsc=nowatchdog no_timer_check \
                            cryptomgr.notests initcall_blacklist=jent_mod_init,load_system_certificate_list";

/// By the host's time, a CPU of a guest is stopped for as long as the host is busy: the longest time that the kernel grants
/// before it complains (kernel/rcu/tree_stall.h, rcu_jiffies_till_stall_check; kernel/watchdog.c, twice the threshold).
const PATIENCE: &str = " rcupdate.rcu_cpu_stall_timeout=300 watchdog_thresh=60";

/// Without SMAP, FSRM and ERMS: they cut blocks and copy byte by byte, which only costs time here. Without RDRAND and RDSEED, whose
/// numbers QEMU begins anew in each process: what follows a checkpoint would then differ from what follows a boot.
const CPU: &str = "max,la57=off,-smap,-erms,-fsrm,-rdrand,-rdseed";

/// QEMU 7.2 computes the flags after CMPXCHG16B from what it last stored of them, not from the instructions before it
/// in the same block (target/i386/tcg/translate.c, `case 0x1c7` without `gen_update_cc_op`). Where a block begins after
/// an interrupt, that is an operand of a comparison: a guest of four CPUs then failed within minutes, as half of a
/// pointer was in the flags that it saved. By instructions, a run that passed always passes.
const WITHOUT_CMPXCHG16B: &str = ",-cx16";

/// The hardware and the kernel of a guest.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Hardware {
    pub(crate) image: PathBuf,
    pub(crate) cpus: u32,
    pub(crate) clock: Clock,
    /// Properties of the CPU, as QEMU names them, after the usual ones.
    pub(crate) cpu: String,
    /// Parameters of the kernel's command line, after the usual ones.
    pub(crate) kernel_parameters: String,
}

impl Hardware {
    /// QEMU on the files `ram` and `shared` of a directory, with this archive.
    pub(crate) fn qemu(&self, directory: &Path, initramfs: &Path) -> Command {
        // The emulator must not outlive a test that is killed.
        let mut qemu = Command::new("setpriv");
        qemu.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
        qemu.args(PLAIN_MACHINE);
        qemu.args(["-cpu", &self.cpu(), "-m", &format!("{MEMORY}M,slots=1,maxmem=4G")]);
        qemu.args(["-smp", &self.cpus.to_string()]);
        let memory = |id: &str, bytes: u64| {
            let path = directory.join(id);
            format!(
                "memory-backend-file,id={id},share=on,size={bytes},mem-path={}",
                path.display()
            )
        };
        qemu.args(["-object", &memory("ram", MEMORY << 20)]);
        qemu.args(["-object", &memory("shared", layout::BYTES as u64)]);
        let place = layout::ADDRESS;
        qemu.args(["-device", &format!("nvdimm,memdev=shared,addr={place}")]);
        qemu.arg("-kernel").arg(&self.image).arg("-initrd").arg(initramfs);
        qemu.args(["-append", &self.parameters()]);
        if self.clock == Clock::Instructions {
            // Everything else that could differ between two runs: the date, and chance (KASLR).
            qemu.args(["-icount", "shift=0,sleep=off", "-seed", "1"]);
            qemu.args(["-rtc", "base=2026-01-01,clock=vm"]);
        }
        qemu
    }

    /// A number of all that decides what the guest has done at the checkpoint: this, the archive, and QEMU itself.
    ///
    /// # Errors
    /// When QEMU cannot be run.
    pub(crate) fn fingerprint(&self, initramfs: &[u8]) -> Result<String> {
        let version = host::output(Command::new("qemu-system-x86_64").arg("--version"))?;
        let mut hasher = DefaultHasher::new();
        (
            self,
            PLAIN_MACHINE,
            self.cpu(),
            self.parameters(),
            version,
            initramfs,
        )
            .hash(&mut hasher);
        Ok(format!("{:016x}", hasher.finish()))
    }

    fn cpu(&self) -> String {
        let mut cpu = CPU.to_owned();
        if !self.cpu.is_empty() {
            cpu += ",";
            cpu += &self.cpu;
        }
        if self.clock == Clock::Host {
            cpu += WITHOUT_CMPXCHG16B;
        }
        cpu
    }

    fn parameters(&self) -> String {
        let mut parameters = format!("{COMMAND_LINE} {}", self.kernel_parameters);
        if self.clock == Clock::Host {
            parameters += PATIENCE;
        }
        parameters.trim_end().to_owned()
    }
}
