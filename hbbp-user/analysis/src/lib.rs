#![doc = include_str!("../README.md")]

pub mod annotate;
pub mod callers;
pub mod diff;
pub mod eval;
pub mod loops;
pub mod mix;
pub mod time;
mod touched;
pub mod vectors;
