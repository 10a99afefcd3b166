//! Instructions of the first three opcode maps under EVEX, which are in its map 4 (APX specification, chapter 5).

mod names;

use crate::decorations::Decorations;
use crate::evex::Evex;
use crate::modern::Modern;
use crate::rewritten::{Bytes, Rewritten};
pub(crate) use names::{BY_CONDITION, MNEMONICS};
use names::{CCMP, CFCMOV, CTEST, SETZU, of_reading};

/// The map of EVEX that has them.
pub(crate) const MAP: u8 = 4;

/// The opcode maps of instructions without EVEX: one byte, 0x0f, 0x0f 0x38.
#[derive(Clone, Copy)]
enum Map {
    One,
    Two,
    Three,
}

/// An instruction without EVEX.
#[derive(Clone, Copy)]
struct Older {
    /// A prefix that belongs to the opcode, other than that of the operand size.
    prefix: Option<u8>,
    map: Map,
    opcode: u8,
    mnemonic: Option<&'static str>,
    /// Whether it is a comparison with an immediate value instead of an instruction whose result goes elsewhere: it reads what
    /// that one reads, and writes nothing.
    only_reads: bool,
}

impl Older {
    const fn one(opcode: u8) -> Self {
        Self {
            prefix: None,
            map: Map::One,
            opcode,
            mnemonic: None,
            only_reads: false,
        }
    }

    const fn two(opcode: u8) -> Self {
        Self {
            map: Map::Two,
            ..Self::one(opcode)
        }
    }

    const fn three(opcode: u8) -> Self {
        Self {
            map: Map::Three,
            ..Self::one(opcode)
        }
    }

    const fn with(self, prefix: u8) -> Self {
        Self {
            prefix: Some(prefix),
            ..self
        }
    }

    const fn called(self, mnemonic: &'static str) -> Self {
        Self {
            mnemonic: Some(mnemonic),
            ..self
        }
    }
}

/// Rewrites an instruction of map 4 to one without EVEX.
pub(crate) fn rewritten(evex: &Evex<'_>) -> Option<Rewritten> {
    let mut older = older(evex)?;
    if has_new_destination(evex) && !evex.has_register() {
        older = reading(evex, older);
    }
    let head = head(evex, older);
    let modern = modern(evex, older);
    if !older.only_reads {
        return Some(Rewritten::new(modern, evex.head(), head, evex.tail));
    }
    // ModRM.reg of CMP is 7.
    let (modrm, tail) = evex.tail.split_first()?;
    let head = head.and(&[modrm | 7 << 3]);
    let rewritten = Rewritten::new(modern, evex.head() + 1, head, tail);
    Some(if has_immediate_byte(evex.opcode) {
        rewritten
    } else {
        rewritten.with_added_byte()
    })
}

/// The same, to one whose operands are those without the new destination.
pub(crate) fn with_operands(evex: &Evex<'_>) -> Option<Rewritten> {
    let older = older(evex)?;
    let head = head(evex, older);
    Some(Rewritten::new(modern(evex, older), evex.head(), head, evex.tail))
}

/// What the text of an instruction has in addition to its operands.
pub(crate) fn decorations(evex: &Evex<'_>) -> Decorations {
    let is_conditional = conditional(evex).is_some();
    let is_move = matches!(evex.opcode, 0x40..=0x4f);
    let is_stack = matches!(evex.opcode, 0x8f | 0xff) && has_second(evex);
    Decorations {
        has_second: has_new_destination(evex) && !is_conditional || is_stack,
        default_flags: is_conditional.then_some(evex.payload[1] >> 3 & 0xf),
        leaves_flags: evex.has_no_flags() && !is_conditional && !is_move,
        ..Decorations::default()
    }
}

/// What differs between an instruction and the one without EVEX.
fn modern(evex: &Evex<'_>, older: Older) -> Modern {
    Modern {
        mnemonic: older.mnemonic,
        has_new_destination: has_new_destination(evex),
        ..Modern::APX
    }
}

fn has_new_destination(evex: &Evex<'_>) -> bool {
    evex.has_new_destination() && writes_elsewhere(evex)
}

/// The bytes up to the opcode of the instruction without EVEX.
fn head(evex: &Evex<'_>, older: Older) -> Bytes {
    let size: &[u8] = if evex.implied() == 1 && older.prefix != Some(0x66) {
        &[0x66]
    } else {
        &[]
    };
    let escape: &[u8] = match older.map {
        Map::One => &[],
        Map::Two => &[0x0f],
        Map::Three => &[0x0f, 0x38],
    };
    // The registers of URDMSR and UWRMSR have 64 bits.
    let w = u8::from(evex.opcode == 0xf8 && evex.has_register()) << 3;
    Bytes::of(evex.prefixes)
        .and(size)
        .and(older.prefix.as_slice())
        .and(&[evex.rex() | w])
        .and(escape)
        .and(&[older.opcode])
}

