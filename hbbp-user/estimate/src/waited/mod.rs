//! The instructions that samples of time belong to: those that were waited for.
//!
//! An imprecise sample is reported at the instruction that retires next, so its time belongs to the one executed before it
//! (Guo et al., OptiWISE, CGO 2024, section III: "attributing the samples on one instruction to its predecessor"). A precise
//! sample names the instruction itself. A string instruction is interrupted between two of its iterations, and its time is its
//! own.
//!
//! Within a block, the predecessor is the instruction above. At its start, it is the end of a block that leads there. Recorded
//! branches and streams show how often each did; without these, the code has to tell ([`ways_in`]). Without a known predecessor
//! the sample stays at its instruction. Time with interrupts off is sampled where they are turned on ([`interrupts`]), that of the
//! two ends of a system call partly in the other ring ([`system_calls`]). What no sample separates is divided by the times of
//! instructions ([`fit`]).

mod attributed;
mod between;
mod code;
mod executions;
mod fit;
mod interrupts;
mod origins;
mod samples;
mod shares;
mod slices;
mod system_calls;
mod times;
mod waits;
mod ways_in;

pub(crate) use attributed::Attributed;
pub(crate) use between::BetweenSlices;
pub use samples::Waited;
pub use slices::time_slices;
pub use waits::Waits;

#[cfg(test)]
mod tests;
