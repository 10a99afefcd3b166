//! What files say of the addresses of a finished snapshot.
//!
//! `image` finds where text lies in them. `debug_file` finds debug information, `split` that of units in files of their own;
//! `dwarf` reads it, and `section` keeps to a budget. `lines` looks up source lines in it and `frames` inlined functions.

mod debug_file;
mod declaration;
mod dwarf;
mod frames;
pub mod image;
pub mod lines;
mod section;
mod split;

use std::path::PathBuf;

use anyhow::{Context as _, bail};

use hbbp_model::advice::{Advice, Advised};
use hbbp_model::snapshot::{Linked, ModuleIdx, Snapshot, SourceFrames};
use section::{Budget, TooLarge};

/// Reads the inlined functions, lines and discriminators at locations in the file of a module, from the debug
/// information that is found on this machine.
pub fn read_source_frames(
    snapshot: &Snapshot,
    module: ModuleIdx,
    named: &[PathBuf],
    locations: impl Iterator<Item = Linked>,
) -> anyhow::Result<SourceFrames> {
    let mut budget = Budget::default();
    let found = debug_file::find_debug_file(snapshot, module, named, &mut budget);
    let module = snapshot.modules.get(module.0 as usize);
    let name = module.map_or("", |module| &module.name);
    let file = match found {
        Ok(file) => file.with_context(|| {
            let why = format!("no debug information for {name}");
            Advised::new(why, Advice::NameDebugFile)
        })?,
        Err(TooLarge) => {
            bail!("the debug information of {name} takes more memory than is granted to it")
        }
    };
    Ok(frames::read_frames(file, locations, &mut budget))
}
