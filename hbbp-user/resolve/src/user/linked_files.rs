//! The files that an executed file names as those with its symbols (`.gnu_debuglink`).

use object::elf::SHT_SYMTAB;

use super::image::{Content, Image};
use crate::debug_places::debug_file_place;
use crate::debuginfod::{Artifact, fetch};
use crate::regular_file::open_own;
use hbbp_elf::byte_source::ByteSource;
use hbbp_elf::debug_link::DebugLink;
use hbbp_elf::layout::Section;
use hbbp_elf::parser::Parser;

/// Files that are followed from one to the next; real ones have one or two.
const MAX_LINKED: usize = 3;

impl Image {
    /// The same, whose symbols are in a file that a server has, where none is here.
    pub(super) fn with_fetched(mut self) -> Self {
        if let Content::Elf(elf) = &mut self.content {
            let has_symbols =
                |sections: &[Section]| sections.iter().any(|section| section.kind == SHT_SYMTAB);
            let is_here = !elf.linked.is_empty()
                || has_symbols(&elf.layout.sections)
                || debug_file_place(&elf.layout.build_id).is_some_and(|path| path.exists());
            let fetched = Some(&elf.layout.build_id).filter(|_| !is_here);
            let fetched = fetched.and_then(|build_id| fetch(Artifact::DebugInfo, build_id));
            elf.linked
                .extend(fetched.and_then(|path| Some(open_own(&path).ok()?.source)));
        }
        self
    }

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
