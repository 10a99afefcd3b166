//! The snapshot: everything that one run measured, and everything that is needed to read it later.
//!
//! What touches the kernel or the disk ends here, and what comes after is a pure function of the snapshot.
//! It holds the text that was hit, because live kernel text and the text of dead processes cannot be read again.
//! A saved snapshot is the profile, the input of `report`, the fixture of the tests and the bug report. [`mod@file`] encodes
//! it, [`budget`] bounds it; [`crate::profile`] reads and writes files.
//!
//! The vectors refer to each other by index; [`Snapshot::check`] checks that all indexes and orders are valid.

pub mod budget;
mod class_count;
mod counts;
pub mod file;
pub mod fold;
mod image_layout;
mod join;
pub mod layout;
pub mod loss;
pub mod merge;
pub mod run;
mod shares;
mod source_frames;
mod source_location;
pub mod taken_branches;
pub mod unite;
mod wire;

use std::fmt;

use crate::addr::{ImageAddr, Va};
pub use class_count::{ClassCount, InstructionClass, Turns};
pub use counts::{BranchCount, ChainCount, IpCount, StreamCount};
pub use image_layout::{FilePart, ImageLayout, Linked};
pub use loss::{Loss, Losses};
pub use run::{Event, EventUnit, KernelTextSource, Period, Run};
pub use source_frames::{Frame, Frames, NameIdx, SourceFrames, StackIdx};
pub use source_location::{SourceLocation, SourceLocations};

/// Index of a [`Module`] in [`Snapshot::modules`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ModuleIdx(pub u32);

/// Index of a [`Process`] in [`Snapshot::processes`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ProcessIdx(pub u32);

/// Index of a path in [`Snapshot::cgroups`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct CgroupIdx(pub u32);

/// Index of an [`Event`] in [`Run::events`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct EventIdx(pub u32);

/// Bytes in hexadecimal, as the kernel and debuggers write build ids.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl ProcessIdx {
    /// The kernel stands first: its mappings are the kernel's text regions, and kernel samples that are not split
    /// by process belong to it.
    pub const KERNEL: Self = Self(0);
    /// Process images that an estimate counts together; no snapshot has it.
    pub const OTHERS: Self = Self(u32::MAX);
}

/// One measured run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Host, events, periods, times and counts of the run.
    pub run: Run,
    /// What text can belong to: the kernel, its modules, ELF files, anonymous executable memory.
    pub modules: Vec<Module>,
    /// Process images, or their threads where these were counted apart; entry 0 is the kernel.
    pub processes: Vec<Process>,
    /// Paths of cgroups in the unified hierarchy (cgroup v2), as the tool saw them in `/proc/PID/cgroup`.
    pub cgroups: Vec<String>,
    /// Text that was hit, sorted by (module, start, since).
    pub text: Vec<Text>,
    /// Static branches in the text of the kernel image, sorted; none where the kernel's table of them could not be read.
    pub static_branches: Vec<StaticBranch>,
    /// What was counted, one entry for each drain, in the order of time.
    pub intervals: Vec<Interval>,
    /// What was lost or refused before it could be counted.
    pub losses: Losses,
}

/// Something that text belongs to: the paper's "binary module".
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// Path of a file, or the kernel's name for it: `[kernel]`, `[vdso]`, `nf_tables`, `[anon]`.
    pub name: String,
    /// What kind of module it is.
    pub kind: ModuleKind,
    /// GNU build id, empty where there is none.
    pub build_id: Vec<u8>,
    /// Functions whose text was hit, sorted by start.
    pub symbols: Vec<Symbol>,
}

/// The kind of a [`Module`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ModuleKind {
    /// The kernel image.
    Kernel,
    /// A loaded kernel module.
    KernelModule,
    /// Code that the kernel's BPF compiler wrote.
    Bpf,
    /// Other kernel text without a file: ftrace and kprobe trampolines, thunks.
    Trampoline,
    /// A 64-bit ELF file mapped into a process.
    Elf64,
    /// A 32-bit ELF file mapped into a process; its text is decoded as 32-bit code.
    Elf32,
    /// The kernel's code page in each process.
    Vdso,
    /// Executable memory without a file: the output of a compiler at run time.
    Anonymous,
}

