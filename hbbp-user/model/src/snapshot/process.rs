//! Process images, their threads, and what was mapped in them.

use super::index::{CgroupIdx, ModuleIdx};
use crate::addr::{ImageAddr, Va};

/// A process image: one program in one process. An exec in the same process is another image. Where threads were
/// counted separately, each thread of an image has an entry of its own, with the mappings of the image.
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
    /// Cgroup of the process when it was first seen; `None` if that is unknown.
    pub cgroup: Option<CgroupIdx>,
    /// The running thread; `None` if all threads of the image were counted together.
    pub thread: Option<Thread>,
}

impl Process {
    /// Process images of one name that are counted together, at addresses of their own. No process has this id.
    pub const JOINED: u32 = u32::MAX - 1;

    /// Which one of its name it is: its process id, or that it represents several.
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
    /// Name of the thread, the last one seen; empty if it is unknown.
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
    /// Time of the mapping in ns of CLOCK_MONOTONIC; 0 if it was there before the run.
    /// A later mapping hides an earlier one where they overlap.
    pub from: u64,
}
