//! Copies of text ranges: the same range of a file with the bytes that one process has there.

use std::ops::Range;

use super::module_text::{End, ModuleText, TextRange, Why};
use super::versions::TextVersions;
use hbbp_model::addr::ImageAddr;

impl ModuleText {
    /// The range that holds an address, as far as it could be read, and its last bytes.
    pub(crate) fn range_at(&self, at: ImageAddr) -> Option<(Range<ImageAddr>, &[u8])> {
        let (start, range) = self.ranges.last_upto(at.0)?;
        let is_read = at.0 - start < range.len && !range.versions.is_empty();
        let extent = ImageAddr(start)..ImageAddr(start + range.len);
        is_read.then(|| (extent, range.versions.last()))
    }

    /// The last bytes from an address on, to the end of its range.
    pub(crate) fn from(&self, at: ImageAddr) -> Option<&[u8]> {
        let (extent, bytes) = self.range_at(at)?;
        bytes.get(usize::try_from(at.since(extent.start)?).ok()?..)
    }

    /// Adds a range of another text, which starts at `start`, and its function; it has other bytes.
    pub(crate) fn copy(&mut self, of: &Self, start: ImageAddr, bytes: Vec<u8>) {
        let Some((extent, _)) = of.range_at(start) else {
            return;
        };
        let range = TextRange {
            len: extent.end.0 - extent.start.0,
            versions: TextVersions::read_first(bytes),
            why: Why::Hit,
            end: End::Code,
            read_since: None,
        };
        self.n_bytes += range.versions.n_bytes();
        self.ranges.insert(extent.start.0, range);
        if of.entered.contains(&extent.start.0) {
            self.entered.insert(extent.start.0);
        }
        let function = of.symbols.range(..extent.end.0).next_back();
        let function = function.filter(|(at, symbol)| extent.start.0 < at.saturating_add(symbol.len));
        self.symbols
            .extend(function.map(|(at, symbol)| (*at, symbol.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::snapshot::{ModuleIdx, Symbol};

    #[test]
    fn a_copy_has_the_extent_and_the_function_of_its_range() {
        let bounds = ImageAddr(0x1000)..ImageAddr(0x9000);
        let function = Symbol {
            start: ImageAddr(0x1200),
            len: 0x20,
            name: "f".to_owned(),
        };
        let mut file = ModuleText::default();
        file.cover(
            ImageAddr(0x1210),
            bounds,
            Some(function.clone()),
            &mut |_, bytes| {
                bytes.fill(0x90);
                true
            },
        );
        assert!(file.range_at(ImageAddr(0x1220)).is_none());
        let mut copy = ModuleText::default();
        copy.copy(&file, ImageAddr(0x1200), vec![0xcc; 0x20]);
        let (extent, bytes) = copy.range_at(ImageAddr(0x121f)).expect("it is there");
        assert_eq!(extent, ImageAddr(0x1200)..ImageAddr(0x1220));
        assert_eq!(bytes, [0xcc; 0x20]);
        let mut text = Vec::new();
        assert_eq!(copy.emit(ModuleIdx(1), &mut text), [function]);
        assert_eq!((text.len(), text[0].start), (1, ImageAddr(0x1200)));
    }
}
