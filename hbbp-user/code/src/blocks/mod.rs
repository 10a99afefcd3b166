//! Basic blocks of the executed text: paper section III.A, "the enclosing basic block".
//!
//! A block has one entry at its first instruction and one exit at its last.
//! A REP-prefixed string instruction is one instruction, whatever its count.
//! The map is built once and read by binary search; addresses go in, indices of instructions and blocks come out.

mod build;
mod classes;
mod decoded;
mod flow;
mod form;
mod layout;
mod leaders;
mod map;
mod near;
mod split;
mod sweep;

pub use build::blocks;
pub use classes::{MemoryAccess, memory_access};
pub use decoded::DecodedText;
pub use flow::{Flow, direct_target};
pub use form::{Form, FormIdx, Instruction};
pub use map::{BlockId, BlockMap, TextBlocks};
