//! Instructions of VEX that iced-x86 does not know, and those of AMX and of model-specific registers under EVEX.

use crate::evex::{EVEX, Evex};
use crate::modern::{Extension, Modern};
use crate::registers::Registers;
use crate::rewritten::{Bytes, Rewritten};

/// The first byte of VEX with three bytes; all instructions here have it.
pub(crate) const VEX: u8 = 0xc4;

/// The map of instructions that end in an immediate value of 32 bits.
const MAP_WITH_NUMBER: u8 = 7;

/// Instructions on tiles: mnemonic, extension, map, implied prefix and opcode, and prefix and opcode of the nearest one in map 2.
const TILES: [(&str, Extension, [u8; 3], [u8; 2]); 7] = [
    ("TDPBF8PS", Extension::AmxFp8, [5, 0, 0xfd], [2, 0x5c]),
    ("TDPHF8PS", Extension::AmxFp8, [5, 1, 0xfd], [2, 0x5c]),
    ("TDPHBF8PS", Extension::AmxFp8, [5, 2, 0xfd], [2, 0x5c]),
    ("TDPBHF8PS", Extension::AmxFp8, [5, 3, 0xfd], [2, 0x5c]),
    ("TMMULTF32PS", Extension::AmxTf32, [2, 1, 0x48], [2, 0x5c]),
    ("TILELOADDRST1", Extension::AmxMovrs, [2, 1, 0x4a], [1, 0x4b]),
    ("TILELOADDRS", Extension::AmxMovrs, [2, 3, 0x4a], [3, 0x4b]),
];

/// Instructions on a model-specific register whose number is an immediate value: mnemonic, extension, prefix and opcode.
const MODEL_SPECIFIC: [(&str, Extension, [u8; 2]); 4] = [
    ("WRMSRNS", Extension::MsrImm, [2, 0xf6]),
    ("RDMSR", Extension::MsrImm, [3, 0xf6]),
    ("UWRMSR", Extension::UserMsr, [2, 0xf8]),
    ("URDMSR", Extension::UserMsr, [3, 0xf8]),
];

/// Instructions that move a row of a tile to a vector: mnemonic, map, implied prefix and opcode.
const ROWS: [(&str, [u8; 3]); 12] = [
    ("TILEMOVROW", [2, 1, 0x4a]),
    ("TCVTROWD2PS", [2, 2, 0x4a]),
    ("TCVTROWPS2PHH", [2, 0, 0x6d]),
    ("TCVTROWPS2PHL", [2, 1, 0x6d]),
    ("TCVTROWPS2BF16L", [2, 2, 0x6d]),
    ("TCVTROWPS2BF16H", [2, 3, 0x6d]),
    ("TCVTROWPS2PHH", [3, 0, 0x07]),
    ("TILEMOVROW", [3, 1, 0x07]),
    ("TCVTROWD2PS", [3, 2, 0x07]),
    ("TCVTROWPS2BF16H", [3, 3, 0x07]),
    ("TCVTROWPS2BF16L", [3, 2, 0x77]),
    ("TCVTROWPS2PHL", [3, 3, 0x77]),
];

/// The mnemonics of all of them.
pub(crate) fn mnemonics() -> impl Iterator<Item = &'static str> {
    let of_tiles = TILES.iter().map(|(mnemonic, ..)| *mnemonic);
    let of_registers = MODEL_SPECIFIC.iter().map(|(mnemonic, ..)| *mnemonic);
    let of_rows = ROWS.iter().map(|(mnemonic, _)| *mnemonic);
    of_tiles.chain(of_registers).chain(of_rows)
}

