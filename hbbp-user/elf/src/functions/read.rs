//! Reads the functions of an ELF file from its tables.

use std::mem;

use object::LittleEndian;
use object::elf::{self, Sym32, Sym64};
use object::pod;
use object::read::elf::Sym;

use super::table::{FunctionRange, Functions, MAX_SYMBOLS, NameFile, NameTable, STUB_SUFFIX, UNNAMED};
use crate::byte_source::ByteSource;
use crate::go_functions::read_go_functions;
use crate::layout::{ElfClass, ElfLayout, Section, Segment, SymbolFile};
use crate::linkage::{MAX_LINKAGE_TABLE, MAX_LINKAGE_TABLES, read_stubs};
use crate::mini_debug_info::unpack;
use crate::unwind::read_unwind_ranges;
use crate::unwind_table::UnwindTable;
use hbbp_model::addr::{FileOff, ImageAddr};

/// Tables are read in pieces of this many entries, which fit into a cache of the processor.
const PIECE: usize = 1 << 12;

/// The range of a jump or a call in either direction.
const REACH: u64 = 1 << 31;

/// What was read so far.
#[derive(Default)]
struct Reading {
    /// Sorted by start between two steps.
    ranges: Vec<ReadRange>,
    /// Labels in code, which are functions where no other is.
    labels: Vec<ReadRange>,
    names: Vec<NameTable>,
    is_cut: bool,
}

/// A function at any address.
#[derive(Clone, Copy, Debug)]
struct ReadRange {
    start: u64,
    /// Length in bytes; a function of 4 GiB is a lie.
    len: u32,
    /// Offset of its name in its table.
    name: u32,
    /// Which table; [`UNNAMED`] where only the start is known.
    table: u8,
    global: bool,
}

/// Reads the functions of `own`, with the help of its debug file where there is one, the debug file of that, and so on.
pub fn read_functions(own: SymbolFile<'_>, debug: &[SymbolFile<'_>]) -> Functions {
    let mut functions = Reading::default();
    functions.add_symbols(own, elf::SHT_SYMTAB, NameFile::Own);
    for (debug, nth) in debug.iter().zip(0..) {
        if functions.ranges.is_empty() {
            functions.add_symbols(*debug, elf::SHT_SYMTAB, NameFile::Debug(nth));
        }
    }
    let mut unpacked = ByteSource::Memory(Vec::new());
    if functions.ranges.is_empty()
        && let Some(packed) = unpack(own)
    {
        functions.add_symbols(packed.symbols(), elf::SHT_SYMTAB, NameFile::Unpacked);
        unpacked = packed.into_names();
    }
    if functions.ranges.is_empty() {
        functions.add_go(own);
    }
    functions.add_symbols(own, elf::SHT_DYNSYM, NameFile::Own);
    functions.add_linkage_tables(own);
    let labels = mem::take(&mut functions.labels);
    functions.add_uncovered(labels);
    let unwind = UnwindTable::read(own);
    if unwind.is_none() {
        let ranges = read_unwind_ranges(own).into_iter();
        functions.add_uncovered(
            ranges
                .map(|(start, len)| ReadRange::unnamed(start, len))
                .collect(),
        );
    }
    let layout = own.layout;
    let next_unnamed = |start| unwind.as_ref()?.next_start(start);
    functions.close_open_ends(|at| layout.segment_at(at).copied(), next_unnamed);
    Functions {
        unwind,
        unpacked,
        ..functions.table()
    }
}

impl ReadRange {
    fn unnamed(start: u64, len: u64) -> Self {
        Self {
            start,
            len: short(len),
            name: 0,
            table: UNNAMED,
            global: false,
        }
    }
}

impl Reading {
    fn add_symbols(&mut self, file: SymbolFile<'_>, kind: u32, names: NameFile) {
        // A file has one table of each kind at the most (ELF specification, `sh_type`).
        let Some(table) = file.layout.sections.iter().find(|s| s.kind == kind) else {
            return;
        };
        let strings = usize::try_from(table.link)
            .ok()
            .and_then(|idx| file.layout.sections.get(idx));
        let offset = |strings: &Section| match names {
            NameFile::Unpacked => FileOff(0),
            NameFile::Own | NameFile::Debug(_) => strings.offset,
        };
        let Some(names) = strings.and_then(|strings| self.add_names(names, offset(strings), "")) else {
            return;
        };
        match file.layout.class {
            ElfClass::X86_64 => self.add_table::<Sym64<LittleEndian>>(file, table, names),
            ElfClass::X86 | ElfClass::X32 => self.add_table::<Sym32<LittleEndian>>(file, table, names),
        }
        self.ranges.sort_by_key(|r| r.start);
    }

