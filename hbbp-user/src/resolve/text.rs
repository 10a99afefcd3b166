//! Which stretches of a module's text go into the snapshot, and what stood there at which time.
//!
//! An address that was hit calls for its whole function, because blocks are found by decoding from a known start;
//! where no function is known, or a giant one, a window around the address has to do.
//! Stretches of one module never overlap, and a stretch keeps its extent for the whole run: text that is patched
//! becomes a new generation of the same stretch.

mod follow;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::addr::ImageAddr;
use crate::snapshot::{ModuleIdx, Symbol, Text};

use super::generations::{Generations, Records};
use super::reading::read_range;
use super::stretches::Stretches;
pub use follow::{Known, Live};

/// A function longer than this is taken in windows: a compiler with giant functions left 26 MB of text in ten seconds
/// when whole functions of up to 128 KiB were taken, most of which never ran.
const MAX_FUNCTION: u64 = 16 << 10;
/// How much is taken on either side of an address without a function, or in a giant one: decoding falls into step
/// with the instructions after a few of them, and few basic blocks are longer than 100.
const WINDOW: u64 = 1 << 10;
/// Where a stretch cannot be read as a whole, its pages are read one by one.
const PAGE: u64 = 4096;
/// A stream that is longer is no straight line of code.
const MAX_STREAM: u64 = 64 << 10;

/// The text of one module, as far as it was hit.
#[derive(Debug, Default)]
pub struct ModuleText {
    stretches: Stretches<Stretch>,
    symbols: BTreeMap<u64, Symbol>,
    /// Starts of stretches that streams ran into from the one before.
    entered: BTreeSet<u64>,
    /// What the last [`Self::cover`] added.
    added: Range<u64>,
}

#[derive(Debug)]
struct Stretch {
    len: u64,
    /// What stood there, and since which interval; none where it could not be read.
    generations: Generations,
    why: Why,
    /// The reading of all since which it was read first, where that was told.
    read_since: Option<u64>,
}

/// Why a stretch is kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Why {
    /// It was hit.
    Hit,
    /// It may be hit, and may be gone by then.
    Early,
}

/// What became of an address that was hit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Covered {
    /// Its text is there.
    Yes,
    /// Its text was asked for now, for the first time, and cannot be read.
    UnreadableNow,
    /// It is known that its text cannot be read.
    Unreadable,
}

impl ModuleText {
    /// Whether the address was asked for already, and with which outcome.
    pub fn known(&self, at: ImageAddr) -> Option<Covered> {
        let (start, stretch) = self.stretches.last_upto(at.0)?;
        (at.0 - start < stretch.len).then(|| stretch.covered())
    }

    /// The stretch that holds an address which was asked for already.
    pub fn stretch_at(&self, at: ImageAddr) -> Option<Range<ImageAddr>> {
        let (start, stretch) = self.stretches.last_upto(at.0)?;
        let inside = at.0 - start < stretch.len;
        inside.then_some(ImageAddr(start)..ImageAddr(start + stretch.len))
    }

    /// The same, and says that it was hit, where it may have been copied before.
    pub fn hit(&mut self, at: ImageAddr) -> Option<Range<ImageAddr>> {
        let (start, stretch) = self.holding(at)?;
        stretch.why = Why::Hit;
        Some(ImageAddr(start)..ImageAddr(start + stretch.len))
    }

