//! The facts that say where a machine runs, as firmware, processor and kernel give them.
//!
//! The hypervisor writes most of them, so none is trusted beyond a name: they are short, and safe to print where they are.

use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::path::Path;

/// Most bytes of a fact that are read; /proc/cpuinfo has the flags of the first CPU well before.
const LONGEST: u64 = 16 << 10;

/// Most characters of a name.
const LONGEST_NAME: usize = 64;

/// What firmware calls the machine (/sys/class/dmi/id). Empty where there is no SMBIOS.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Dmi {
    pub(super) sys_vendor: String,
    /// The machine type, on EC2.
    pub(super) product_name: String,
    pub(super) bios_version: String,
    pub(super) chassis_asset_tag: String,
}

/// All facts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Facts {
    pub(super) dmi: Dmi,
    /// OEM of the ACPI tables, which only root can read: microVMs have these and no SMBIOS. `None` where they are hidden.
    pub(super) acpi_oem: Option<String>,
    /// Whether CPUID says that there is a hypervisor (leaf 1, ECX bit 31).
    pub(super) is_guest: bool,
    /// Names that hypervisors give themselves (CPUID from leaf 0x4000_0000 on).
    pub(super) hypervisors: Vec<String>,
    /// /sys/hypervisor/type.
    pub(super) hypervisor_type: String,
    /// `uname -r`.
    pub(super) kernel_release: String,
    /// Flags of the first CPU.
    cpu_flags: Vec<String>,
    /// What made the container, if it is one.
    pub(super) container: Option<&'static str>,
    /// Whether this process is in another PID namespace than the first one.
    pub(super) has_own_pids: bool,
    /// Whether it can run virtual machines.
    pub(super) runs_guests: bool,
}

/// EAX, EBX, ECX and EDX of a leaf of CPUID.
pub(super) type Registers = [u32; 4];

/// Bit 31 of ECX of leaf 1, which processors leave clear and hypervisors set (SDM vol. 2A, CPUID).
const HYPERVISOR: u32 = 1 << 31;

/// The leaves of hypervisors begin at a multiple of 0x100 in this range, where Linux looks for them
/// (arch/x86/include/asm/cpuid/api.h).
const HYPERVISOR_LEAVES: Range<u32> = 0x4000_0000..0x4001_0000;

/// The inode of the first PID namespace (include/uapi/linux/nsfs.h, `PID_NS_INIT_INO`).
const FIRST_PIDS: &str = "pid:[4026531836]";

impl Facts {
    /// Reads them below `root`, and from the processor.
    pub(super) fn read(root: &Path, cpuid: impl Fn(u32) -> Registers) -> Self {
        let read = |path: &str| name(&read_some(&root.join(path)));
        let dmi = |field: &str| read(&format!("sys/class/dmi/id/{field}"));
        let [_, _, features, _] = cpuid(1);
        let is_guest = features & HYPERVISOR != 0;
        let cpus = read_some(&root.join("proc/cpuinfo"));
        let cpus = String::from_utf8_lossy(&cpus);
        let flags = cpus
            .lines()
            .find_map(|line| line.strip_prefix("flags")?.split_once(':'));
        let pids = std::fs::read_link(root.join("proc/self/ns/pid"));
        Self {
            dmi: Dmi {
                sys_vendor: dmi("sys_vendor"),
                product_name: dmi("product_name"),
                bios_version: dmi("bios_version"),
                chassis_asset_tag: dmi("chassis_asset_tag"),
            },
            acpi_oem: acpi_oem(&root.join("sys/firmware/acpi/tables/FACP")),
            is_guest,
            hypervisors: if is_guest { hypervisors(cpuid) } else { Vec::new() },
            hypervisor_type: read("sys/hypervisor/type"),
            kernel_release: read("proc/sys/kernel/osrelease"),
            cpu_flags: flags.map_or_else(Vec::new, |(_, flags)| {
                flags.split_whitespace().map(str::to_owned).collect()
            }),
            container: container(root),
            has_own_pids: pids.is_ok_and(|pids| pids != Path::new(FIRST_PIDS)),
            runs_guests: root.join("dev/kvm").exists(),
        }
    }

    /// Whether the processor says that it has counters: Intel's, or AMD's since Family 15h.
    pub(super) fn has_counters(&self) -> bool {
        ["arch_perfmon", "perfctr_core"]
            .into_iter()
            .any(|flag| self.cpu_flags.iter().any(|it| it == flag))
    }

    /// Whether a hypervisor gives itself this name.
    pub(super) fn names_itself(&self, hypervisor: &str) -> bool {
        self.hypervisors.iter().any(|it| it == hypervisor)
    }
}

/// CPUID of the processor that this runs on.
pub(super) fn cpuid_of_this_machine(leaf: u32) -> Registers {
    let of = std::arch::x86_64::__cpuid(leaf);
    [of.eax, of.ebx, of.ecx, of.edx]
}

/// The names of hypervisors: a KVM that behaves like Hyper-V has two.
fn hypervisors(cpuid: impl Fn(u32) -> Registers) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for base in HYPERVISOR_LEAVES.step_by(0x100) {
        let [last, b, c, d] = cpuid(base);
        // Elsewhere a processor answers with its highest leaf. KVM may give 0 for its own.
        if base != HYPERVISOR_LEAVES.start && !(base..base.saturating_add(0x100)).contains(&last) {
            continue;
        }
        let bytes: Vec<u8> = [b, c, d].into_iter().flat_map(u32::to_le_bytes).collect();
        let name = name(&bytes);
        if !name.is_empty() && !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// The OEM in the header of an ACPI table (ACPI 6.5, section 5.2.6); empty without the table, `None` if it cannot be read.
fn acpi_oem(table: &Path) -> Option<String> {
    let bytes = read_some(table);
    if bytes.is_empty() && table.exists() {
        return None;
    }
    Some(bytes.get(10..16).map(name).unwrap_or_default())
}

/// What left its mark: /run/systemd/container names the manager (systemd's container interface).
fn container(root: &Path) -> Option<&'static str> {
    let manager = name(&read_some(&root.join("run/systemd/container")));
    let known = ["docker", "podman", "lxc", "systemd-nspawn"];
    if let Some(known) = known.into_iter().find(|known| *known == manager) {
        return Some(known);
    }
    let marks = [
        (".dockerenv", "docker"),
        ("run/.containerenv", "podman"),
        ("var/run/secrets/kubernetes.io", "kubernetes"),
    ];
    let mark = marks.into_iter().find(|(mark, _)| root.join(mark).exists());
    mark.map(|(_, kind)| kind)
        .or_else(|| (!manager.is_empty()).then_some("unknown manager"))
}

/// The beginning of a file; nothing where it cannot be read.
fn read_some(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        // What was read before an error counts.
        let _ = file.take(LONGEST).read_to_end(&mut bytes);
    }
    bytes
}

/// A name as text, up to its first zero byte.
fn name(bytes: &[u8]) -> String {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(bytes);
    text.trim().chars().take(LONGEST_NAME).collect()
}