    /// Notes a table of names and returns its number; `None` if there are more than any real file has.
    fn add_names(&mut self, file: NameFile, strings: FileOff, suffix: &'static str) -> Option<u8> {
        let number = u8::try_from(self.names.len())
            .ok()
            .filter(|number| *number < UNNAMED)?;
        self.names.push(NameTable {
            file,
            offset: strings.0,
            suffix,
        });
        Some(number)
    }

    fn add_table<S: Sym<Endian = LittleEndian>>(&mut self, file: SymbolFile<'_>, table: &Section, names: u8) {
        let source = file.source;
        let entry = std::mem::size_of::<S>();
        let n_symbols = usize::try_from(table.len.min(source.len())).unwrap_or(usize::MAX) / entry;
        // Growing step by step would move the table from page to new page.
        self.ranges
            .reserve(n_symbols.min(MAX_SYMBOLS.saturating_sub(self.ranges.len())));
        let mut piece = vec![0; PIECE.min(n_symbols) * entry];
        for first in (0..n_symbols).step_by(PIECE) {
            let offset = u64::try_from(first * entry)
                .ok()
                .and_then(|bytes| table.offset.0.checked_add(bytes));
            let n = PIECE.min(n_symbols - first);
            piece.truncate(n * entry);
            if !offset.is_some_and(|offset| source.read_into(offset, &mut piece)) {
                return;
            }
            let Ok((symbols, _)) = pod::slice_from_bytes::<S>(&piece, n) else {
                return;
            };
            self.ranges
                .extend(symbols.iter().filter_map(|s| function_range(s, names)));
            self.labels
                .extend(symbols.iter().filter_map(|s| label(s, file.layout, names)));
            if MAX_SYMBOLS < self.ranges.len() + self.labels.len() {
                self.is_cut = true;
                return;
            }
        }
    }

    /// Adds the functions of a program that was written in Go.
    fn add_go(&mut self, own: SymbolFile<'_>) {
        let Some(go) = read_go_functions(own) else {
            return;
        };
        if let Some(table) = self.add_names(NameFile::Own, go.names, "") {
            self.ranges
                .extend(go.functions.into_iter().map(|function| ReadRange {
                    start: function.start,
                    len: function.len,
                    name: function.name,
                    table,
                    global: true,
                }));
            self.ranges.sort_by_key(|r| r.start);
        }
    }

    /// Adds the stubs of linkage tables. Each section is also one function with the name of the section, for what is
    /// not a stub, or leads nowhere that is known.
    fn add_linkage_tables(&mut self, own: SymbolFile<'_>) {
        let sections = &own.layout.sections;
        let is_table = |section: &&Section| {
            let in_memory = section.kind == elf::SHT_PROGBITS && 0 < section.start.0;
            let name = || own.layout.section_name(own.source, section);
            in_memory
                && section.len <= MAX_LINKAGE_TABLE
                && name().is_some_and(|name| name.starts_with(".plt"))
        };
        let tables: Vec<&Section> = sections
            .iter()
            .filter(is_table)
            .take(MAX_LINKAGE_TABLES)
            .collect();
        let names = own.layout.section_names;
        let names = names.and_then(|strings| self.add_names(NameFile::Own, strings, ""));
        let whole = tables.iter().zip(names.into_iter().cycle());
        self.ranges.extend(whole.map(|(section, table)| ReadRange {
            start: section.start.0,
            len: short(section.len),
            name: section.name,
            table,
            global: true,
        }));
        if let Some((strings, stubs)) = read_stubs(own, &tables)
            && let Some(table) = self.add_names(NameFile::Own, strings.offset, STUB_SUFFIX)
        {
            self.ranges.extend(stubs.into_iter().map(|stub| ReadRange {
                start: stub.start,
                len: stub.len,
                name: stub.name,
                table,
                global: true,
            }));
        }
        self.ranges.sort_by_key(|r| r.start);
    }