    /// Sees to it that the text around `at` is there.
    /// `bounds` is the region that holds it, `function` what is known to contain it;
    /// `read` fills a buffer with the text from an address on and says whether it could.
    pub fn cover(
        &mut self,
        at: ImageAddr,
        bounds: Range<ImageAddr>,
        function: Option<Symbol>,
        read: &mut dyn FnMut(ImageAddr, &mut [u8]) -> bool,
    ) -> Covered {
        let before = match self.stretches.last_upto(at.0) {
            Some((start, stretch)) if at.0 - start < stretch.len => return stretch.covered(),
            last => last.map_or(0, |(start, stretch)| start + stretch.len),
        };
        if !bounds.contains(&at) {
            // The file ends before its mapping, or its headers lie.
            let end = at.0.saturating_add(1);
            if at.0 < end {
                self.insert(at.0..end, Generations::default());
            }
            return Covered::UnreadableNow;
        }
        let function = function.filter(|symbol| {
            at.since(symbol.start)
                .is_some_and(|from_start| from_start < symbol.len)
        });
        let range = self.extent(at.0, before, bounds.start.0..bounds.end.0, function.as_ref());
        self.added = range.clone();
        if let Some(symbol) = function {
            self.symbols.entry(symbol.start.0).or_insert(symbol);
        }
        if self.add(range, read) || self.known(at) == Some(Covered::Yes) {
            Covered::Yes
        } else {
            Covered::UnreadableNow
        }
    }

    /// The extent of a new stretch around `at`: inside the bounds, between its neighbours, of which the last one ends at
    /// `before`.
    fn extent(&self, at: u64, before: u64, bounds: Range<u64>, function: Option<&Symbol>) -> Range<u64> {
        let (mut wanted, longest) = match function {
            Some(symbol) => (
                symbol.start.0..symbol.start.0.saturating_add(symbol.len),
                MAX_FUNCTION,
            ),
            None => (bounds.clone(), 2 * WINDOW),
        };
        if longest < wanted.end - wanted.start {
            wanted = wanted.start.max(at.saturating_sub(WINDOW))..wanted.end.min(at.saturating_add(WINDOW));
        }
        let behind = self.stretches.first_from(at).unwrap_or(u64::MAX);
        let start = wanted.start.max(bounds.start).max(before).min(at);
        let end = wanted.end.min(bounds.end).min(behind).max(at.saturating_add(1));
        start..end
    }

    /// Adds a new stretch. Returns whether it could be read as a whole.
    fn add(&mut self, range: Range<u64>, read: &mut dyn FnMut(ImageAddr, &mut [u8]) -> bool) -> bool {
        match read_range(&range, read) {
            Some(bytes) => {
                self.insert(range, Generations::read_first(bytes));
                return true;
            }
            None if range.start / PAGE == (range.end - 1) / PAGE => {
                self.insert(range, Generations::default());
            }
            None => {
                let mut start = range.start;
                while start < range.end {
                    let end = range.end.min((start / PAGE + 1).saturating_mul(PAGE));
                    let bytes = read_range(&(start..end), read);
                    self.insert(start..end, bytes.map(Generations::read_first).unwrap_or_default());
                    start = end;
                }
            }
        }
        false
    }

    fn insert(&mut self, range: Range<u64>, generations: Generations) {
        let stretch = Stretch {
            len: range.end - range.start,
            generations,
            why: Why::Hit,
            read_since: None,
        };
        self.stretches.insert(range.start, stretch);
    }

    /// Reads all stretches again; where the text differs it is a new generation, valid from `interval` on.
    /// Returns the number of stretches that differ. What can no longer be read stays as it was.
    pub fn reread(&mut self, interval: u32, read: &mut dyn FnMut(ImageAddr, &mut [u8]) -> bool) -> u64 {
        let known = Known {
            time: 0,
            interval,
            records: Records::NoneYet,
            pending: &[],
        };
        let live = self.read_live(None, read);
        self.compare(&known, live)
    }

    /// Whether no address of this module was hit.
    pub fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    /// The intervals in which text versions begin.
    pub fn version_starts(&self) -> impl Iterator<Item = u32> {
        let versions = self.stretches.iter().flat_map(|(_, s)| s.generations.iter());
        versions.map(|(since, _)| since)
    }