/// Whether bit 4 of the payload means a new destination; in others it makes the upper half zero, or names another
/// instruction.
fn writes_elsewhere(evex: &Evex<'_>) -> bool {
    match evex.opcode {
        0x40..=0x4f => evex.implied() < 2,
        0x69 | 0x6b | 0x8f => false,
        0xff => evex.reg() != 6,
        _ => true,
    }
}

/// The same instruction in a form that reads its operand in memory and does not write it.
fn reading(evex: &Evex<'_>, older: Older) -> Older {
    match (older.map, evex.opcode) {
        // From memory to the register.
        (Map::One, 0x00..=0x33) => Older {
            opcode: older.opcode | 2,
            ..older
        },
        // These have the register as destination already.
        (_, 0x40..=0x4f | 0x66 | 0xaf) => older,
        _ => {
            let is_byte = older.opcode & 1 == 0 && matches!(older.map, Map::One);
            let opcode = match evex.opcode {
                0x81 => 0x81,
                _ if is_byte && evex.opcode != 0x83 => 0x80,
                _ => 0x83,
            };
            Older {
                only_reads: true,
                mnemonic: of_reading(evex),
                ..Older::one(opcode)
            }
        }
    }
}

/// Whether it ends in an immediate value of the size that a comparison has as well.
const fn has_immediate_byte(opcode: u8) -> bool {
    matches!(opcode, 0x24 | 0x2c | 0x80 | 0x81 | 0x83 | 0xc0 | 0xc1)
}

/// The instruction without EVEX that does the same, or nearly so; `None` where there is no instruction.
fn older(evex: &Evex<'_>) -> Option<Older> {
    if let Some(compare) = conditional(evex) {
        return compare;
    }
    let has_size = evex.implied() < 2;
    let older = with_prefix(evex).or_else(|| with_size(evex).filter(|_| has_size))?;
    // Without a new destination the field of its register is not used.
    let (new_destination, no_flags) = (evex.has_new_destination(), evex.has_no_flags());
    let is_plain = evex.last() & 0xe3 == 0 && (has_second(evex) || evex.has_no_second());
    let may_leave_flags = has_size && leaves_flags(evex.opcode);
    let may_have_new = match evex.opcode {
        0x40..=0x4f => evex.implied() != 2,
        0x66 => evex.implied() != 0,
        _ => has_size && has_new_form(evex),
    };
    let is_sized = evex.implied() == 1 && has_no_size(evex);
    let is_defined = is_plain && !is_sized && (may_leave_flags || !no_flags);
    (is_defined && (may_have_new || !new_destination)).then_some(older)
}

/// Whether the field of the second source has a register.
fn has_second(evex: &Evex<'_>) -> bool {
    evex.has_new_destination() && (writes_elsewhere(evex) || matches!(evex.opcode, 0x8f | 0xff))
}

/// Of an instruction whose implied prefix is part of the opcode.
fn with_prefix(evex: &Evex<'_>) -> Option<Older> {
    let (opcode, implied, is_register) = (evex.opcode, evex.implied(), evex.has_register());
    let condition = usize::from(opcode & 0xf);
    let older = match (opcode, implied) {
        (0x40..=0x4f, 3) if evex.has_no_flags() => return None,
        (0x40..=0x4f, 3) if evex.has_new_destination() => {
            Older::two(0x50 + opcode).called(SETZU.get(condition)?)
        }
        (0x40..=0x4f, 3) => Older::two(0x50 + opcode),
        (0x65, 1) => Older::three(0xf5).with(0x66),
        (0x66, 0) => Older::three(0xf6),
        (0x66, 1) => Older::three(0xf6).with(0x66),
        (0x66, 2) => Older::three(0xf6).with(0xf3),
        (0xf0..=0xf2, 2) if !is_register => Older::three(opcode - 0x70).with(0x66),
        (0xf8, 1) if !is_register => Older::three(opcode).with(0x66),
        (0xf8, 2) if !is_register => Older::three(opcode).with(0xf3),
        (0xf8, 3) if !is_register => Older::three(opcode).with(0xf2),
        (0xf8, 2) => Older::one(0x8b).called("UWRMSR"),
        (0xf8, 3) => Older::one(0x89).called("URDMSR"),
        (0xf9, 0) if !is_register => Older::three(opcode),
        (0xfc, 0) if !is_register => Older::three(opcode),
        (0xfc, 1) if !is_register => Older::three(opcode).with(0x66),
        (0xfc, 2) if !is_register => Older::three(opcode).with(0xf3),
        (0xfc, _) if !is_register => Older::three(opcode).with(0xf2),
        _ => return None,
    };
    Some(older)
}

