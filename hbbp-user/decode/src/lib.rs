//! A decoder of x86 instructions: iced-x86, extended by what it does not know: APX, AVX10.2, new instructions of AMX and others.
//!
//! Sources: Intel Advanced Performance Extensions (Intel APX) Architecture Specification, 355828, chapters 3 to 5; Intel
//! Advanced Vector Extensions 10.2 Architecture Specification, 361050, chapters 7 to 13.

mod apx;
mod avx10;
mod decoder;
mod decorations;
mod encoding;
mod evex;
mod legacy;
mod modern;
mod registers;
mod rewritten;
mod rex2;
mod text;
mod vector;
mod vex;

pub use decoder::{Decoder, mnemonics};
pub use modern::{Extension, Modern};
pub use text::write;
