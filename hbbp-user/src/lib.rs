//! hbbp-sys: from perf events to an instruction mix of kernel and user code.
//!
//! ```text
//! perf events -> eBPF maps -> drain -> resolve -> SNAPSHOT -> locate -> blocks -> estimate -> mix -> report
//!             (touches the kernel and the disk: may fail)    |     (pure: same snapshot, same answer)
//! recordings of other tools -> import -> resolve ------------+            (for scripts) estimate -> export
//!        (branch stacks of both -> streams)
//! ```
//!
//! The modules stand in the order of that flow, and imports go one way; `cargo xtask tidy` checks it.

pub mod addr;
pub mod record;

pub mod reference;

pub mod streams;

pub mod collect;

pub mod import;

pub mod resolve;

pub mod snapshot;

pub mod locate;

pub mod blocks;

pub mod estimate;

pub mod mix;

pub mod eval;

pub mod report;

pub mod export;

pub mod cmd;

pub mod cli;
