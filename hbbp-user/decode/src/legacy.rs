//! Instructions without VEX and EVEX that iced-x86 does not know: MOVRS, and model-specific registers for users.

use crate::modern::{Extension, Modern};
use crate::registers::Registers;
use crate::rewritten::{Bytes, Rewritten};

/// An instruction of the map 0x0f 0x38.
#[derive(Clone, Copy)]
pub(crate) struct Legacy<'a> {
    prefixes: &'a [u8],
    rex: Option<u8>,
    opcode: u8,
    /// What follows: ModRM, SIB, displacement.
    tail: &'a [u8],
}

impl<'a> Legacy<'a> {
    /// Reads an instruction; `rest` begins with REX or the escape.
    pub(crate) fn read(prefixes: &'a [u8], rest: &'a [u8]) -> Option<Self> {
        let (rex, rest) = match rest {
            [rex @ 0x40..=0x4f, rest @ ..] => (Some(*rex), rest),
            _ => (None, rest),
        };
        let [0x0f, 0x38, opcode, tail @ ..] = rest else {
            return None;
        };
        Some(Self {
            prefixes,
            rex,
            opcode: *opcode,
            tail,
        })
    }

    /// The numbers of its registers.
    pub(crate) fn registers(&self) -> Registers {
        let rex = self.rex.unwrap_or_default();
        Registers {
            reg: (rex & 4) << 1,
            base: (rex & 1) << 3,
            index: (rex & 2) << 2,
            second: 0,
        }
    }
}

/// Rewrites it to a move.
pub(crate) fn rewritten(legacy: &Legacy<'_>) -> Option<Rewritten> {
    let is_register = 0xc0 <= *legacy.tail.first()?;
    let is_repeat = |prefix: &&u8| matches!(**prefix, 0xf2 | 0xf3);
    let repeat = legacy.prefixes.iter().rfind(is_repeat);
    let (modern, opcode) = match (legacy.opcode, repeat) {
        (0x8a | 0x8b, None) if !is_register => (Modern::of(Extension::Movrs).called("MOVRS"), legacy.opcode),
        (0xf8, Some(0xf2)) if is_register => (Modern::of(Extension::UserMsr).called("URDMSR"), 0x89),
        (0xf8, Some(_)) if is_register => (Modern::of(Extension::UserMsr).called("UWRMSR"), 0x8b),
        _ => return None,
    };
    // Both registers have 64 bits.
    let rex = if is_register {
        Some(legacy.rex.unwrap_or(0x40) | 8)
    } else {
        legacy.rex
    };
    let mut head = Bytes::of(&[]);
    for prefix in legacy.prefixes.iter().filter(|prefix| !is_repeat(prefix)) {
        head = head.and(&[*prefix]);
    }
    let head = head.and(rex.as_slice()).and(&[opcode]);
    let len = legacy.prefixes.len() + legacy.rex.iter().len() + 3;
    Some(Rewritten::new(modern, len, head, legacy.tail))
}
