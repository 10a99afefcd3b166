//! Recordings of other tools: genuine ones, those of the perf on this machine, and made-up ones for the rest.

mod elf;
mod genuine;
mod hygiene;
mod kernel;
mod perf_data;
mod perf_tool;
mod refused;
mod run;
mod texts;
