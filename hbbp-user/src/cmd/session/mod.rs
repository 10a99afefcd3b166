//! A running measurement: drains the collector into the resolver, and hands out what was measured: once at the end, or again
//! and again while it goes on. The schedule is in [`super::measure`].

mod bursts;
mod changes;
mod drains;
mod following;
mod intervals;
mod running;
mod tasks;

pub use running::EndedProcesses;
pub(super) use running::{DRAIN_EVERY, SIDEBAND_EVERY, Session};
