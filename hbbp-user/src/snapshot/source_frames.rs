//! Which functions were inlined at an instruction, with the line and the discriminator in each: found by whoever may read
//! debug information, and handed on as data.

use std::collections::{BTreeSet, HashMap};

use crate::addr::ImageAddr;

/// Index of a name in [`SourceFrames::names`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NameIdx(pub u32);

/// A function that an instruction is in, by itself or inlined.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Frame {
    /// Linkage name of the function.
    pub function: NameIdx,
    /// Source line less the line of the function's declaration, modulo 2^16: a directive may give lines before it. `None`
    /// where no line is known.
    pub line: Option<u16>,
    /// Discriminator of the compiler among the blocks of a line, as debug information has it.
    pub discriminator: u64,
}

/// A stack of inlined functions: the outermost first, the innermost last. Never empty.
pub type Frames = Box<[Frame]>;

/// The frames of the instructions of one module.
#[derive(Clone, Debug, Default)]
pub struct SourceFrames {
    /// Names of functions.
    pub names: Vec<String>,
    /// By address; instructions without debug information are not there.
    pub at: HashMap<ImageAddr, Frames>,
    /// The functions whose first instruction is at an address that was asked for.
    pub entries: HashMap<ImageAddr, NameIdx>,
    /// Every source location of the functions that ran, executed or not.
    pub all: BTreeSet<Frames>,
}

impl SourceFrames {
    /// A name.
    pub fn name(&self, idx: NameIdx) -> &str {
        self.names.get(idx.0 as usize).map_or("", String::as_str)
    }
}
