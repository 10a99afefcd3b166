//! hbbp-sys.
fn main() {}
