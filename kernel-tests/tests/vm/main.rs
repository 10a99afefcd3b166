//! Tests on the emulated machine: whether it counts, records and ends as it should.
//!
//! Every test boots its own guest; they run in parallel. Without QEMU or kernels they are skipped and say
//! why; with `CI=true` in the environment that is a failure. A result here is one on a model of a processor.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as tests do"
)]
#![expect(
    clippy::print_stdout,
    reason = "a skipped test says why, and figures are shown with --nocapture"
)]

mod callgrind;
mod exact;
mod faults;
mod hybrid;
mod hygiene;
mod identity;
mod image;
mod import;
mod perf;
mod recorded;
mod statistics;
mod suite;
mod support;
mod text;
mod truth;
mod verifier;
mod watchdog;
mod written;
