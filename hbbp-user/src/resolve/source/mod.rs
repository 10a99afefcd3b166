//! What files say of the addresses of a finished snapshot: `image` where text lies in them, `debug_file` finds and reads debug
//! information, `lines` looks up source lines in it and `frames` inlined functions.

mod debug_file;
mod frames;
pub mod image;
pub mod lines;

use std::path::PathBuf;

use crate::addr::ImageAddr;
use crate::snapshot::{ImageLayout, Module, SourceFrames};

/// Reads the inlined functions, lines and discriminators at addresses of a module, from the debug information that is found on
/// this machine; `None` where there is none. `release` is that of the kernel that ran.
pub fn read_source_frames(
    module: &Module,
    release: &str,
    named: &[PathBuf],
    layout: &ImageLayout,
    addresses: impl Iterator<Item = ImageAddr>,
) -> Option<SourceFrames> {
    let file = debug_file::find_debug_file(module, release, named)?;
    let wanted = addresses.filter_map(|at| Some((file.addr(&layout.find(at)?)?, at)));
    Some(frames::read_frames(&file, wanted.collect()))
}
