//! The perf events of the kernel: those that sample, the sideband, and those that only count.

mod counting;
mod descriptor;

pub(crate) use counting::{Counting, Group};
pub(crate) use descriptor::{Perf, Request, Stack, Target};
pub(crate) use descriptor::{SIDEBAND_BYTES, TEXT_RING_BYTES};
