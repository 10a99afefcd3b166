//! The prefix REX2: registers r16 to r31 in instructions of the first two opcode maps (APX specification, 3.1.1).

use crate::modern::Modern;
use crate::rewritten::{Bytes, Rewritten};

/// The first byte of REX2.
pub(crate) const REX2: u8 = 0xd5;
/// The jump to an absolute address of 64 bits, whose opcode is otherwise a move.
pub(crate) const JMPABS: u8 = 0xa1;

/// The mnemonics that it makes of others.
pub(crate) const MNEMONICS: [&str; 3] = ["PUSHP", "POPP", "JMPABS"];

/// Rewrites an instruction with REX2 into one with REX. `prefixes` are those before REX2, `rest` begins with it.
pub(crate) fn rewritten(prefixes: &[u8], rest: &[u8]) -> Option<Rewritten> {
    let [REX2, payload, opcode, tail @ ..] = rest else {
        return None;
    };
    let is_second_map = payload & 0x80 != 0;
    let is_undefined = match opcode {
        0x30..=0x3f if is_second_map => true,
        0x80..=0x8f if is_second_map => true,
        _ if is_second_map => false,
        0x0f | 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x62 | 0x64..=0x67 | 0x70..=0x7f => true,
        0xa0..=0xaf | 0xc4 | 0xc5 | 0xd5 | 0xe0..=0xef | 0xf0 | 0xf2 | 0xf3 => true,
        _ => false,
    };
    if is_undefined {
        return None;
    }
    let mut rex = 0x40 | payload & 0xf;
    let mut modern = Modern::APX;
    match (is_second_map, opcode) {
        // With REX.W, a pop of what the processor pushed before, and the push (APX specification, 3.1.3).
        (false, 0x50..=0x57) if rex & 8 != 0 => modern = modern.called("PUSHP"),
        (false, 0x58..=0x5f) if rex & 8 != 0 => modern = modern.called("POPP"),
        // XCHG with r16 is not a NOP.
        (false, 0x90) if payload & 0x10 != 0 => rex |= 1,
        _ => {}
    }
    let escape: &[u8] = if is_second_map { &[0x0f] } else { &[] };
    let head = Bytes::of(prefixes).and(&[rex]).and(escape).and(&[*opcode]);
    Some(Rewritten::new(modern, prefixes.len() + 3, head, tail))
}
