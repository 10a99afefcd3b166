//! Source lines of the addresses of a snapshot: `debug_file` finds and reads debug information, `lines` looks it up.

mod debug_file;
pub mod lines;
