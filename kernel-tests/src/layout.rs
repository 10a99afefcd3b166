//! The shared memory between the emulated PMU (the TCG plugin), the guest driver and the guest's PID 1.
//!
//! One file on the host is mapped by the plugin and is the guest's only NVDIMM: memory that the kernel leaves alone, at the
//! same address from the start of the machine, as a guest that is saved needs it.
//! `driver/layout.h` is the same contract in C; a test in `tests/contract.rs` compares the two.
//! All numbers are little-endian, all offsets are bytes from the start of the file.

/// "HBBPSIL1", the first eight bytes of the file, written by the plugin when it is loaded.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HBBPSIL1");
/// Address of the memory in the guest: where QEMU begins to map such devices, after the RAM (hw/i386/pc.c,
/// `device_memory`).
pub const ADDRESS: u64 = 4 << 30;
/// Size of the file.
pub const BYTES: usize = 256 << 20;
/// Most virtual CPUs the layout has room for.
pub const MAX_CPUS: usize = 8;
/// Most entries a branch stack can have (Intel LBR since Skylake, AMD LBRv2 at most).
pub const MAX_DEPTH: usize = 32;
/// Sampling counters per CPU: two would do for one tool, a second tool at the same time needs its own two.
pub const COUNTERS: usize = 8;

/// Addresses of the 256 interrupt gates, written by the driver before [`Doorbell::Attach`].
pub const IDT: usize = 0x1000;
/// First of the per-CPU areas ([`CpuArea`]).
pub const CPU_AREA: usize = 0x2000;
/// Distance from one per-CPU area to the next.
pub const CPU_AREA_BYTES: usize = 0x1000;
/// First of the per-CPU record rings.
pub const RINGS: usize = 0x10_0000;
/// Distance from one ring to the next.
pub const RING_BYTES: usize = 0x10_0000;
/// Records that fit into one ring.
pub const RING_SLOTS: usize = 1024;
/// Where the host leaves the files of the run, and PID 1 those that come back ([`crate::guest`]).
pub const FILES: usize = 64 << 20;

/// First bytes of the file.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// Entries of a branch stack on this machine.
    pub depth: u32,
    /// 1 once every instruction is seen by the emulated PMU (some time after [`Doorbell::Attach`]).
    pub running: u32,
    /// Highest precise level that the hardware profile offers (`caps/max_precise`).
    pub max_precise: u32,
    /// Padding to a full word.
    pub reserved: u32,
    /// Transitions the emulated PMU could not explain; a test asserts that it stays 0 in marked spans.
    pub anomalies: u64,
}

/// What one CPU shares with its driver.
#[repr(C)]
pub struct CpuArea {
    /// Thread group of the running task; 0 in the idle task.
    pub tgid: u32,
    /// The running task.
    pub pid: u32,
    /// Its name, padded with zeros.
    pub comm: [u8; 16],
    /// Which rings' branches go into the stack (bit 0 user, bit 1 kernel), as LBR_SELECT does.
    pub branch_rings: u32,
    /// Padding to a full word.
    pub reserved: u32,
    /// Records written so far (the emulated PMU's index into the ring).
    pub head: u64,
    /// Records read so far (the driver's index into the ring).
    pub tail: u64,
    /// Overflows whose record found the ring full.
    pub lost_full: u64,
    /// Overflows whose record the hardware profile dropped on purpose.
    pub lost_dropped: u64,
    /// Overflows whose counter was switched off before their record was taken (skid in flight).
    pub lost_stopped: u64,
    /// Overflows of any kind: `head + lost_full + lost_dropped + lost_stopped`.
    pub overflows: u64,
    /// The sampling counters.
    pub counters: [Counter; COUNTERS],
}

/// One sampling counter.
#[repr(C)]
pub struct Counter {
    /// 0 = off, else [`EVENT_INSTRUCTIONS`], [`EVENT_TAKEN`], [`EVENT_CYCLES`], [`EVENT_BRANCHES`],
    /// [`EVENT_TIMER`], or [`EVENT_CLASSES`] and those after it.
    pub event: u32,
    /// Which rings count: bit 0 user, bit 1 kernel.
    pub rings: u32,
    /// Events between two overflows; 0 = count only.
    pub period: u64,
    /// Events until the next overflow: set by the driver with [`Doorbell::Config`], read back by
    /// [`Doorbell::Read`] and when the counter is switched off.
    pub left: u64,
    /// Events since [`Doorbell::Config`], valid after [`Doorbell::Read`] and when the counter is switched off.
    pub value: u64,
    /// Requested precise level, 0 to 3: the hardware profile decides how far a sample of that level skids.
    pub precise: u32,
    /// Number of this configuration; records carry it so that the driver knows stale ones.
    pub generation: u32,
}