    /// Adds the ranges that no symbol covers.
    fn add_uncovered(&mut self, mut ranges: Vec<ReadRange>) {
        ranges.sort_by_key(|range| range.start);
        let n_symbols = self.ranges.len();
        let mut n_before = 0;
        self.ranges.reserve(ranges.len());
        for range in ranges {
            let start = range.start;
            let symbols = self.ranges.get(..n_symbols).unwrap_or(&[]);
            let later = symbols.iter().skip(n_before);
            n_before += later.take_while(|r| r.start <= start).count();
            let nearest = symbols.iter().take(n_before).rev().take(2);
            let covered = nearest
                .into_iter()
                .any(|r| r.start == start || start - r.start < u64::from(r.len));
            if !covered {
                self.ranges.push(range);
            }
        }
        self.ranges.sort_by_key(|r| r.start);
    }

    /// A function without a length ends where the next one starts, or with its segment.
    fn close_open_ends(
        &mut self,
        segment_at: impl Fn(ImageAddr) -> Option<Segment>,
        next_unnamed: impl Fn(u64) -> Option<u64>,
    ) {
        let mut next_start = u64::MAX;
        let mut after = u64::MAX;
        for range in self.ranges.iter_mut().rev() {
            if range.start != next_start {
                after = next_start;
                next_start = range.start;
            }
            if range.len == 0 {
                let segment = segment_at(ImageAddr(range.start));
                let end = segment
                    .map_or(range.start, |s| s.start.0.saturating_add(s.len))
                    .min(next_unnamed(range.start).unwrap_or(u64::MAX))
                    .min(after);
                range.len = short(end.saturating_sub(range.start));
            }
        }
        self.ranges.retain(|r| 0 < r.len);
    }

    /// The table of what was read: of the 4 GiB around the function in the middle. Code at a larger distance could not
    /// call itself (x86-64 psABI, section 3.5.1), so what is beyond was made up, and has no name.
    fn table(self) -> Functions {
        let middle = self.ranges.get(self.ranges.len() / 2);
        let lowest = middle.map_or(0, |range| range.start.saturating_sub(REACH));
        let n_below = self.ranges.partition_point(|range| range.start < lowest);
        let above = self.ranges.get(n_below..).unwrap_or_default();
        let first = above.first().map_or(0, |range| range.start);
        let mut ranges = Vec::with_capacity(above.len());
        ranges.extend(above.iter().map_while(|range| {
            Some(FunctionRange {
                start: u32::try_from(range.start - first).ok()?,
                len: range.len,
                name: range.name,
                table: range.table,
                global: range.global,
            })
        }));
        Functions {
            first,
            ranges,
            names: self.names,
            is_cut: self.is_cut,
            ..Functions::default()
        }
    }
}

fn function_range<S: Sym<Endian = LittleEndian>>(symbol: &S, table: u8) -> Option<ReadRange> {
    let le = LittleEndian;
    let is_function =
        matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC) && !symbol.is_undefined(le);
    let (start, len) = (symbol.st_value(le).into(), short(symbol.st_size(le).into()));
    let global = symbol.st_bind() != elf::STB_LOCAL;
    let range = ReadRange {
        start,
        len,
        name: symbol.st_name(le),
        table,
        global,
    };
    (is_function && 0 < start).then_some(range)
}

/// A label in a section of code, such as a function that was written in assembly has without `.type`.
fn label<S: Sym<Endian = LittleEndian>>(symbol: &S, layout: &ElfLayout, table: u8) -> Option<ReadRange> {
    let le = LittleEndian;
    let is_label = symbol.st_type() == elf::STT_NOTYPE && symbol.st_name(le) != 0;
    let section = layout.sections.get(usize::from(symbol.st_shndx(le)));
    let in_code = is_label && section.is_some_and(|section| section.executable);
    let start = symbol.st_value(le).into();
    (in_code && 0 < start).then(|| ReadRange {
        start,
        len: short(symbol.st_size(le).into()),
        name: symbol.st_name(le),
        table,
        global: symbol.st_bind() != elf::STB_LOCAL,
    })
}