/// Of an instruction whose implied prefix is the operand size.
fn with_size(evex: &Evex<'_>) -> Option<Older> {
    let (opcode, reg, is_register) = (evex.opcode, evex.reg(), evex.has_register());
    let condition = usize::from(opcode & 0xf);
    let (new_destination, no_flags) = (evex.has_new_destination(), evex.has_no_flags());
    let is_pair = new_destination && is_register && (evex.implied() == 0 || evex.is_wide());
    let older = match opcode {
        0x10..=0x13 | 0x18..=0x1b if no_flags => return None,
        0x00..=0x03 | 0x08..=0x0b | 0x10..=0x13 | 0x18..=0x1b => Older::one(opcode),
        0x20..=0x23 | 0x28..=0x2b | 0x30..=0x33 => Older::one(opcode),
        0x24 => Older::two(0xa4),
        0x2c => Older::two(0xac),
        0xa5 | 0xad | 0xaf => Older::two(opcode),
        0x40..=0x4f => match (new_destination, no_flags) {
            (true, false) => Older::two(opcode),
            (false, true) => Older::one(0x89).called(CFCMOV.get(condition)?),
            _ => Older::two(opcode).called(CFCMOV.get(condition)?),
        },
        0x60 if is_register => Older::one(0x8b).called("MOVBE"),
        0x61 if is_register => Older::one(0x89).called("MOVBE"),
        0x60 | 0x61 => Older::three(0x90 + opcode),
        0x69 | 0x6b if new_destination => Older::one(opcode).called("IMULZU"),
        0x80 | 0x81 | 0x83 if no_flags && matches!(reg, 2 | 3) => return None,
        0x69 | 0x6b | 0x80 | 0x81 | 0x83 => Older::one(opcode),
        0x88 => Older::two(0xb8).with(0xf3),
        0x8a | 0x8b if !is_register => Older::one(opcode).called("MOVRS"),
        0x8f if reg == 0 && is_pair => {
            Older::one(opcode).called(if evex.is_wide() { "POP2P" } else { "POP2" })
        }
        0xc0 | 0xc1 | 0xd0..=0xd3 if no_flags && matches!(reg, 2 | 3) || reg == 6 => return None,
        0xc0 | 0xc1 | 0xd0..=0xd3 => Older::one(opcode),
        0xf0 | 0xf1 => Older::three(opcode).with(0xf2),
        0xf4 => Older::two(0xbc).with(0xf3),
        0xf5 => Older::two(0xbd).with(0xf3),
        0xf6 | 0xf7 if reg == 1 || reg == 2 && no_flags => return None,
        0xf6 | 0xf7 => Older::one(opcode),
        0xfe | 0xff if reg < 2 => Older::one(opcode),
        0xff if reg == 6 && is_pair => {
            Older::one(opcode).called(if evex.is_wide() { "PUSH2P" } else { "PUSH2" })
        }
        _ => return None,
    };
    Some(older)
}

/// CCMP and CTEST, which compare if a condition of the flags holds; the outer `None` is for other opcodes.
fn conditional(evex: &Evex<'_>) -> Option<Option<Older>> {
    let names = match (evex.opcode, evex.reg()) {
        (0x38..=0x3b, _) | (0x80 | 0x81 | 0x83, 7) => &CCMP,
        (0x84 | 0x85, _) | (0xf6 | 0xf7, 0) => &CTEST,
        _ => return None,
    };
    let is_sized = evex.implied() == 1 && has_no_size(evex);
    let is_defined = evex.last() & 0xf0 == 0 && evex.implied() < 2 && !is_sized;
    let name = names.get(usize::from(evex.last() & 0xf)).filter(|_| is_defined);
    Some(name.map(|name| Older::one(evex.opcode).called(name)))
}

/// Whether it works on bytes, so that a prefix of the operand size means nothing, unless W is set.
const fn has_no_size(evex: &Evex<'_>) -> bool {
    match evex.opcode {
        _ if evex.is_wide() => false,
        0x24 | 0x2c => false,
        0x00..=0x3f | 0x80 | 0x84 | 0x8a | 0xc0 | 0xd0 | 0xd2 | 0xf0 | 0xf6 | 0xfe => evex.opcode & 1 == 0,
        _ => false,
    }
}

/// Whether an instruction has a form that leaves the flags as they are.
const fn leaves_flags(opcode: u8) -> bool {
    !matches!(opcode, 0x60 | 0x61 | 0x65 | 0x66 | 0x8a | 0x8b | 0x8f | 0xf0..=0xf2 | 0xf8..=0xfc)
}

/// Whether an instruction has a form with a new destination, or the bit of it names another one.
fn has_new_form(evex: &Evex<'_>) -> bool {
    match evex.opcode {
        0xf6 | 0xf7 => matches!(evex.reg(), 2 | 3),
        0x60 | 0x61 | 0x65 | 0x88 | 0x8a | 0x8b | 0xf0..=0xf5 | 0xf8..=0xfc => false,
        _ => true,
    }
}
