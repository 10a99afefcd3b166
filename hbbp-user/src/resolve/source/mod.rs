//! Source lines of the addresses of a snapshot: `debug_file` finds debug information, `section` reads it within a budget,
//! `lines` looks it up.

mod debug_file;
pub mod lines;
mod section;
