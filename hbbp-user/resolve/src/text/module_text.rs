//! The text ranges of one module: their addresses, their bytes, and why they were read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::ranges::RangeTable;
use super::reading::{ReadText, read_range};
use super::versions::TextVersions;
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::Symbol;

/// A function longer than this is taken in windows: a compiler with giant functions left 26 MB of text in ten seconds
/// when whole functions of up to 128 KiB were taken, most of which was never executed.
const MAX_FUNCTION: u64 = 16 << 10;
/// How much is taken on either side of an address without a function, or in a giant one: decoding falls into step
/// with the instructions after a few of them, and few basic blocks are longer than 100.
pub(super) const WINDOW: u64 = 1 << 10;
/// An instruction that starts this many bytes before the end of a window is whole (SDM vol. 2, 2.3.11: 15 bytes at most).
const LAST_START: u64 = 14;
/// Where a range cannot be read as a whole, its pages are read one by one.
const PAGE: u64 = 4096;
/// The text of one module, as far as it was hit.
#[derive(Debug, Default)]
pub(crate) struct ModuleText {
    pub(super) ranges: RangeTable<TextRange>,
    pub(super) symbols: BTreeMap<u64, Symbol>,
    /// Addresses that had functions of several names: end by start.
    pub(super) renamed: BTreeMap<u64, u64>,
    /// Starts of ranges that code runs into from the one before: a stream did, or a window ended within an instruction.
    pub(super) entered: BTreeSet<u64>,
    /// What the last [`Self::cover`] added.
    pub(super) added: Range<u64>,
    /// Bytes of all versions of all ranges.
    pub(super) n_bytes: usize,
}

#[derive(Debug)]
pub(super) struct TextRange {
    pub(super) len: u64,
    /// Its bytes, and the interval since which it has them; none if it could not be read.
    pub(super) versions: TextVersions,
    pub(super) why: Why,
    pub(super) end: End,
    /// The reading of all since which it was read first, where that is known.
    pub(super) read_since: Option<u64>,
}

/// Why a range is there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Why {
    /// It was hit.
    Hit,
    /// It may be hit, and may be gone by then.
    Early,
    /// It was hit, this number of intervals before the last one.
    Kept(u8),
}

/// Where a range ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// With its function, its region, or where the next range starts.
    Code,
    /// With a window: its last instruction may not be whole.
    Window,
}

/// What became of an address that was hit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Covered {
    /// Its text is there.
    Yes,
    /// Its text was needed now, for the first time, and cannot be read.
    UnreadableNow,
    /// It is known that its text cannot be read.
    Unreadable,
    /// Its text is read later.
    Later,
}

impl ModuleText {
    /// Whether the address was asked for already, and with which outcome.
    pub(crate) fn known(&self, at: ImageAddr) -> Option<Covered> {
        let (start, range) = self.ranges.last_upto(at.0)?;
        (at.0 - start < range.len).then(|| range.covered())
    }

    /// Addresses around `at` whose instructions were asked for already, `at` among them, which are hit.
    pub(crate) fn hit(&mut self, at: ImageAddr) -> Option<Range<ImageAddr>> {
        let (start, range) = self.holding(at)?;
        range.why = Why::Hit;
        range.whole(start, at)
    }

    /// Loads the text around `at` if needed, with the whole instruction at `at`.
    /// `bounds` is the region that holds it, or the gap between functions; `function` is what is known to contain it.
    pub(crate) fn cover(
        &mut self,
        at: ImageAddr,
        bounds: Range<ImageAddr>,
        function: Option<Symbol>,
        read: &mut ReadText<'_>,
    ) -> Covered {
        let function = function.filter(|symbol| {
            at.since(symbol.start)
                .is_some_and(|from_start| from_start < symbol.len)
        });
        self.added = 0..0;
        let covered = match self.known(at) {
            Some(covered) => covered,
            None => self.cover_new(at, &bounds, function.as_ref(), read),
        };
        if let Some(next) = self.cut_off(at) {
            if self.hit(next).is_none() && self.known(next).is_none() {
                self.cover_new(next, &bounds, function.as_ref(), read);
            }
            self.entered.insert(next.0);
        }
        covered
    }

