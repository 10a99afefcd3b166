//! What the two methods count: EBS samples and the streams of branch stacks, by block.

mod counted;
pub(super) mod ebs;
mod kernel_processes;
mod kernel_samples;
mod kernel_shares;
pub(super) mod lbr;
mod observed;
pub(super) mod oldest_slot;
pub(super) mod processes;
mod seen_blocks;
pub(super) mod stream;
pub(super) mod streams;

pub use counted::ring;
pub(super) use counted::{Counted, Supply, summed};
pub(super) use kernel_processes::KernelProcesses;
pub(super) use observed::Observed;
pub(super) use seen_blocks::SeenBlocks;