    /// Hands the text that was hit over to `text`, sorted by (start, since), and returns its symbols, sorted by start.
    /// Stretches that touch become one, where the same generations are known of both or a stream ran from one into
    /// the other: code may run from one function into the next.
    pub fn emit(self, module: ModuleIdx, text: &mut Vec<Text>) -> Vec<Symbol> {
        let mut joined: Vec<(u64, Stretch)> = Vec::new();
        let entered = &self.entered;
        for (start, stretch) in self.stretches.into_each().filter(|(_, s)| s.why == Why::Hit) {
            match joined.last_mut() {
                Some((first, last))
                    if *first + last.len == start && last.joins(&stretch, || entered.contains(&start)) =>
                {
                    last.len += stretch.len;
                    last.generations.append(&stretch.generations);
                }
                _ => joined.push((start, stretch)),
            }
        }
        let was_hit = |symbol: &Symbol| {
            let before = joined.partition_point(|(start, _)| *start <= symbol.start.0);
            let end = symbol.start.0.saturating_add(symbol.len.max(1));
            let holding = before.checked_sub(1).and_then(|n| joined.get(n));
            let behind = joined.get(before).is_some_and(|(start, _)| *start < end);
            behind || holding.is_some_and(|(start, s)| symbol.start.0 < start + s.len)
        };
        let symbols: Vec<Symbol> = self.symbols.into_values().filter(was_hit).collect();
        for (start, stretch) in joined {
            text.extend(stretch.generations.into_each().map(|(since, bytes)| Text {
                module,
                start: ImageAddr(start),
                bytes,
                since,
            }));
        }
        symbols
    }
}

impl Stretch {
    fn covered(&self) -> Covered {
        if self.generations.is_empty() {
            Covered::Unreadable
        } else {
            Covered::Yes
        }
    }

    fn joins(&self, next: &Self, entered: impl FnOnce() -> bool) -> bool {
        let both = !self.generations.is_empty() && !next.generations.is_empty();
        self.generations.same_times(&next.generations) || both && entered()
    }
}

