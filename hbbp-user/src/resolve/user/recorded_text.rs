//! The text of one file of a recording, as far as it was hit.
//!
//! A file can be read at any time, so the stretches are chosen when all hits are known: whole functions, and all that
//! lies under a stream. Stretches that touch become one, as a stream may run from one function into the next.

use std::collections::BTreeMap;

use crate::addr::ImageAddr;
use crate::resolve::elf::byte_source::ByteSource;
use crate::resolve::elf::functions::{Functions, SymbolFile, read_functions};
use crate::resolve::elf::layout::{ElfClass, ElfLayout};
use crate::snapshot::{Module, ModuleIdx, ModuleKind, Symbol, Text};

/// A function longer than this is taken in windows: the longest hand-written interpreters have about 60 KiB.
const MAX_FUNCTION: u64 = 128 << 10;
/// How much is taken on either side of an address without a function.
const WINDOW: u64 = 1 << 10;
/// The longest x86 instruction in bytes (SDM vol. 2, 2.3.11).
const LONGEST_INSTRUCTION: u64 = 15;

/// A file that is open for reading, and the stretches of its text that are wanted.
#[derive(Debug)]
pub(super) struct FileText {
    source: ByteSource,
    layout: ElfLayout,
    functions: Functions,
    /// Ends by starts; they neither overlap nor touch.
    wanted: BTreeMap<u64, u64>,
    symbols: BTreeMap<u64, Symbol>,
}

impl FileText {
    pub(super) fn new(source: ByteSource, layout: ElfLayout) -> Self {
        let functions = read_functions(
            SymbolFile {
                source: &source,
                layout: &layout,
            },
            None,
        );
        Self {
            source,
            layout,
            functions,
            wanted: BTreeMap::new(),
            symbols: BTreeMap::new(),
        }
    }

    pub(super) const fn layout(&self) -> &ElfLayout {
        &self.layout
    }

    /// Wants the function that holds `at`, or what lies around `at`.
    pub(super) fn want(&mut self, at: ImageAddr) {
        if self.is_wanted(at) {
            return;
        }
        let Some(segment) = self.layout.segment_at(at).copied() else {
            return;
        };
        let function = self.functions.read_function_at(at, &self.source, None);
        let around = at.0.saturating_sub(WINDOW)..at.0.saturating_add(WINDOW);
        let wanted = match &function {
            Some(symbol) if symbol.len <= MAX_FUNCTION => {
                symbol.start.0..symbol.start.0.saturating_add(symbol.len)
            }
            Some(symbol) => around.start.max(symbol.start.0)..around.end,
            None => around,
        };
        if let Some(symbol) = function {
            self.symbols.entry(symbol.start.0).or_insert(symbol);
        }
        let behind = segment.start.0.saturating_add(segment.len);
        let end = wanted
            .end
            .max(at.0.saturating_add(LONGEST_INSTRUCTION))
            .min(behind);
        self.add(wanted.start.max(segment.start.0), end);
    }

    /// Wants all text from `start` to the instruction at `end`.
    pub(super) fn want_stream(&mut self, start: ImageAddr, end: ImageAddr) {
        self.want(start);
        self.want(end);
        let same = |a: Option<u64>, b: Option<u64>| a.is_some() && a == b;
        let segment_of = |at| self.layout.segment_at(at).map(|segment| segment.start.0);
        let is_whole = self.wanted_end(start).is_some_and(|wanted| end.0 < wanted);
        if start <= end && !is_whole && same(segment_of(start), segment_of(end)) {
            self.add(start.0, end.0.saturating_add(1));
        }
    }

    fn wanted_end(&self, at: ImageAddr) -> Option<u64> {
        let (_, end) = self.wanted.range(..=at.0).next_back()?;
        (at.0 < *end).then_some(*end)
    }

    fn is_wanted(&self, at: ImageAddr) -> bool {
        self.wanted_end(at).is_some()
    }

    /// Adds a stretch and makes one of it and all that it touches.
    fn add(&mut self, mut start: u64, mut end: u64) {
        if end <= start {
            return;
        }
        while let Some((other, other_end)) = self.wanted.range(..=end).next_back().map(|(s, e)| (*s, *e))
            && start <= other_end
        {
            self.wanted.remove(&other);
            start = start.min(other);
            end = end.max(other_end);
        }
        self.wanted.insert(start, end);
    }

    /// Reads what is wanted, in the order of addresses, and becomes a module. What cannot be read is left out.
    pub(super) fn emit(self, name: String, module: ModuleIdx, text: &mut Vec<Text>) -> Module {
        for (start, end) in &self.wanted {
            let start = ImageAddr(*start);
            let bytes = self
                .layout
                .file_off(start)
                .and_then(|offset| self.source.read(offset.0, end - start.0));
            text.extend(bytes.map(|bytes| Text {
                module,
                start,
                bytes,
                since: 0,
            }));
        }
        let kind = match self.layout.class {
            ElfClass::X86 => ModuleKind::Elf32,
            ElfClass::X86_64 | ElfClass::X32 => ModuleKind::Elf64,
        };
        Module {
            name,
            kind,
            build_id: self.layout.build_id,
            symbols: self.symbols.into_values().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::FileOff;
    use crate::resolve::elf::layout::Segment;

    fn file() -> FileText {
        let segment = Segment {
            offset: FileOff(0x100),
            start: ImageAddr(0x1000),
            len: 0x8000,
            executable: true,
        };
        let layout = ElfLayout {
            class: ElfClass::X86_64,
            build_id: Vec::new(),
            segments: vec![segment],
            sections: Vec::new(),
            eh_frame_hdr: None,
        };
        FileText::new(
            ByteSource::Memory((0..0x8100_u32).map(|n| (n % 251) as u8).collect()),
            layout,
        )
    }

    fn stretches(file: FileText) -> Vec<(u64, usize)> {
        let mut text = Vec::new();
        file.emit(String::new(), ModuleIdx(0), &mut text);
        text.iter().map(|t| (t.start.0, t.bytes.len())).collect()
    }

    #[test]
    fn stretches_that_touch_become_one() {
        let mut file = file();
        for (start, end) in [
            (0x2000, 0x2010),
            (0x2020, 0x2030),
            (0x2010, 0x2018),
            (0x2018, 0x2020),
            (0x3000, 0x3000),
        ] {
            file.add(start, end);
        }
        assert_eq!(stretches(file), [(0x2000, 0x30)]);
    }

    #[test]
    fn all_text_under_a_stream_is_there() {
        let mut file = file();
        file.want_stream(ImageAddr(0x1010), ImageAddr(0x4000));
        file.want_stream(ImageAddr(0x8000), ImageAddr(0x7000));
        file.want(ImageAddr(0x9000));
        assert_eq!(
            stretches(file),
            [(0x1000, 0x3400), (0x6c00, 0x800), (0x7c00, 0x800)]
        );
    }

    #[test]
    fn bytes_come_from_the_place_in_the_file() {
        let mut file = file();
        file.add(0x1000, 0x1002);
        let mut text = Vec::new();
        file.emit(String::new(), ModuleIdx(0), &mut text);
        assert_eq!(text[0].bytes, [5, 6]);
    }
}
