//! The files that an executed file names as those with its symbols (`.gnu_debuglink`).

use super::image::{Content, Image};
use hbbp_elf::byte_source::ByteSource;
use hbbp_elf::debug_link::DebugLink;
use hbbp_elf::parser::Parser;

/// Files that are followed from one to the next; real ones have one or two.
const MAX_LINKED: usize = 3;

impl Image {
    /// The same, whose symbols are in the file that `open` finds for its link, or in the one that this one links to, and so on.
    pub(super) fn with_linked(
        mut self,
        parser: &Parser,
        open: impl Fn(&DebugLink) -> Option<ByteSource>,
    ) -> Self {
        if let Content::Elf(elf) = &mut self.content {
            let mut link = elf.layout.debug_link.clone();
            while let Some(found) = link.filter(|_| elf.linked.len() < MAX_LINKED)
                && let Some(file) = open(&found)
            {
                link = parser.layout(&file).ok().and_then(|layout| layout.debug_link);
                elf.linked.push(file);
            }
        }
        self
    }
}
