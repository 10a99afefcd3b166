//! The emulator compared with the processor itself: single steps of random instructions, and of programs.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "helpers of tests: what cannot be made fails the test, and what was compared is shown"
)]

mod case;
mod fuzz;
mod generator;
mod programs;
mod shared_memory;
mod state;
mod stepped;
