//! Tests on the emulated machine: whether it counts, records and ends as it should.
//!
//! Tests boot their own guests and run in parallel. Without QEMU or kernels they skip themselves and say why, and
//! `cargo xtask test` counts them as skipped; with `CI=true` in the environment that is a failure. A result here is one
//! on a model of a processor.
//!
//! No test depends on how fast or busy the host is: limits of time only end a guest that hangs, and no test asserts one.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as tests do"
)]
#![expect(clippy::print_stdout, reason = "figures are shown with --nocapture")]

mod annotate;
mod by_ring;
mod callers;
mod callgrind;
mod checkpoint;
mod classes;
mod clock;
mod cost;
mod cpus;
mod cycles;
mod exact;
mod exported;
mod faults;
mod figure1;
mod filter;
mod functions;
mod hybrid;
mod identity;
mod image;
mod import;
mod landed;
mod lines;
mod loops;
mod perf;
mod recorded;
mod recordings;
mod selftest;
mod soak;
mod statistics;
mod stress;
mod suite;
mod support;
mod taken;
mod text;
mod time;
mod totals;
mod truth;
mod vectors;
mod verifier;
mod views;
mod watchdog;
mod written;

use hbbp_testing::{missing, skip};
