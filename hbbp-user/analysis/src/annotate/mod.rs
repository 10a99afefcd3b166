//! Annotated code: the instructions of one function, each with how often it was executed, as estimated from its block.
//!
//! A function whose text was patched during the run has several text versions, each with its own counts. Versions of a
//! text range that do not differ within the function are one.

mod annotated;
mod code;
mod disassembly;
mod find;
mod function;
mod hottest;
mod patched;
mod versions;

pub use annotated::{Annotated, Block, Branch, Line, Predictions, SourceLine, Version};
pub use code::Code;
pub use disassembly::{disassembled, formatter, instruction, write_instruction};
pub use find::{Found, NotFound, Query, find};
pub use function::{annotated, bytes_of};
pub use hottest::{Heat, hottest};
pub use patched::StaticText;