    /// Adds a function of memory, which may have been read before it was known. Where another one was, counts of both are
    /// together, so that neither has its name.
    pub(crate) fn name(&mut self, function: Symbol) {
        let end = |symbol: &Symbol| symbol.start.0.saturating_add(symbol.len);
        let below = self.symbols.range(..end(&function)).rev();
        let overlapping = below.take_while(|(_, other)| function.start.0 < end(other));
        let others = overlapping.filter(|(_, other)| **other != function);
        let others: Vec<u64> = others.map(|(start, _)| *start).collect();
        let renamed = self.renamed.range(..end(&function)).next_back();
        let is_renamed = renamed.is_some_and(|(_, end)| function.start.0 < *end);
        for other in &others {
            self.take_name(ImageAddr(*other));
        }
        if others.is_empty() && !is_renamed {
            self.symbols.insert(function.start.0, function);
        } else {
            self.note_renamed(function.start.0..end(&function));
        }
    }

    /// Takes the name of the function of memory at `at`, which is there no more.
    pub(crate) fn take_name(&mut self, at: ImageAddr) {
        let function = self.symbols.range(..=at.0).next_back();
        let function = function.filter(|(_, symbol)| at.0 - symbol.start.0 < symbol.len);
        if let Some((start, symbol)) = function.map(|(start, symbol)| (*start, symbol)) {
            let end = start.saturating_add(symbol.len);
            self.symbols.remove(&start);
            self.note_renamed(start..end);
        }
    }

