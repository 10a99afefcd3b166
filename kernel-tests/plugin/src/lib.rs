//! The emulated PMU of the emulated machine: a TCG plugin for QEMU.
//!
//! It sees every block of guest code that is executed, in both rings, and does four things with it:
//! - It counts each block exactly (`count.rs`).
//! - It has a branch stack and sampling counters per CPU, as a performance monitoring unit does (`cpu.rs`, `sample.rs`, `stack.rs`).
//! - It has a timer that ticks by cycles (`timer.rs`).
//! - It writes a record at each overflow into memory that it shares with the driver in the guest (`memory.rs`).
//!
//! The interface shows no registers. Where interrupted code goes on is read from the frame that the
//! processor pushed: the gate's first store names the stack, and the guest's RAM is mapped here too
//! (`retire.rs`). QEMU must run with `thread=single`: then only one block executes at a time and every
//! count is exact for any number of virtual CPUs.

mod api;
mod block;
mod count;
mod cpu;
mod entry;
mod machine;
mod memory;
mod random;
mod retire;
mod sample;
mod stack;
mod timer;
mod trace;
