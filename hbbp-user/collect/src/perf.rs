//! The perf events of the kernel: those that sample, the sideband, and those that only count.

mod counting;
mod descriptor;

pub use counting::{Counting, Group};
pub use descriptor::{Perf, Request, SIDEBAND_BYTES, Stack, TEXT_RING_BYTES, Target};