/// Rewrites an instruction with VEX, to which `rest` begins, to one that iced-x86 knows.
pub(crate) fn rewritten(prefixes: &[u8], rest: &[u8]) -> Option<Rewritten> {
    let [VEX, p0, p1, opcode, tail @ ..] = rest else {
        return None;
    };
    let (map, implied) = (p0 & 0x1f, p1 & 3);
    if map == MAP_WITH_NUMBER {
        // No second source, no W, no length.
        let rex = 0x48 | !p0 >> 5 & 1;
        let is_defined = p1 & 0xfc == 0x78;
        return model_specific(implied, *opcode, tail)
            .filter(|_| is_defined)
            .map(|modern| moved(modern, prefixes, prefixes.len() + 4, rex, tail));
    }
    let (mnemonic, extension, _, [implied, opcode]) = TILES
        .iter()
        .find(|(_, _, wanted, _)| *wanted == [map, implied, *opcode] && p1 & 0x84 == 0)?;
    let modern = Modern::of(*extension).called(mnemonic);
    let head = Bytes::of(prefixes).and(&[VEX, p0 & 0xe0 | 2, p1 & 0xfc | implied, *opcode]);
    Some(Rewritten::new(modern, prefixes.len() + 4, head, tail))
}

/// The numbers of the registers; `rest` begins with VEX.
pub(crate) fn registers(rest: &[u8]) -> Registers {
    let [_, p0, p1, ..] = rest else {
        return Registers::default();
    };
    Registers {
        reg: (!p0 & 0x80) >> 4,
        base: (!p0 & 0x20) >> 2,
        index: (!p0 & 0x40) >> 3,
        second: (!p1 & 0x78) >> 3,
    }
}

/// Whether an instruction on a model-specific register has that register first.
pub(crate) fn has_number_first(mnemonic: Option<&str>, map: u8) -> bool {
    map == MAP_WITH_NUMBER && matches!(mnemonic, Some("WRMSRNS" | "UWRMSR"))
}

/// Whether an instruction under EVEX moves a row of a tile.
pub(crate) fn moves_row(evex: &Evex<'_>) -> bool {
    row(evex).is_some()
}

/// Rewrites those under EVEX.
pub(crate) fn under_evex(evex: &Evex<'_>) -> Option<Rewritten> {
    if evex.map() == MAP_WITH_NUMBER {
        let is_defined = evex.last() == 8 && evex.has_no_second() && !evex.is_wide();
        let rex = 0x48 | evex.rex() & 1;
        return model_specific(evex.implied(), evex.opcode, evex.tail)
            .filter(|_| is_defined)
            .map(|modern| moved(modern, evex.prefixes, evex.head(), rex, evex.tail));
    }
    let modern = Modern::of(Extension::AmxAvx512).called(row(evex)?);
    let [p0, _, p2] = evex.payload;
    // VMOVDQA32 and VPERMILPS, with 512 bits and without a second source.
    let nearest: [u8; 5] = if evex.map() == 2 {
        [EVEX, p0 & 0xf0 | 1, 0x7d, p2 | 8, 0x6f]
    } else {
        [EVEX, p0 & 0xf0 | 3, 0x7d, p2 | 8, 0x04]
    };
    let head = Bytes::of(evex.prefixes).and(&nearest);
    Some(Rewritten::new(modern, evex.head(), head, evex.tail))
}

fn row(evex: &Evex<'_>) -> Option<&'static str> {
    let key = [evex.map(), evex.implied(), evex.opcode];
    let (mnemonic, _) = ROWS.iter().find(|(_, wanted)| *wanted == key)?;
    let has_row = evex.map() == 2 || evex.has_no_second();
    // 512 bits, neither zeroing, broadcast nor a mask; eight tiles.
    let is_plain = evex.last() & 0xf7 == 0x40 && !evex.is_wide() && evex.payload[0] & 0x68 == 0x60;
    (is_plain && has_row && evex.has_register()).then_some(*mnemonic)
}

fn model_specific(implied: u8, opcode: u8, tail: &[u8]) -> Option<Modern> {
    let is_register = tail
        .first()
        .is_some_and(|modrm| 0xc0 <= *modrm && modrm & 0x38 == 0);
    let (mnemonic, extension, _) = MODEL_SPECIFIC
        .iter()
        .find(|(_, _, wanted)| *wanted == [implied, opcode] && is_register)?;
    Some(Modern::of(*extension).called(mnemonic))
}

/// A move of the immediate value to the register.
fn moved(modern: Modern, prefixes: &[u8], head: usize, rex: u8, tail: &[u8]) -> Rewritten {
    let new = Bytes::of(prefixes).and(&[rex, 0xc7]);
    Rewritten::new(modern, head, new, tail)
}
