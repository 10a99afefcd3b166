//! The stubs of linkage tables (`.plt`, `.plt.sec`, `.plt.got`): each jumps through a slot of the global offset table, and
//! the relocation of that slot names the function (x86-64 psABI, section 5.2).

use std::collections::HashMap;

use object::LittleEndian;
use object::elf::{self, Rela64};

use hbbp_model::addr::ImageAddr;

use super::layout::{ElfClass, Section, SymbolFile, read_table};

/// The largest browsers have some thousand stubs.
const MAX_STUBS: usize = 1 << 16;
/// Linkers write `.plt`, `.plt.sec`, `.plt.got` and `.plt.bnd`, each of them no longer than its stubs.
pub(super) const MAX_LINKAGE_TABLES: usize = 8;
pub(super) const MAX_LINKAGE_TABLE: u64 = 4 << 20;
/// Relocations of all tables together; those of a program in memory are two, `.rela.dyn` and `.rela.plt`.
const MAX_RELOCATIONS: usize = 2 << 20;
const MAX_RELOCATION_TABLES: usize = 4;

/// Stubs are aligned to, and none is shorter than, as many bytes.
const STEP: usize = 8;

/// Size and offset of `st_name` in an entry of a symbol table of 64 bits.
const SYMBOL: u64 = 24;

/// A stub of a linkage table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stub {
    /// First byte.
    pub(super) start: u64,
    /// Length in bytes.
    pub(super) len: u32,
    /// Offset of the function's name in the strings of the dynamic symbols.
    pub(super) name: u32,
}

/// Reads the stubs of a file whose function is known, and finds the names; none of files of 32 bits, whose stubs have
/// other forms.
pub(super) fn read_stubs<'a>(own: SymbolFile<'a>, tables: &[&Section]) -> Option<(&'a Section, Vec<Stub>)> {
    if own.layout.class != ElfClass::X86_64 || tables.is_empty() {
        return None;
    }
    let sections = &own.layout.sections;
    let dynamic = sections.iter().find(|section| section.kind == elf::SHT_DYNSYM)?;
    let strings = sections.get(usize::try_from(dynamic.link).ok()?)?;
    let slots = read_slots(own);
    let mut stubs = Vec::new();
    for table in tables {
        let Some(code) = own.source.read(table.offset.0, table.len) else {
            continue;
        };
        for (start, len, slot) in parse_stubs(table.start, &code) {
            let Some(symbol) = slots.get(&slot).filter(|_| stubs.len() < MAX_STUBS) else {
                continue;
            };
            let mut name = [0; 4];
            let offset = u64::from(*symbol).checked_mul(SYMBOL)?;
            let inside = offset < dynamic.len;
            if inside
                && own
                    .source
                    .read_into(dynamic.offset.0.checked_add(offset)?, &mut name)
            {
                let name = u32::from_le_bytes(name);
                stubs.push(Stub { start, len, name });
            }
        }
    }
    Some((strings, stubs))
}

/// The symbol of each slot of the global offset table that a relocation fills with the address of a function.
fn read_slots(own: SymbolFile<'_>) -> HashMap<u64, u32> {
    let mut slots = HashMap::new();
    let le = LittleEndian;
    let mut left = MAX_RELOCATIONS;
    let in_memory = |section: &&Section| section.kind == elf::SHT_RELA && 0 < section.start.0;
    let sections = own.layout.sections.iter().filter(in_memory);
    for section in sections.take(MAX_RELOCATION_TABLES) {
        let n = usize::try_from(section.len.min(own.source.len())).unwrap_or(usize::MAX)
            / size_of::<Rela64<LittleEndian>>();
        let n = n.min(left);
        left -= n;
        let table = read_table::<Rela64<LittleEndian>>(own.source, section.offset.0, n);
        for relocation in table.iter().flatten() {
            let kind = relocation.r_type(le, false);
            if matches!(kind, elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT) {
                slots.insert(relocation.r_offset.get(le), relocation.r_sym(le, false));
            }
        }
    }
    slots
}

/// The stubs in the code of a linkage table: start, length, and the slot that each jumps through.
fn parse_stubs(start: ImageAddr, code: &[u8]) -> Vec<(u64, u32, u64)> {
    let mut found: Vec<(usize, u64)> = Vec::new();
    for at in (0..code.len()).step_by(STEP) {
        let slot = code.get(at..).and_then(jump_through).and_then(|(len, distance)| {
            let next = start.0.checked_add(u64::try_from(at + len).ok()?)?;
            Some(next.wrapping_add_signed(distance.into()))
        });
        found.extend(slot.map(|slot| (at, slot)));
    }
    let ends = found.iter().skip(1).map(|(at, _)| *at).chain([code.len()]);
    let stubs = found.iter().zip(ends).map(|(&(at, slot), end)| {
        let len = u32::try_from((end - at).min(2 * STEP)).unwrap_or(0);
        (start.0.wrapping_add(at as u64), len, slot)
    });
    stubs.collect()
}

/// The length up to the end of the jump that this code begins with, and the distance to its slot: `jmp *slot(%rip)`, with
/// `endbr64` and the prefix `bnd` where the linker writes them.
fn jump_through(code: &[u8]) -> Option<(usize, i32)> {
    const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    const BND: &[u8] = &[0xf2];
    const JUMP: &[u8] = &[0xff, 0x25];

    let remainder = code.strip_prefix(ENDBR64).unwrap_or(code);
    let remainder = remainder.strip_prefix(BND).unwrap_or(remainder);
    let (distance, after) = remainder.strip_prefix(JUMP)?.split_first_chunk::<4>()?;
    Some((code.len() - after.len(), i32::from_le_bytes(*distance)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stubs_of_all_linkers() {
        // objdump -d of programs of gcc 12 (lazy, with and without IBT) and of their .plt.got.
        let lazy = [
            0xff, 0x35, 0xca, 0x2f, 0, 0, 0xff, 0x25, 0xcc, 0x2f, 0, 0, 0x0f, 0x1f, 0x40, 0, // PLT0
            0xff, 0x25, 0xca, 0x2f, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0xe0, 0xff, 0xff, 0xff, 0xff, 0x25, 0xc2,
            0x2f, 0, 0, 0x68, 1, 0, 0, 0, 0xe9, 0xd0, 0xff, 0xff, 0xff,
        ];
        let slots = [(0x1030, 16, 0x1036 + 0x2fca), (0x1040, 16, 0x1046 + 0x2fc2)];
        let found = parse_stubs(ImageAddr(0x1020), &lazy);
        assert_eq!(found, slots.map(|(start, len, slot)| (start, len, slot)));
        let ibt = [
            0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x10, 0, 0, 0, 0x0f, 0x1f, 0x44, 0, 0,
        ];
        assert_eq!(parse_stubs(ImageAddr(0x1000), &ibt), [(0x1000, 16, 0x101b)]);
        let got = [
            0xff, 0x25, 0x0a, 0, 0, 0, 0x66, 0x90, 0xff, 0x25, 0x0a, 0, 0, 0, 0x66, 0x90,
        ];
        assert_eq!(
            parse_stubs(ImageAddr(0x1000), &got),
            [(0x1000, 8, 0x1010), (0x1008, 8, 0x1018)]
        );
        assert_eq!(parse_stubs(ImageAddr(u64::MAX - 3), &got).len(), 0);
        assert_eq!(parse_stubs(ImageAddr(0), &[0xff, 0x25, 1]).len(), 0);
    }
}
