//! Where instructions are in the source and in its loops: found by a process that may read debug information, and passed on as
//! data.

use std::collections::HashMap;

use super::ModuleIdx;
use crate::addr::ImageAddr;

/// Where an instruction is in the source.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SourceLocation {
    /// `file:line`, as the compiler got the name of the file.
    pub line: Option<String>,
    /// The innermost function that the instruction was inlined from, or the function that it is in.
    pub function: Option<String>,
    /// The innermost loop that it lies in, by its function and addresses, where loops were looked for.
    pub innermost_loop: Option<String>,
}

/// Source locations by module and address; what has none is not there.
pub type SourceLocations = HashMap<(ModuleIdx, ImageAddr), SourceLocation>;
