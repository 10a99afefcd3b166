//! What both methods saw.

use super::oldest_slot::Branches;
use super::{Counted, KernelProcesses, SeenBlocks};
use hbbp_code::locate::Located;

/// What both methods saw, by block.
#[derive(Clone, Copy)]
pub(crate) struct Observed<'a> {
    pub(crate) seen: &'a SeenBlocks,
    /// Of the events that serve as EBS, sorted by block.
    pub(crate) samples: &'a [Counted],
    pub(crate) branches: &'a Branches,
    /// Which process images ran the code of the kernel.
    pub(crate) kernel: &'a KernelProcesses,
    /// All that was located.
    pub(crate) located: &'a Located,
}