/// A named range of text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Symbol {
    /// First byte.
    pub start: ImageAddr,
    /// Length in bytes; 0 where only the start is known.
    pub len: u64,
    /// Name as found, mangled names included; empty where only the range is known.
    pub name: String,
}

/// A process image: one program in one process. An exec in the same process is another image. Where threads were counted
/// apart, each thread of an image has an entry of its own, with the mappings of the image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    /// Thread group id in the pid namespace of the tool; 0 for the kernel, `u32::MAX` for processes outside of it,
    /// [`Process::JOINED`] for several.
    pub tgid: u32,
    /// `self_exec_id` of the kernel's task: it grows at each exec.
    pub exec_id: u32,
    /// Command name, the last one seen.
    pub comm: String,
    /// Executable mappings, sorted by (start, from).
    pub mappings: Vec<Mapping>,
    /// Cgroup in which the process ran when it was first seen; `None` where that is unknown.
    pub cgroup: Option<CgroupIdx>,
    /// The thread that ran; `None` where all threads of the image were counted together.
    pub thread: Option<Thread>,
}

impl Process {
    /// Process images of one name that are counted together, at addresses of their own. No process has this id.
    pub const JOINED: u32 = u32::MAX - 1;

    /// Which one of its name it is: its process id, or that it stands for several.
    pub fn which(&self) -> String {
        match self.tgid {
            Self::JOINED => "several".to_owned(),
            tgid => tgid.to_string(),
        }
    }
}

/// A thread of a process image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thread {
    /// Thread id in the pid namespace of the tool; [`Thread::OTHERS`] for all threads beyond a bound.
    pub tid: u32,
    /// Name of the thread, the last one seen; empty where it is unknown.
    pub name: String,
}

impl Thread {
    /// Threads of an image that are counted together because there are too many. No thread has this id.
    pub const OTHERS: u32 = u32::MAX;
}

/// An executable mapping of a process, or a text region of the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Mapping {
    /// First mapped address.
    pub start: Va,
    /// First address after it.
    pub end: Va,
    /// What is mapped.
    pub module: ModuleIdx,
    /// Address in the module of the byte at `start`.
    pub image_start: ImageAddr,
    /// Time of the mapping in ns of CLOCK_MONOTONIC; 0 where it was there before the run.
    /// A later mapping hides an earlier one where they overlap.
    pub from: u64,
}

/// A range of text that was hit, with the bytes that ran.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Text {
    /// The module it belongs to.
    pub module: ModuleIdx,
    /// Address of the first byte.
    pub start: ImageAddr,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Index of the first interval in which these bytes are valid.
    /// Text that was patched during the run has one entry for each version, with the same extent.
    pub since: u32,
}

/// A site of kernel text where a static key decides between a NOP and a jump.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct StaticBranch {
    /// The module of its text.
    pub module: ModuleIdx,
    /// Address of the instruction.
    pub addr: ImageAddr,
    /// Whether the key is that of a tracepoint.
    pub tracepoint: bool,
}

/// What was counted between two drains.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    /// Start in ns of CLOCK_MONOTONIC.
    pub start: u64,
    /// End in ns of CLOCK_MONOTONIC.
    pub end: u64,
    /// Whether it was split from the interval before it within one drain, where kernel text was patched.
    pub continues: bool,
    /// Samples of an instruction pointer.
    pub ips: Vec<IpCount>,
    /// Streams between two neighbouring entries of a branch stack.
    pub streams: Vec<StreamCount>,
    /// Branches of branch stacks that are not known from streams: those in the oldest slot, and all where the streams
    /// have no [`StreamCount::source`]. [`Snapshot::taken_branches`] combines both.
    pub branches: Vec<BranchCount>,
    /// Call chains of samples that are in [`Self::ips`] as well; none where callers were not asked for.
    pub chains: Vec<ChainCount>,
    /// Samples whose branch stack was refused ([`Loss::StacksFull`]), at its newest branch, as far as that is known; they have no
    /// part in any estimate.
    pub refused: Vec<IpCount>,
}

