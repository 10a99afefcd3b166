//! The table of the functions of one file, and the search in it.
//!
//! A table may have a million entries of which a run hits a hundred, so names stay in the file until they are asked for.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::ops::Range;

use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::Symbol;

use crate::byte_source::ByteSource;
use crate::name_blocks::NameBlocks;
use crate::unwind_table::UnwindTable;

/// No file has more functions, as far as is read: the largest browsers have about a million, some servers three.
pub(super) const MAX_SYMBOLS: usize = 4 << 20;
/// A file names its debug file, and that one another; real ones have one or two.
pub(crate) const MAX_DEBUG_FILES: usize = 3;
/// A small function may lie inside a large one; the search for the large one ends after this many small ones.
const MAX_NESTED: usize = 64;

/// The functions of one file.
#[derive(Debug)]
pub struct Functions {
    /// The first start.
    pub(super) first: u64,
    /// Sorted by start; several may share one.
    pub(super) ranges: Vec<FunctionRange>,
    /// Functions that may have no symbol. What a symbol covers is not one of them.
    pub(super) unwind: Option<UnwindTable>,
    /// Where their names are.
    pub(super) names: Vec<NameTable>,
    /// What was read of the names of the file itself.
    pub(super) read: RefCell<NameBlocks>,
    /// What was read of those of its debug file.
    pub(super) read_debug: RefCell<NameBlocks>,
    /// Names that are packed in the file.
    pub(super) unpacked: ByteSource,
    /// Whether it has more functions than are read.
    pub(super) is_cut: bool,
}

impl Default for Functions {
    fn default() -> Self {
        Self {
            first: 0,
            ranges: Vec::new(),
            unwind: None,
            names: Vec::new(),
            read: RefCell::default(),
            read_debug: RefCell::default(),
            unpacked: ByteSource::Memory(Vec::new()),
            is_cut: false,
        }
    }
}

/// There may be a million of them, so each is kept small.
#[derive(Clone, Copy, Debug)]
pub(super) struct FunctionRange {
    /// Bytes from the first start.
    pub(super) start: u32,
    /// Length in bytes.
    pub(super) len: u32,
    /// Offset of its name in its table.
    pub(super) name: u32,
    /// Which table; [`UNNAMED`] where only the start is known.
    pub(super) table: u8,
    pub(super) global: bool,
}

/// The table of functions that have no name.
pub(super) const UNNAMED: u8 = u8::MAX;

/// What is appended to the name of a function that a stub leads to.
pub(super) const STUB_SUFFIX: &str = "@plt";

/// A table of names.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameTable {
    pub(super) file: NameFile,
    /// Its offset in the file.
    pub(super) offset: u64,
    /// What is appended to its names.
    pub(super) suffix: &'static str,
}

/// The file that holds a table of names.
#[derive(Clone, Copy, Debug)]
pub(super) enum NameFile {
    /// The file itself.
    Own,
    /// One of its debug files. All names of a table are in one of them.
    Debug(u8),
    /// What was packed in the file.
    Unpacked,
}

impl Functions {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.ranges.len() + self.unwind.as_ref().map_or(0, |table| table.entries.len())
    }

    /// Whether the file has more functions than are read.
    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory of the table in bytes, with what was read of the names.
    pub fn n_bytes(&self) -> usize {
        let blocks = self.read.borrow().n_bytes() + self.read_debug.borrow().n_bytes();
        let unwind = self.unwind.as_ref().map_or(0, UnwindTable::n_bytes);
        let unpacked = usize::try_from(self.unpacked.len()).unwrap_or(usize::MAX);
        self.ranges.capacity() * size_of::<FunctionRange>() + unwind + blocks + unpacked
    }

    /// Where the functions of symbol tables start, in rising order; several may share a start.
    pub fn starts(&self) -> impl Iterator<Item = ImageAddr> {
        self.ranges.iter().map(|r| ImageAddr(self.start_of(r)))
    }

    fn start_of(&self, range: &FunctionRange) -> u64 {
        self.first + u64::from(range.start)
    }

    /// How many functions start at `at` or before.
    fn n_until(&self, at: ImageAddr) -> usize {
        self.ranges.partition_point(|r| self.start_of(r) <= at.0)
    }

    /// The function that contains `at`; of several with one start, the name is chosen by a fixed rule. Where only its range
    /// is known, the name is empty.
    pub fn read_function_at(&self, at: ImageAddr, own: &ByteSource, debug: &[ByteSource]) -> Option<Symbol> {
        let Some(found) = self.range_at(at) else {
            return self.read_unnamed_at(at, own);
        };
        let first = self.ranges.partition_point(|r| r.start < found.start);
        let aliases = self
            .ranges
            .iter()
            .skip(first)
            .take_while(|r| r.start == found.start)
            .take(MAX_NESTED);
        let named = aliases.filter_map(|r| {
            let table = self.names.get(usize::from(r.table))?;
            let offset = table.offset.checked_add(u64::from(r.name))?;
            let name = match table.file {
                NameFile::Own => self.read.borrow_mut().read_name(own, offset),
                NameFile::Unpacked => self.unpacked.read_name(offset),
                NameFile::Debug(nth) => {
                    let debug = debug.get(usize::from(nth))?;
                    self.read_debug.borrow_mut().read_name(debug, offset)
                }
            };
            Some((r.global, name.filter(|n| !n.is_empty())? + table.suffix))
        });
        let underscores = |name: &str| name.len() - name.trim_start_matches('_').len();
        let rank =
            |(global, name): &(bool, String)| (*global, Reverse(underscores(name)), Reverse(name.len()));
        let best = named.max_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| b.1.cmp(&a.1)));
        let name = best.map(|(_, name)| name).unwrap_or_default();
        Some(Symbol {
            start: ImageAddr(self.start_of(found)),
            len: u64::from(found.len),
            name,
        })
    }

    /// The innermost function of a symbol table that contains `at`.
    fn range_at(&self, at: ImageAddr) -> Option<&FunctionRange> {
        let before = self.ranges.get(..self.n_until(at))?;
        let mut nested = before.iter().rev().take(MAX_NESTED);
        nested.find(|r| at.0 - self.start_of(r) < u64::from(r.len))
    }

    /// The function without a symbol that contains `at`.
    fn read_unnamed_at(&self, at: ImageAddr, own: &ByteSource) -> Option<Symbol> {
        let (start, len) = self.unwind.as_ref()?.read_last_until(at.0, own)?;
        let start = ImageAddr(start);
        let is_inside = at.since(start).is_some_and(|offset| offset < len);
        let found = is_inside && self.range_at(start).is_none();
        found.then(|| Symbol {
            start,
            len,
            name: String::new(),
        })
    }

    /// The addresses around `at`, which is in no function, up to the nearest functions.
    pub fn gap_at(&self, at: ImageAddr, own: &ByteSource) -> Range<ImageAddr> {
        let n_before = self.n_until(at);
        let before = self.ranges.iter().take(n_before).rev().take(MAX_NESTED);
        let start = before
            .map(|r| self.start_of(r).saturating_add(u64::from(r.len)))
            .max();
        let end = self.ranges.get(n_before).map_or(u64::MAX, |r| self.start_of(r));
        let unwind = self.unwind.as_ref();
        let last = unwind.and_then(|table| table.read_last_until(at.0, own));
        let last = last.map(|(start, len)| start.saturating_add(len));
        let next = unwind.and_then(|table| table.next_start(at.0));
        let start = start.max(last).unwrap_or(0).min(at.0);
        ImageAddr(start)..ImageAddr(next.map_or(end, |next| next.min(end)))
    }
}