/// Whether a stream can be a straight line of code; both ends are inclusive.
pub fn is_stream(start: u64, end: u64) -> bool {
    start <= end && end - start < MAX_STREAM
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(start: u64, len: u64) -> Option<Symbol> {
        Some(Symbol {
            start: ImageAddr(start),
            len,
            name: format!("f{start:x}"),
        })
    }

    fn memory(at: ImageAddr, bytes: &mut [u8]) -> bool {
        // 0x3000..0x4000 is a hole, as the kernel shows it; 0x5000.. faults.
        for (byte, address) in bytes.iter_mut().zip(at.0..) {
            *byte = if (0x3000..0x4000).contains(&address) {
                0
            } else {
                0x90
            };
        }
        at.0 + u64::try_from(bytes.len()).expect("short") <= 0x5000
    }

    const ALL: Range<ImageAddr> = ImageAddr(0x1000)..ImageAddr(0x10_0000);

    #[test]
    fn a_function_is_read_once_and_whole() {
        let mut text = ModuleText::default();
        assert_eq!(
            text.cover(ImageAddr(0x1234), ALL, symbol(0x1200, 0x80), &mut memory),
            Covered::Yes
        );
        assert_eq!(
            text.cover(ImageAddr(0x127f), ALL, None, &mut |_, _| false),
            Covered::Yes
        );
        let mut out = Vec::new();
        let symbols = text.emit(ModuleIdx(3), &mut out);
        assert_eq!(
            (symbols.len(), out.len(), out[0].start, out[0].bytes.len()),
            (1, 1, ImageAddr(0x1200), 0x80)
        );
    }

    #[test]
    fn windows_keep_off_their_neighbours_and_bounds() {
        let mut text = ModuleText::default();
        text.cover(ImageAddr(0x1810), ALL, symbol(0x1800, 0x20), &mut memory);
        assert_eq!(
            text.cover(ImageAddr(0x1700), ALL, None, &mut memory),
            Covered::Yes
        );
        assert_eq!(
            text.cover(ImageAddr(0x1830), ALL, None, &mut memory),
            Covered::Yes
        );
        let mut out = Vec::new();
        text.emit(ModuleIdx(0), &mut out);
        let extents: Vec<_> = out
            .iter()
            .map(|t| (t.start.0, t.start.0 + t.bytes.len() as u64))
            .collect();
        assert_eq!(extents, [(0x1300, 0x1c30)], "they touch, so they are one");
    }

    #[test]
    fn holes_and_faults_cost_only_their_own_pages() {
        let mut text = ModuleText::default();
        let function = || symbol(0x2f00, 0x2400);
        assert_eq!(
            text.cover(ImageAddr(0x4800), ALL, function(), &mut memory),
            Covered::Yes
        );
        assert_eq!(
            text.cover(ImageAddr(0x2f00), ALL, function(), &mut memory),
            Covered::Yes
        );
        assert_eq!(
            text.cover(ImageAddr(0x3004), ALL, function(), &mut memory),
            Covered::Unreadable
        );
        assert_eq!(
            text.cover(ImageAddr(0x5004), ALL, function(), &mut memory),
            Covered::Unreadable
        );
        assert_eq!(
            text.cover(ImageAddr(0x9000), ALL, symbol(0x9000, 8), &mut memory),
            Covered::UnreadableNow
        );
    }

    #[test]
    fn patched_text_is_a_new_generation_of_the_same_extent() {
        let mut text = ModuleText::default();
        text.cover(ImageAddr(0x1200), ALL, symbol(0x1200, 5), &mut memory);
        assert_eq!(text.reread(1, &mut memory), 0);
        let mut patched = |_: ImageAddr, bytes: &mut [u8]| {
            bytes.copy_from_slice(&[0xe9, 1, 2, 3, 4]);
            true
        };
        assert_eq!(text.reread(2, &mut patched), 1);
        assert_eq!(text.reread(3, &mut |_, _| false), 0, "gone text stays as it was");
        assert_eq!(text.reread(4, &mut memory), 1, "and back again");
        let mut out = Vec::new();
        text.emit(ModuleIdx(0), &mut out);
        let since: Vec<_> = out.iter().map(|t| (t.since, t.bytes[0])).collect();
        assert_eq!(since, [(0, 0x90), (2, 0xe9), (4, 0x90)]);
    }

    #[test]
    fn patched_text_stands_apart_from_its_neighbours() {
        let mut text = ModuleText::default();
        for start in [0x1200, 0x1210, 0x1220, 0x1240] {
            text.cover(ImageAddr(start), ALL, symbol(start, 0x10), &mut memory);
        }
        let mut patched = |at: ImageAddr, bytes: &mut [u8]| {
            for (byte, address) in bytes.iter_mut().zip(at.0..) {
                *byte = if (0x1220..0x1230).contains(&address) {
                    0xc3
                } else {
                    0x90
                };
            }
            true
        };
        text.reread(1, &mut patched);
        let mut out = Vec::new();
        text.emit(ModuleIdx(0), &mut out);
        let found: Vec<_> = out.iter().map(|t| (t.start.0, t.bytes.len(), t.since)).collect();
        assert_eq!(
            found,
            [
                (0x1200, 0x20, 0),
                (0x1220, 0x10, 0),
                (0x1220, 0x10, 1),
                (0x1240, 0x10, 0)
            ]
        );
    }

    #[test]
    fn odd_extents() {
        let mut text = ModuleText::default();
        let top = ImageAddr(u64::MAX - 1);
        let bounds = ImageAddr(u64::MAX - 0x10)..ImageAddr(u64::MAX);
        assert_eq!(
            text.cover(top, bounds, symbol(u64::MAX - 8, 100), &mut |_, b| {
                b.fill(1);
                true
            }),
            Covered::Yes
        );
        let beside = text.cover(ImageAddr(0x2000), ALL, symbol(0x1f00, 0x10), &mut memory);
        assert_eq!(
            beside,
            Covered::Yes,
            "a function that does not hold the address counts for nothing"
        );
        let outside = ImageAddr(u64::MAX)..ImageAddr(5);
        for at in [0, 7, u64::MAX] {
            assert_eq!(
                text.cover(ImageAddr(at), outside.clone(), None, &mut memory),
                Covered::UnreadableNow
            );
        }
        assert!(is_stream(1, 1) && !is_stream(2, 1) && !is_stream(0, MAX_STREAM));
    }
}
