//! `cargo xtask`: the one build script of the project.
fn main() {}
