//! The symbols of the modules that are loaded, from the kernel's list of modules in its memory: what it prints of them in
//! /proc/kallsyms, in the same order (kernel/module/kallsyms.c, `module_get_kallsym`).
//!
//! It counts only if the modules are those of /proc/modules.

use std::collections::BTreeSet;

use super::kallsyms_line::Line;
use super::kernel_list::{ListShape, walk_list};
use super::module_symbols::{MAX_SYMBOLS, SYMBOL, fields, read_names};
use hbbp_model::addr::Va;
use hbbp_model::record::{ListedModule, ModuleLayout};

/// More than any machine loads.
const MAX_MODULES: usize = 4096;
/// More than any module exports.
const MAX_EXPORTED: u32 = 1 << 15;
/// Bytes of a `struct kernel_symbol`: distances from each field to the symbol, to its name, and to its namespace.
const EXPORTED: usize = 12;

type Read<'a> = &'a mut dyn FnMut(Va, &mut [u8]) -> bool;

/// Hands over the symbols of all modules in the list that starts at `head`; `None` if the list or a table cannot be read or
/// the modules are not the `expected` ones.
pub(super) fn read_module_list(
    head: Va,
    layout: &ModuleLayout,
    expected: &[&str],
    read: Read<'_>,
    take: &mut dyn FnMut(&Line<'_>),
) -> Option<()> {
    let mut expected = expected.iter();
    let shape = ListShape {
        head,
        size: layout.size,
        links: layout.list?.links,
        most: MAX_MODULES,
    };
    for module in walk_list(shape, read, |bytes| layout.parse_listed(bytes))? {
        let Some(name) = &module.name else { continue };
        if expected.next() != Some(&name.as_str()) {
            return None;
        }
        read_symbols(&module, name, read, take)?;
    }
    expected.next().is_none().then_some(())
}

/// The symbols of a module: capital types are those that it exports to all.
fn read_symbols(
    module: &ListedModule,
    tag: &str,
    read: Read<'_>,
    take: &mut dyn FnMut(&Line<'_>),
) -> Option<()> {
    let mut tables = [0; 32];
    let tables = read(module.tables, &mut tables).then(|| {
        let words: Vec<u64> = tables
            .as_chunks()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word))
            .collect();
        words
    })?;
    let &[symbols, n, names, types] = tables.as_slice() else {
        return None;
    };
    let n = u32::try_from(n & 0xffff_ffff)
        .ok()
        .filter(|n| *n <= MAX_SYMBOLS)? as usize;
    let mut copy = vec![0; n * SYMBOL];
    let mut kinds = vec![0; n];
    if n == 0 || !read(Va(symbols), &mut copy) || !read(Va(types), &mut kinds) {
        return (n == 0).then_some(());
    }
    let entries = copy.as_chunks::<SYMBOL>().0.iter().map(|entry| {
        let (head, address, _) = fields(entry);
        (head & 0xffff_ffff, address)
    });
    let last = entries.clone().map(|(name, _)| name).max().unwrap_or(0);
    let names = read_names(Va(names), last, read);
    let (table, n_exported) = module.exported;
    let exported = read_exported(table, n_exported, read)?;
    for ((name, address), kind) in entries.zip(kinds) {
        let name = visible(names.get(usize::try_from(name).ok()?..)?)?;
        if name.is_empty() || !kind.is_ascii_alphabetic() {
            continue;
        }
        let mut at_address = exported
            .range((address, String::new())..)
            .take_while(|it| it.0 == address);
        let kind = if at_address.any(|it| it.1 == name) {
            kind.to_ascii_uppercase()
        } else {
            kind.to_ascii_lowercase()
        };
        take(&Line {
            address,
            size: None,
            kind,
            name,
            tag: Some(tag),
        });
    }
    Some(())
}

/// Addresses and names of the symbols that a module exports to all.
fn read_exported(table: Va, n: u32, read: Read<'_>) -> Option<BTreeSet<(u64, String)>> {
    if n == 0 || MAX_EXPORTED < n {
        return (n == 0).then(BTreeSet::new);
    }
    let mut bytes = vec![0; n as usize * EXPORTED];
    let bytes = read(table, &mut bytes).then_some(bytes)?;
    let entries = bytes
        .as_chunks::<EXPORTED>()
        .0
        .iter()
        .zip((table.0..).step_by(EXPORTED));
    let entries = entries.map(|([a0, a1, a2, a3, n0, n1, n2, n3, ..], at)| {
        let to = |at: u64, distance: [u8; 4]| at.wrapping_add_signed(i32::from_le_bytes(distance).into());
        (
            to(at, [*a0, *a1, *a2, *a3]),
            to(at.wrapping_add(4), [*n0, *n1, *n2, *n3]),
        )
    });
    let first = entries.clone().map(|(_, name)| name).min()?;
    let last = entries.clone().map(|(_, name)| name).max()?;
    let names = read_names(Va(first), last - first, read);
    let named = entries.map(|(address, name)| {
        let name = names.get(usize::try_from(name - first).ok()?..)?;
        Some((address, visible(name)?.to_owned()))
    });
    named.collect()
}

/// The text up to a zero, of visible characters.
pub(super) fn visible(bytes: &[u8]) -> Option<&str> {
    let text = bytes.get(..bytes.iter().position(|b| *b == 0)?)?;
    str::from_utf8(text)
        .ok()
        .filter(|_| text.iter().all(u8::is_ascii_graphic))
}

#[cfg(test)]
mod tests;
