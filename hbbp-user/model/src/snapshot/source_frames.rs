//! Which functions were inlined at an instruction, with the line and the discriminator in each: found by whoever may read
//! debug information, and handed on as data.

use std::collections::HashMap;

use super::Linked;

/// Index of a name in [`SourceFrames::names`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct NameIdx(pub u32);

/// Index of a stack in [`SourceFrames::stacks`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct StackIdx(pub u32);

/// A function that an instruction is in, by itself or inlined.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Frame {
    /// Linkage name of the function.
    pub function: NameIdx,
    /// Source line less the line of the function's declaration, modulo 2^16: a directive may give lines before it. `None`
    /// where no line is known.
    pub line: Option<u16>,
    /// Discriminator that the compiler gave to one of the blocks of a line, from debug information.
    pub discriminator: u64,
}

/// A stack of inlined functions: the outermost first, the innermost last. Never empty.
pub type Frames = Box<[Frame]>;

/// The frames of the instructions of one image, by the addresses of its debug information.
#[derive(Clone, Debug, Default)]
pub struct SourceFrames {
    /// Names of functions.
    pub names: Vec<String>,
    /// The addresses of code sections by name; empty for files that have addresses of their own.
    pub sections: HashMap<String, u64>,
    /// Every source location of functions with executions, once each: the instructions of a line share one.
    pub stacks: Vec<Frames>,
    /// By address; instructions without debug information are not there.
    pub at: HashMap<u64, StackIdx>,
    /// The functions whose first instruction is at a requested address.
    pub entries: HashMap<u64, NameIdx>,
}

impl SourceFrames {
    /// The address in the debug information of a location in the file.
    pub fn addr(&self, linked: &Linked) -> Option<u64> {
        match &linked.section {
            None => Some(linked.addr),
            Some(section) => self.sections.get(section)?.checked_add(linked.addr),
        }
    }

    /// The stack at an address of the debug information.
    pub fn stack_at(&self, addr: u64) -> Option<&[Frame]> {
        let idx = self.at.get(&addr)?;
        self.stacks.get(idx.0 as usize).map(|stack| &**stack)
    }

    /// A name.
    pub fn name(&self, idx: NameIdx) -> &str {
        self.names.get(idx.0 as usize).map_or("", String::as_str)
    }
}
