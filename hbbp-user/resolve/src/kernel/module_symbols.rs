//! The functions of a kernel module that has just come, from the symbol table that the kernel keeps of it.
//!
//! /proc/kallsyms has them too, but the kernel prints all of its symbols before those of modules, which takes longer
//! than many a module lives.
//! The table is read while the kernel may be freeing it, so that nothing in it is believed without a check.

use std::collections::BTreeMap;

use hbbp_model::addr::{ImageAddr, Va};
use hbbp_model::record::{LoadedText, SymbolTable, TextPart};
use hbbp_model::snapshot::Symbol;

/// Bytes of an `Elf64_Sym`.
pub(super) const SYMBOL: usize = 24;
/// More than any module has.
pub(super) const MAX_SYMBOLS: u32 = 1 << 17;
/// Longest name with its end (include/linux/kallsyms.h, KSYM_NAME_LEN).
const MAX_NAME: u64 = 512;
/// Names of one module are shorter than this together.
const MAX_NAMES: u64 = 8 << 20;
const PAGE: u64 = 4096;
/// Types of symbols that code can have (ELF specification, ST_TYPE): none, as assembler functions have, or a function.
const NO_TYPE: u8 = 0;
const FUNCTION: u8 = 2;

/// A function as its table has it.
struct Entry {
    name: u32,
    is_function: bool,
    start: u64,
    len: u64,
}

/// The functions of a module, sorted by start, each up to the next at the most. `read` fills a buffer with kernel
/// memory from an address on and says whether it could.
pub(crate) fn read_module_symbols(
    module: &LoadedText,
    read: &mut dyn FnMut(Va, &mut [u8]) -> bool,
) -> Vec<Symbol> {
    let mut all: BTreeMap<u64, (bool, u64, String)> = BTreeMap::new();
    for table in &module.symbols {
        for (entry, name) in read_table(*table, &module.parts, read) {
            // Of several names, the first that is a function's.
            let known = all.get(&entry.start).map(|(is_function, ..)| *is_function);
            if known.is_none_or(|known| entry.is_function && !known) {
                all.insert(entry.start, (entry.is_function, entry.len, name));
            }
        }
    }
    let part_end = |at: u64| {
        let part = module.parts.iter().find(|part| holds(part, at));
        part.map_or(at, |part| part.start.0.saturating_add(part.len))
    };
    let starts: Vec<u64> = all.keys().copied().collect();
    let nexts = starts.into_iter().skip(1).chain(std::iter::once(u64::MAX));
    let functions = all.into_iter().zip(nexts).map(|((start, (_, len, name)), next)| {
        let longest = next.min(part_end(start)) - start;
        Symbol {
            start: ImageAddr(start),
            len: if len == 0 { longest } else { len.min(longest) },
            name,
        }
    });
    functions.collect()
}

fn holds(part: &TextPart, at: u64) -> bool {
    at.checked_sub(part.start.0).is_some_and(|from| from < part.len)
}

fn read_table(
    table: SymbolTable,
    parts: &[TextPart],
    read: &mut dyn FnMut(Va, &mut [u8]) -> bool,
) -> Vec<(Entry, String)> {
    let Some((symbols, n, names)) = located(table, read) else {
        return Vec::new();
    };
    if n == 0 || MAX_SYMBOLS < n {
        return Vec::new();
    }
    let mut bytes = vec![0; n as usize * SYMBOL];
    if !read(symbols, &mut bytes) {
        return Vec::new();
    }
    let entries = bytes
        .as_chunks::<SYMBOL>()
        .0
        .iter()
        .filter_map(|entry| parse_entry(entry, parts));
    let entries: Vec<Entry> = entries.collect();
    let first = entries.iter().map(|e| e.name).min().unwrap_or(0);
    let last = entries.iter().map(|e| e.name).max().unwrap_or(0);
    let Some(names) = names.checked_add(first.into()) else {
        return Vec::new();
    };
    let names = read_names(names, u64::from(last - first), read);
    let named = entries.into_iter().filter_map(|entry| {
        let name = names.get((entry.name - first) as usize..)?;
        let name = name.get(..name.iter().position(|b| *b == 0)?)?;
        let good = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
        let name = String::from_utf8(name.to_vec()).ok().filter(|_| good)?;
        Some((entry, name))
    });
    named.collect()
}

/// Addresses of the symbols and of their names, and the number of symbols.
fn located(table: SymbolTable, read: &mut dyn FnMut(Va, &mut [u8]) -> bool) -> Option<(Va, u32, Va)> {
    match table {
        SymbolTable::Of { symbols, n, names } => Some((symbols, n, names)),
        SymbolTable::At(at) => {
            let mut bytes = [0; SYMBOL];
            let (symbols, n, names) = read(at, &mut bytes).then(|| fields(&bytes))?;
            Some((Va(symbols), u32::try_from(n & 0xffff_ffff).ok()?, Va(names)))
        }
    }
}