fn short(len: u64) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::read_layout;
    use crate::made_elf::{MadeSection, made};

    fn range(start: u64, len: u32) -> ReadRange {
        ReadRange {
            start,
            len,
            name: 0,
            table: UNNAMED,
            global: false,
        }
    }

    fn at(functions: &Functions, at: u64) -> Option<(u64, u64)> {
        let none = ByteSource::Memory(Vec::new());
        functions
            .read_function_at(ImageAddr(at), &none, &[])
            .map(|s| (s.start.0, s.len))
    }

    #[test]
    fn functions_far_from_all_others_are_dropped() {
        let far = 1 << 40;
        let own = [far, far + 0x10, far + 0xffff_0000];
        let starts = [1, own[0], own[1], own[2], u64::MAX - 0x100];
        let reading = Reading {
            ranges: starts.map(|start| range(start, 0x10)).into(),
            ..Reading::default()
        };
        let functions = reading.table();
        let found: Vec<u64> = functions.starts().map(|start| start.0).collect();
        assert_eq!(found, own);
        assert_eq!(at(&functions, far + 0xffff_0008), Some((far + 0xffff_0000, 0x10)));
        assert_eq!(at(&functions, 8), None);
    }

    #[test]
    fn open_ends_reach_to_the_next_function() {
        let mut reading = Reading {
            ranges: vec![range(0x100, 0), range(0x100, 0), range(0x140, 0x10)],
            ..Reading::default()
        };
        reading.add_uncovered(vec![range(0x100, 0), range(0x144, 0), range(0x180, 0)]);
        let segment = Segment {
            offset: hbbp_model::addr::FileOff(0),
            start: ImageAddr(0),
            len: 0x1c0,
            executable: true,
        };
        reading.close_open_ends(|_| Some(segment), |_| None);
        let functions = reading.table();
        assert_eq!(at(&functions, 0x13f), Some((0x100, 0x40)));
        assert_eq!(at(&functions, 0x14f), Some((0x140, 0x10)));
        assert_eq!(at(&functions, 0x150), None, "padding");
        assert_eq!(at(&functions, 0x1bf), Some((0x180, 0x40)));
        assert_eq!(at(&functions, 0x1c0), None);
    }

    /// A function after more symbols than are functions in any file; labels are functions only where no function is.
    #[test]
    fn last_of_many_symbols_is_found() {
        let symbol = |kind: u8, section: u16, start: u64, len: u64| {
            let mut bytes = [0; 24];
            (bytes[0], bytes[4]) = (1, kind);
            bytes[6..8].copy_from_slice(&section.to_le_bytes());
            bytes[8..16].copy_from_slice(&start.to_le_bytes());
            bytes[16..].copy_from_slice(&len.to_le_bytes());
            bytes
        };
        let object = symbol(elf::STT_OBJECT, 1, 0x1000, 8);
        let mut table = object.repeat(MAX_SYMBOLS + PIECE);
        table.extend(symbol(elf::STT_NOTYPE, 1, 0x1010, 0));
        table.extend(symbol(elf::STT_FUNC, 1, 0x1000, 0x20));
        // A label of data, and one of code.
        table.extend(symbol(elf::STT_NOTYPE, 2, 0x1030, 0));
        table.extend(symbol(elf::STT_NOTYPE, 1, 0x1040, 0));
        let names = MadeSection::unmapped(".strtab", b"\0f\0".to_vec());
        let symbols = MadeSection {
            kind: elf::SHT_SYMTAB,
            link: 2,
            ..MadeSection::unmapped(".symtab", table)
        };
        let source = made(vec![MadeSection::code(0x1000, 0x80), names, symbols]);
        let layout = read_layout(&source).unwrap();
        let own = SymbolFile {
            source: &source,
            layout: &layout,
        };
        let functions = read_functions(own, &[]);
        let at = |at| {
            let found = functions.read_function_at(ImageAddr(at), &source, &[]);
            found.map(|symbol| (symbol.start.0, symbol.len))
        };
        assert_eq!([at(0x1008), at(0x1018)], [Some((0x1000, 0x20)); 2]);
        assert_eq!((at(0x1030), at(0x107f)), (None, Some((0x1040, 0x40))));
        assert!(!functions.is_cut());
    }
}
