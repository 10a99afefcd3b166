//! The verbs of the program: each wires the stages that it needs.

pub mod check;
pub mod child;
pub mod interrupt;
