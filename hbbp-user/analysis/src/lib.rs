//! What a profile says, from the estimated executions of its blocks.

pub mod annotate;
pub mod callers;
pub mod diff;
pub mod eval;
pub mod loops;
pub mod mix;
pub mod time;
pub mod vectors;