    /// Notes that addresses had functions of several names.
    fn note_renamed(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        let touching = |renamed: &BTreeMap<u64, u64>, range: Range<u64>| {
            let last = renamed.range(..=range.end).next_back();
            last.filter(|(_, end)| range.start <= **end)
                .map(|(from, to)| (*from, *to))
        };
        while let Some((from, to)) = touching(&self.renamed, start..end) {
            self.renamed.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.renamed.insert(start, end);
    }

    /// Where functions start whose text changed since it was read first.
    pub(crate) fn changed_functions(&self) -> Vec<ImageAddr> {
        let changed = self
            .ranges
            .iter()
            .filter(|(_, range)| 1 < range.versions.iter().count());
        let of_range = |(start, range): (u64, &TextRange)| {
            let inside = self.symbols.range(..start.saturating_add(range.len)).rev();
            let inside =
                inside.take_while(move |(_, symbol)| start < symbol.start.0.saturating_add(symbol.len));
            inside.map(|(start, _)| ImageAddr(*start)).collect::<Vec<_>>()
        };
        changed.flat_map(of_range).collect()
    }

    /// The ranges that are in no function as a whole.
    fn unnamed_ranges(&self) -> impl Iterator<Item = Range<u64>> {
        let ranges = self.ranges.iter().map(|(start, range)| start..start + range.len);
        ranges.filter(|range| {
            let function = self.symbols.range(..=range.start).next_back();
            function.is_none_or(|(start, symbol)| start.saturating_add(symbol.len) < range.end)
        })
    }

    /// Whether a part of it has no name.
    pub(crate) fn has_unnamed(&self) -> bool {
        self.unnamed_ranges().next().is_some()
    }

    /// The ranges with a part that has no name.
    pub(crate) fn unnamed(&self) -> Vec<Range<u64>> {
        self.unnamed_ranges().collect()
    }

    /// Whether a function has the bytes that were first read there: it was executed.
    pub(crate) fn is_as_read(&self, function: &Symbol) -> bool {
        let (from, to) = (function.start.0, function.start.0.saturating_add(function.len));
        let parts = self
            .ranges
            .before(to)
            .take_while(|(start, range)| from < start + range.len);
        let mut parts = parts.map(|(start, range)| {
            let part = from.max(start) - start..to.min(start + range.len) - start;
            let part = usize::try_from(part.start).ok()?..usize::try_from(part.end).ok()?;
            let mut versions = range.versions.iter().map(|(_, bytes)| bytes.get(part.clone()));
            let first = versions.next()?;
            versions.all(|bytes| bytes == first).then_some(())
        });
        parts.all(|part| part.is_some())
    }

    /// Where text has to go on for the instruction at `at`, whose range ends with a window.
    fn cut_off(&mut self, at: ImageAddr) -> Option<ImageAddr> {
        let (start, range) = self.holding(at)?;
        let end = start + range.len;
        let cut_off = range.end == End::Window && end - at.0 <= LAST_START;
        if cut_off {
            range.end = End::Code;
        }
        cut_off.then_some(ImageAddr(end))
    }

    /// Adds a range around an address that none holds.
    fn cover_new(
        &mut self,
        at: ImageAddr,
        bounds: &Range<ImageAddr>,
        function: Option<&Symbol>,
        read: &mut ReadText<'_>,
    ) -> Covered {
        if !bounds.contains(&at) {
            // The file ends before its mapping, or its headers lie.
            let end = at.0.saturating_add(1);
            if at.0 < end {
                self.insert(at.0..end, End::Code, TextVersions::default());
            }
            return Covered::UnreadableNow;
        }
        let (range, end) = self.extent(at.0, &(bounds.start.0..bounds.end.0), function);
        self.added = if self.added.is_empty() {
            range.clone()
        } else {
            self.added.start.min(range.start)..self.added.end.max(range.end)
        };
        if let Some(symbol) = function {
            self.symbols
                .entry(symbol.start.0)
                .or_insert_with(|| symbol.clone());
        }
        if self.add(range, end, read) || self.known(at) == Some(Covered::Yes) {
            Covered::Yes
        } else {
            Covered::UnreadableNow
        }
    }

    /// The extent of a new range around `at`, inside the bounds and between its neighbours, and where it ends.
    fn extent(&self, at: u64, bounds: &Range<u64>, function: Option<&Symbol>) -> (Range<u64>, End) {
        let (whole, longest) = match function {
            Some(symbol) => (
                symbol.start.0..symbol.start.0.saturating_add(symbol.len),
                MAX_FUNCTION,
            ),
            None => (bounds.clone(), 2 * WINDOW),
        };
        let wanted = if longest < whole.end - whole.start {
            whole.start.max(at.saturating_sub(WINDOW))..whole.end.min(at.saturating_add(WINDOW))
        } else {
            whole.clone()
        };
        let last = self.ranges.last_upto(at);
        let before = last.map_or(0, |(start, range)| start + range.len);
        let after = self.ranges.first_from(at).unwrap_or(u64::MAX);
        let start = wanted.start.max(bounds.start).max(before).min(at);
        let end = wanted.end.min(bounds.end).min(after).max(at.saturating_add(1));
        let is_window = end < whole.end && end < bounds.end && end < after;
        (start..end, if is_window { End::Window } else { End::Code })
    }

    /// Adds a new range. Returns whether it could be read as a whole.
    pub(super) fn add(&mut self, range: Range<u64>, end: End, read: &mut ReadText<'_>) -> bool {
        match read_range(&range, read) {
            Some(bytes) => {
                self.insert(range, end, TextVersions::read_first(bytes));
                return true;
            }
            None if range.start / PAGE == (range.end - 1) / PAGE => {
                self.insert(range, end, TextVersions::default());
            }
            None => {
                let mut start = range.start;
                while start < range.end {
                    let page_end = range.end.min((start / PAGE + 1).saturating_mul(PAGE));
                    let end = if page_end < range.end { End::Code } else { end };
                    let bytes = read_range(&(start..page_end), read);
                    let versions = bytes.map(TextVersions::read_first).unwrap_or_default();
                    self.insert(start..page_end, end, versions);
                    start = page_end;
                }
            }
        }
        false
    }

    pub(super) fn insert(&mut self, range: Range<u64>, end: End, versions: TextVersions) {
        let start = range.start;
        self.n_bytes += versions.n_bytes();
        let range = TextRange {
            len: range.end - start,
            versions,
            why: Why::Hit,
            end,
            read_since: None,
        };
        self.ranges.insert(start, range);
    }

    /// Bytes of text held, all versions.
    pub(crate) const fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    /// Drops the text of ranges that changed, all versions, as if it could not be read: a compiler that works while the
    /// program runs writes over its code without end. Returns their number.
    pub(crate) fn drop_changed(&mut self) -> u64 {
        let mut n_dropped = 0;
        for (_, range) in self.ranges.iter_mut() {
            if 1 < range.versions.iter().count() {
                self.n_bytes -= range.versions.n_bytes();
                range.versions.replace(None);
                n_dropped += 1;
            }
        }
        n_dropped
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether no address of this module was hit.
    pub(crate) fn is_unhit(&self) -> bool {
        self.ranges.iter().all(|(_, range)| range.why != Why::Hit)
    }

    /// The intervals in which text versions begin.
    pub(crate) fn version_starts(&self) -> impl Iterator<Item = u32> {
        let versions = self.ranges.iter().flat_map(|(_, r)| r.versions.iter());
        versions.map(|(since, _)| since)
    }
}

impl TextRange {
    fn covered(&self) -> Covered {
        if self.versions.is_empty() {
            Covered::Unreadable
        } else {
            Covered::Yes
        }
    }

    /// Where instructions may start that are whole in the range at `start`, if one at `at` is.
    fn whole(&self, start: u64, at: ImageAddr) -> Option<Range<ImageAddr>> {
        let end = match self.end {
            End::Code => start + self.len,
            End::Window => (start + self.len).saturating_sub(LAST_START).max(start),
        };
        (at.0 < end).then_some(ImageAddr(start)..ImageAddr(end))
    }
}

#[cfg(test)]
mod tests;