impl ModuleKind {
    /// Whether its text belongs to ring 0.
    pub const fn is_kernel(self) -> bool {
        matches!(
            self,
            Self::Kernel | Self::KernelModule | Self::Bpf | Self::Trampoline
        )
    }

    /// Operand and address size in bits to decode its text with.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Elf32 => 32,
            _ => 64,
        }
    }
}

/// An index of a snapshot that is out of range, or an order that is violated.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Inconsistent(pub &'static str);

impl fmt::Display for Inconsistent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inconsistent profile: {}", self.0)
    }
}

impl std::error::Error for Inconsistent {}

impl Snapshot {
    /// Checks that every index is in range and every vector in order, so that the pure half need not.
    pub fn check(&self) -> Result<(), Inconsistent> {
        let holds = |ok: bool, what| if ok { Ok(()) } else { Err(Inconsistent(what)) };
        let module = |idx: ModuleIdx| (idx.0 as usize) < self.modules.len();
        holds(!self.processes.is_empty(), "no process image")?;
        for process in &self.processes {
            let cgroup = process.cgroup.map_or(0, |cgroup| cgroup.0 as usize + 1);
            holds(cgroup <= self.cgroups.len(), "process image has no cgroup")?;
            let by_start = process.mappings.is_sorted_by_key(|m| (m.start, m.from));
            holds(by_start, "mappings are not sorted")?;
            let inside = process
                .mappings
                .iter()
                .all(|m| module(m.module) && m.start < m.end);
            holds(inside, "mapping is empty or has no module")?;
        }
        for module in &self.modules {
            holds(
                module.symbols.is_sorted_by_key(|s| s.start),
                "symbols are not sorted",
            )?;
        }
        let in_order = self.text.is_sorted_by_key(|t| (t.module, t.start, t.since));
        holds(in_order, "text is not sorted")?;
        let branches = &self.static_branches;
        let known = branches.iter().all(|branch| module(branch.module));
        holds(
            known && branches.is_sorted(),
            "static branches are not sorted, or have no module",
        )?;
        for text in &self.text {
            let fits = u64::try_from(text.bytes.len()).is_ok_and(|len| text.start.checked_add(len).is_some());
            holds(
                module(text.module) && fits,
                "text has no module or exceeds the address space",
            )?;
        }
        for interval in &self.intervals {
            // The greatest index of each kind is enough.
            let greatest = |(event, process): (u32, u32), (e, p): (EventIdx, ProcessIdx)| {
                (event.max(e.0), process.max(p.0))
            };
            let known = |rows: (u32, u32), n: usize| {
                let known = |idx: u32, n: usize| (idx as usize) < n;
                n == 0 || known(rows.0, self.run.events.len()) && known(rows.1, self.processes.len())
            };
            let ips = interval.ips.iter().map(|c| (c.event, c.process));
            let streams = interval.streams.iter().map(|c| (c.event, c.process));
            let branches = interval.branches.iter().map(|c| (c.event, c.process));
            let chains = interval.chains.iter().map(|c| (c.event, c.process));
            let refused = interval.refused.iter().map(|c| (c.event, c.process));
            holds(
                known(ips.fold((0, 0), greatest), interval.ips.len())
                    && known(streams.fold((0, 0), greatest), interval.streams.len())
                    && known(branches.fold((0, 0), greatest), interval.branches.len())
                    && known(chains.fold((0, 0), greatest), interval.chains.len())
                    && known(refused.fold((0, 0), greatest), interval.refused.len()),
                "count refers to a missing event or process image",
            )?;
        }
        Ok(())
    }
}
