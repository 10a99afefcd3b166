//! Exports, read by the programs that they are for. `cargo xtask setup` installs these; without one its test skips itself, but
//! never in continuous integration.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests: what cannot be made fails the test"
)]

mod addr2line;
mod autofdo;
mod bolt;
mod choose;
mod genuine;
mod kernel;
mod profgen;
mod program;
mod step;
mod tool;
mod units;
mod viewers;

use hbbp_testing::{missing, skip};
