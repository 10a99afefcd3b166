//! From counted addresses to basic blocks: assigns counts to text, decodes it and splits it.

pub mod blocks;
pub mod locate;
