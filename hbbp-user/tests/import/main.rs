//! Recordings of other tools: genuine ones, those of the perf on this machine, and made-up ones for the rest.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: what cannot be made fails the test"
)]

mod corpus;
mod elf;
mod eval;
mod files;
mod filter;
mod fuzz;
mod genuine;
mod hottest;
mod kernel;
mod mixed;
mod packed;
mod pairs;
mod perf_data;
mod perf_tool;
mod printed;
mod refused;
mod run;
mod samples;
mod speed;
mod texts;
mod threads;
mod writer;

use hbbp_testing::skip;
