//! hbbp-sys.
static OBJ: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hbbp"));
fn main() {
    assert!(!OBJ.is_empty());
}
