//! The prefix REX2: registers r16 to r31 in instructions of the first two opcode maps (APX specification, 3.1.1).

use crate::modern::Modern;
use crate::registers::Registers;
use crate::rewritten::{Bytes, Rewritten};

/// The first byte of REX2.
pub(crate) const REX2: u8 = 0xd5;
/// The jump to an absolute address of 64 bits, whose opcode is otherwise a move.
const JMPABS: u8 = 0xa1;

/// The mnemonics that it makes of others.
pub(crate) const MNEMONICS: [&str; 3] = ["PUSHP", "POPP", "JMPABS"];

/// An instruction with REX2.
#[derive(Clone, Copy)]
pub(crate) struct Rex2<'a> {
    prefixes: &'a [u8],
    payload: u8,
    opcode: u8,
    /// What follows: ModRM, SIB, displacement, immediate value.
    tail: &'a [u8],
}

impl<'a> Rex2<'a> {
    /// Reads an instruction; `rest` begins with REX2.
    pub(crate) fn read(prefixes: &'a [u8], rest: &'a [u8]) -> Option<Self> {
        let [REX2, payload, opcode, tail @ ..] = rest else {
            return None;
        };
        Some(Self {
            prefixes,
            payload: *payload,
            opcode: *opcode,
            tail,
        })
    }

    /// The address that JMPABS jumps to.
    fn absolute(&self) -> Option<u64> {
        let is_jump = self.opcode == JMPABS && self.prefixes.is_empty() && self.payload & 0x88 == 0;
        let target = self.tail.first_chunk().filter(|_| is_jump)?;
        Some(u64::from_le_bytes(*target))
    }

    /// The numbers of its registers.
    pub(crate) const fn registers(&self) -> Registers {
        let payload = self.payload;
        Registers {
            reg: (payload & 0x40) >> 2 | (payload & 4) << 1,
            base: payload & 0x10 | (payload & 1) << 3,
            index: (payload & 0x20) >> 1 | (payload & 2) << 2,
            second: 0,
        }
    }
}

/// Rewrites an instruction with REX2 into one with REX.
pub(crate) fn rewritten(rex2: &Rex2<'_>) -> Option<Rewritten> {
    let Rex2 {
        prefixes,
        payload,
        opcode,
        tail,
    } = *rex2;
    if let Some(target) = rex2.absolute() {
        let jump = Bytes::of(&[0xe9, 0, 0, 0, 0]);
        let modern = Modern::APX.called("JMPABS");
        return Some(Rewritten::new(modern, 3 + 8, jump, &[]).jumping_to(target));
    }
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
    // An index r20 must not become rsp, which means that there is none.
    let mut rex = 0x40 | payload & 0xf | (payload & 0x20) >> 4;
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
    let head = Bytes::of(prefixes).and(&[rex]).and(escape).and(&[opcode]);
    Some(Rewritten::new(modern, prefixes.len() + 3, head, tail))
}