/// Instructions retired.
pub const EVENT_INSTRUCTIONS: u32 = 1;
/// Near branches that were taken.
pub const EVENT_TAKEN: u32 = 2;
/// Cycles, by the cost model of the hardware profile ([`crate::hardware_profile`]).
pub const EVENT_CYCLES: u32 = 3;
/// Near branch instructions retired, taken or not.
pub const EVENT_BRANCHES: u32 = 4;
/// Cycles of both rings, as a timer: its interrupt comes on the boundary of an instruction, while interrupts are on.
pub const EVENT_TIMER: u32 = 5;
/// The first of the classes of instructions ([`crate::classes::Class`]), which follow each other. They only count.
pub const EVENT_CLASSES: u32 = 6;

/// One taken branch.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Branch {
    /// Address of the branch; of the interrupted or faulting instruction for an interrupt.
    pub from: u64,
    /// Where it went.
    pub to: u64,
}

/// One record of a ring, written by the emulated PMU at an overflow.
#[repr(C)]
pub struct Record {
    /// Number of the record on its CPU, from 0.
    pub seq: u64,
    /// Eventing IP.
    pub ip: u64,
    /// Index of the counter.
    pub counter: u32,
    /// The counter's [`Counter::generation`].
    pub generation: u32,
    /// [`CpuArea::tgid`] at the overflow.
    pub tgid: u32,
    /// [`CpuArea::pid`] at the overflow.
    pub pid: u32,
    /// Number of events that this record represents.
    pub period: u64,
    /// [`Counter::value`] at the overflow.
    pub value: u64,
    /// Branches the CPU had recorded up to the newest of `entries`.
    pub branches: u64,
    /// Valid entries.
    pub nr: u32,
    /// [`FLAG_EXACT`].
    pub flags: u32,
    /// Bit i: entry i is of a path that was not taken in the end (AMD hardware profiles only).
    pub wrong_path: u64,
    /// The stack, newest first, as the kernel's perf core has it.
    pub entries: [Branch; MAX_DEPTH],
    /// For each entry, the cycles since the branch before it, at most 65535; 0 if the processor does not count them.
    pub cycles: [u16; MAX_DEPTH],
}

/// The eventing IP is the instruction of the overflow, not one after it.
pub const FLAG_EXACT: u32 = 1;

const _: () = assert!(size_of::<Header>() == 32);
const _: () = assert!(size_of::<Counter>() == 40);
const _: () = assert!(size_of::<CpuArea>() == 80 + 40 * COUNTERS);
const _: () = assert!(size_of::<Record>() == 72 + 18 * MAX_DEPTH);
const _: () = assert!(size_of::<Record>() * RING_SLOTS <= RING_BYTES);
const _: () = assert!(size_of::<CpuArea>() <= CPU_AREA_BYTES);

/// A doorbell is an eight-byte no-op, `nopl imm32(%rax,%rax,1)`: the processor does nothing, the emulated PMU
/// sees it execute. It models a write to a model-specific register.
pub const DOORBELL: [u8; 4] = [0x0f, 0x1f, 0x84, 0x00];
/// Upper half of the doorbell's displacement ("HB"); the lower half is the [`Doorbell`].
pub const DOORBELL_BASE: u32 = 0x4842_0000;

/// What a doorbell asks of the emulated PMU. User code may ring only the marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Doorbell {
    /// The gates are filled in: watch every instruction from now on.
    Attach = 1,
    /// The task in the CPU's area changed.
    Switch = 2,
    /// The counters of the CPU's area changed.
    Config = 3,
    /// Bring `left` and `value` of the CPU's counters up to date.
    Read = 4,
    /// Reference counts begin on every CPU, after this instruction.
    StartAll = 5,
    /// Reference counts end on every CPU, before this instruction.
    StopAll = 6,
    /// Reference counts begin on this CPU.
    Start = 7,
    /// Reference counts end on this CPU.
    Stop = 8,
    /// Write the reference file and forget its counts.
    Write = 9,
    /// Counters and branch records of this CPU are frozen.
    Freeze = 10,
    /// The counters and the branch records of this CPU go on.
    Unfreeze = 11,
}

impl Doorbell {
    /// The doorbell that these instruction bytes ring, if they are one.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let imm: [u8; 4] = bytes.strip_prefix(&DOORBELL)?.try_into().ok()?;
        match u32::from_le_bytes(imm).checked_sub(DOORBELL_BASE)? {
            1 => Some(Self::Attach),
            2 => Some(Self::Switch),
            3 => Some(Self::Config),
            4 => Some(Self::Read),
            5 => Some(Self::StartAll),
            6 => Some(Self::StopAll),
            7 => Some(Self::Start),
            8 => Some(Self::Stop),
            9 => Some(Self::Write),
            10 => Some(Self::Freeze),
            11 => Some(Self::Unfreeze),
            _ => None,
        }
    }

    /// May user code ring it?
    pub fn is_mark(self) -> bool {
        matches!(self, Self::StartAll | Self::StopAll | Self::Write)
    }
}
