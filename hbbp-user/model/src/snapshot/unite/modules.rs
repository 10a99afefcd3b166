//! Which modules of two profiles are the same.
//!
//! The kernel, its modules and files with a build id are known by name and build id: their text may have been patched, and
//! then it has versions. Of anything else (memory, trampolines, BPF programs, files without a build id) the same name says
//! little: it is the same only where the text that is known of both agrees.

use std::collections::HashMap;

use crate::snapshot::{Module, ModuleIdx, ModuleKind, Snapshot, Symbol, Text};

type Key<'a> = (&'a str, ModuleKind, &'a [u8]);

fn key(module: &Module) -> Key<'_> {
    (&module.name, module.kind, &module.build_id)
}

/// Adds the modules of the next profile with their symbols, and returns the index that each has now. `text` is that of the
/// next profile.
pub(super) fn unite(all: &mut Snapshot, next: Vec<Module>, text: &[Text]) -> Vec<ModuleIdx> {
    let known = by_key(&all.modules);
    let anew = by_key(&next);
    let same: Vec<Option<ModuleIdx>> = (0..)
        .map(ModuleIdx)
        .zip(&next)
        .map(|(idx, module)| {
            let unique = anew.get(&key(module)).copied().flatten();
            let same = known
                .get(&key(module))
                .copied()
                .flatten()
                .filter(|_| unique.is_some())?;
            (is_known_by_name(module) || agrees(of(&all.text, same), of(text, idx))).then_some(same)
        })
        .collect();
    let mut became = Vec::with_capacity(next.len());
    for (module, same) in next.into_iter().zip(same) {
        match same.and_then(|same| Some((same, all.modules.get_mut(same.0 as usize)?))) {
            Some((idx, known)) => {
                add_symbols(&mut known.symbols, module.symbols);
                became.push(idx);
            }
            None => {
                became.push(ModuleIdx(u32::try_from(all.modules.len()).unwrap_or(u32::MAX)));
                all.modules.push(module);
            }
        }
    }
    became
}

/// The module of each key; `None` if several have it.
fn by_key(modules: &[Module]) -> HashMap<Key<'_>, Option<ModuleIdx>> {
    let mut by_key = HashMap::new();
    for (idx, module) in (0..).map(ModuleIdx).zip(modules) {
        by_key
            .entry(key(module))
            .and_modify(|only| *only = None)
            .or_insert(Some(idx));
    }
    by_key
}

fn is_known_by_name(module: &Module) -> bool {
    match module.kind {
        ModuleKind::Kernel => true,
        ModuleKind::KernelModule | ModuleKind::Elf64 | ModuleKind::Elf32 | ModuleKind::Vdso => {
            !module.build_id.is_empty()
        }
        ModuleKind::Bpf | ModuleKind::Trampoline | ModuleKind::Anonymous => false,
    }
}

/// The text of a module.
fn of(text: &[Text], module: ModuleIdx) -> &[Text] {
    let start = text.partition_point(|it| it.module < module);
    let end = text.partition_point(|it| it.module <= module);
    text.get(start..end).unwrap_or(&[])
}

/// Whether no byte differs where both know one. Text with several versions agrees with nothing: which one holds now cannot
/// be distinguished from the bytes.
fn agrees(a: &[Text], b: &[Text]) -> bool {
    let has_versions = |text: &[Text]| {
        text.windows(2)
            .any(|pair| matches!(pair, [a, b] if a.start == b.start))
    };
    if has_versions(a) || has_versions(b) {
        return false;
    }
    let end = |text: &Text| text.start.0.saturating_add(text.bytes.len() as u64);
    b.iter().all(|text| {
        let first = a.partition_point(|it| end(it) <= text.start.0);
        let overlapping = a.iter().skip(first).take_while(|it| it.start.0 < end(text));
        overlapping.into_iter().all(|it| {
            let from = it.start.max(text.start);
            let until = end(it).min(end(text));
            part(it, from.0, until) == part(text, from.0, until)
        })
    })
}

/// The bytes of a text range between two of its addresses.
fn part(text: &Text, from: u64, until: u64) -> Option<&[u8]> {
    let offset = |at: u64| usize::try_from(at.checked_sub(text.start.0)?).ok();
    text.bytes.get(offset(from)?..offset(until)?)
}

/// Adds the symbols that are not there yet.
fn add_symbols(all: &mut Vec<Symbol>, mut next: Vec<Symbol>) {
    next.retain(|symbol| {
        let at = all.partition_point(|it| it.start < symbol.start);
        let mut there = all.iter().skip(at).take_while(|it| it.start == symbol.start);
        !there.any(|it| it.len == symbol.len)
    });
    if !next.is_empty() {
        all.append(&mut next);
        all.sort_by_key(|symbol| symbol.start);
    }
}