/// Its three words: name, type and section; value; size.
pub(super) fn fields(bytes: &[u8; SYMBOL]) -> (u64, u64, u64) {
    let [
        a0,
        a1,
        a2,
        a3,
        a4,
        a5,
        a6,
        a7,
        b0,
        b1,
        b2,
        b3,
        b4,
        b5,
        b6,
        b7,
        c @ ..,
    ] = *bytes;
    let word = u64::from_le_bytes;
    (
        word([a0, a1, a2, a3, a4, a5, a6, a7]),
        word([b0, b1, b2, b3, b4, b5, b6, b7]),
        word(c),
    )
}

/// The kernel has replaced the value by the address (kernel/module/main.c, `simplify_symbols`).
fn parse_entry(bytes: &[u8; SYMBOL], parts: &[TextPart]) -> Option<Entry> {
    let (head, start, len) = fields(bytes);
    let [n0, n1, n2, n3, info, ..] = head.to_le_bytes();
    let kind = info & 0xf;
    let is_text = parts.iter().any(|part| holds(part, start)) && matches!(kind, NO_TYPE | FUNCTION);
    is_text.then_some(Entry {
        name: u32::from_le_bytes([n0, n1, n2, n3]),
        is_function: kind == FUNCTION,
        start,
        len,
    })
}

/// All names, the last of which starts at `last`; nothing may be mapped after it.
pub(super) fn read_names(names: Va, last: u64, read: &mut dyn FnMut(Va, &mut [u8]) -> bool) -> Vec<u8> {
    if MAX_NAMES < last {
        return Vec::new();
    }
    let to_page_end = PAGE - (names.0.wrapping_add(last)) % PAGE;
    for len in [last + MAX_NAME, last + to_page_end] {
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        if read(names, &mut bytes) {
            return bytes;
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: u64 = 0xffff_ffff_c000_0000;
    const TABLE: u64 = 0xffff_ffff_c010_0000;
    const NAMES: u64 = 0xffff_ffff_c020_0ff0;

    fn entry(name: u32, kind: u8, start: u64, len: u64) -> Vec<u8> {
        let mut bytes = name.to_le_bytes().to_vec();
        bytes.extend([kind, 0, 1, 0]);
        bytes.extend(start.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes
    }

    fn memory(table: &[u8], names: &[u8]) -> impl FnMut(Va, &mut [u8]) -> bool {
        let header = [TABLE.to_le_bytes(), 6u64.to_le_bytes(), NAMES.to_le_bytes()].concat();
        let parts = [(TABLE, table.to_vec()), (NAMES, names.to_vec()), (0x10, header)];
        move |at, out| {
            let found = parts.iter().find_map(|(start, bytes)| {
                let from = usize::try_from(at.0.checked_sub(*start)?).ok()?;
                bytes.get(from..from.checked_add(out.len())?)
            });
            found.is_some_and(|bytes| {
                out.copy_from_slice(bytes);
                true
            })
        }
    }

    #[test]
    fn functions_of_a_module() {
        let mut names = b"\0hello_k\0read\0b\xff".to_vec();
        names.resize(0x10, 0);
        let table = [
            entry(0, 0, 0, 0),
            entry(1, FUNCTION, TEXT + 0x20, 0),
            entry(9, FUNCTION, TEXT + 0x50, 0x10),
            entry(1, NO_TYPE, TEXT + 0x50, 0),
            entry(1, 1, TEXT + 0x60, 8),
            entry(1, FUNCTION, TEXT + 0x1000, 8),
        ];
        let module = LoadedText {
            name: "hello".to_owned(),
            gone: false,
            parts: vec![TextPart {
                start: Va(TEXT),
                len: 0x1000,
            }],
            symbols: vec![SymbolTable::At(Va(0x10))],
        };
        let symbols = read_module_symbols(&module, &mut memory(&table.concat(), &names));
        let found: Vec<_> = symbols
            .iter()
            .map(|s| (s.start.0 - TEXT, s.len, s.name.as_str()))
            .collect();
        assert_eq!(found, [(0x20, 0x30, "hello_k"), (0x50, 0x10, "read")]);
        assert!(read_module_symbols(&module, &mut |_, _| false).is_empty());
        let symbols = read_module_symbols(&module, &mut |_, out| {
            out.fill(0xff);
            true
        });
        assert!(symbols.is_empty());
    }

    #[test]
    fn functions_without_a_size_end_with_their_part() {
        let mut names = b"\0hello_k\0read\0".to_vec();
        names.resize(0x10, 0);
        let table = [
            entry(1, FUNCTION, TEXT + 0x20, 0),
            entry(9, FUNCTION, TEXT + 0x8000, 0),
        ]
        .concat();
        let part = |start, len| TextPart {
            start: Va(start),
            len,
        };
        let module = LoadedText {
            name: "hello".to_owned(),
            gone: false,
            parts: vec![part(TEXT, 0x1000), part(TEXT + 0x8000, 0x100)],
            symbols: vec![SymbolTable::Of {
                symbols: Va(TABLE),
                n: 2,
                names: Va(NAMES),
            }],
        };
        let symbols = read_module_symbols(&module, &mut memory(&table, &names));
        let found: Vec<_> = symbols.iter().map(|s| (s.start.0 - TEXT, s.len)).collect();
        assert_eq!(found, [(0x20, 0xfe0), (0x8000, 0x100)]);
    }
}
