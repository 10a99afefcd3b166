//! Basic block vectors: for each slice of a run the instructions that each basic block executed in it, as the experimental
//! tool exp-bbv of Valgrind has them, for SimPoint.
//!
//! ```text
//! snapshot -> estimate -> executions of each block by process ----+
//! slices -> code of each slice with its hits -> blocks (sites)  --+-> vectors -> bb.out, pc.out (lines)
//!                                                                        +-> simpoint (projection, k-means, BIC) -> plot
//! ```
//!
//! The executions of a block in the whole run are estimated as ever, and shared out among the slices in proportion to
//! the hits of its method there. So the vectors of all slices and threads sum to the estimate of the run. What is known
//! of its errors, such as those of the oldest slot, holds for them.

mod by_slice;
pub(crate) mod clusters;
pub mod lines;
mod places;
pub mod plot;
pub mod simpoint;

pub use by_slice::{Thread, Vectors, vectors};

#[cfg(test)]
mod tests;
