//! The fields of an EVEX prefix, and instructions that take the new registers by it alone.

use crate::avx10;
use crate::modern::Modern;
use crate::rewritten::{Bytes, Rewritten};

/// The first byte of EVEX.
pub(crate) const EVEX: u8 = 0x62;

/// An instruction with EVEX.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evex<'a> {
    /// Prefixes before it: segments and address size.
    pub(crate) prefixes: &'a [u8],
    payload: [u8; 3],
    /// The opcode.
    pub(crate) opcode: u8,
    /// What follows: ModRM, SIB, displacement, immediate value.
    pub(crate) tail: &'a [u8],
}

impl<'a> Evex<'a> {
    /// Reads an instruction; `rest` begins with EVEX.
    pub(crate) fn read(prefixes: &'a [u8], rest: &'a [u8]) -> Option<Self> {
        let [EVEX, p0, p1, p2, opcode, tail @ ..] = rest else {
            return None;
        };
        // Others are not defined before EVEX.
        let is_defined = |prefix: &u8| matches!(prefix, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x67);
        (!tail.is_empty() && prefixes.iter().all(is_defined)).then_some(Self {
            prefixes,
            payload: [*p0, *p1, *p2],
            opcode: *opcode,
            tail,
        })
    }

    /// Bytes up to the opcode.
    pub(crate) const fn head(&self) -> usize {
        self.prefixes.len() + 5
    }

    /// The opcode map.
    pub(crate) const fn map(&self) -> u8 {
        self.payload[0] & 7
    }

    /// The implied prefix: none, 0x66, 0xf3 or 0xf2.
    pub(crate) const fn implied(&self) -> u8 {
        self.payload[1] & 3
    }

    /// W, as REX has it.
    pub(crate) const fn is_wide(&self) -> bool {
        self.payload[1] & 0x80 != 0
    }

    /// REX with the lower bits of the registers.
    pub(crate) fn rex(&self) -> u8 {
        let registers = !self.payload[0] >> 5 & 7;
        0x40 | u8::from(self.is_wide()) << 3 | registers
    }

    /// The last byte of the payload: zeroing, length, broadcast or new destination, the highest bit of the second source, mask
    /// or no flags.
    pub(crate) const fn last(&self) -> u8 {
        self.payload[2]
    }

    pub(crate) const fn has_new_destination(&self) -> bool {
        self.payload[2] & 0x10 != 0
    }

    pub(crate) const fn has_no_flags(&self) -> bool {
        self.payload[2] & 4 != 0
    }

    /// The second source, or the new destination, is left out: all of its bits are set.
    pub(crate) const fn has_no_second(&self) -> bool {
        self.payload[1] & 0x78 == 0x78 && self.payload[2] & 8 != 0
    }

    /// ModRM.mod of a register.
    pub(crate) fn has_register(&self) -> bool {
        self.tail.first().is_some_and(|modrm| 0xc0 <= *modrm)
    }

    /// ModRM.reg.
    pub(crate) fn reg(&self) -> u8 {
        self.tail.first().map_or(0, |modrm| modrm >> 3 & 7)
    }
}

/// Rewrites an instruction of BMI, of mask registers, of AMX and the like to VEX, which has 16 registers only.
pub(crate) fn to_vex(evex: &Evex<'_>) -> Option<Rewritten> {
    let last = evex.last();
    // No zeroing, no broadcast, no mask, and of lengths two.
    if last & 0xd3 != 0 {
        return None;
    }
    let is_defined = match (evex.map(), evex.opcode) {
        // Of KMOV, what masks an operand in memory; of a register, two opcodes.
        (1, 0x90..=0x93) => true,
        // LDTILECFG, TILELOADD and others of AMX.
        (2, 0x49..=0x4b) => true,
        // ANDN, BLSI and others, BZHI, PEXT, PDEP, MULX, BEXTR, shifts; comparisons with addition.
        (2, 0xf2 | 0xf3 | 0xf5 | 0xf6 | 0xf7 | 0xe0..=0xef) => true,
        // RORX.
        (3, 0xf0) => true,
        _ => false,
    };
    let leaves_flags = matches!((evex.opcode, evex.implied()), (0xf2 | 0xf3 | 0xf5 | 0xf7, 0));
    if !is_defined || evex.has_no_flags() && !leaves_flags {
        return None;
    }
    let [p0, p1, _] = evex.payload;
    let length = last >> 5 & 1;
    let vex = [0xc4, p0 & 0xe0 | evex.map(), p1 & 0xfb | length << 2, evex.opcode];
    let head = Bytes::of(evex.prefixes).and(&vex);
    Some(Rewritten::new(Modern::APX, evex.head(), head, evex.tail))
}

/// Rewrites a vector instruction: without the higher half of general registers, and, where it is of AVX10.2, to the
/// nearest one of AVX-512.
pub(crate) fn to_avx512(evex: &Evex<'_>) -> Option<Rewritten> {
    /// B4 and the inverted X4 of the payload.
    const B4: u8 = 8;
    const NO_X4: u8 = 4;
    let [p0, p1, p2] = evex.payload;
    let has_high_registers = p0 & B4 != 0 || p1 & NO_X4 == 0;
    let (p0, p1) = (p0 & !B4, p1 | NO_X4);
    let (modern, p0, p1, opcode) = match avx10::nearest(evex) {
        Some((modern, to)) => {
            let p1 = p1 & !0x83 | u8::from(to.is_wide) << 7 | to.implied;
            (modern, p0 & !7 | to.map, p1, to.opcode)
        }
        None if has_high_registers => (Modern::APX, p0, p1, evex.opcode),
        None => return None,
    };
    let head = Bytes::of(evex.prefixes).and(&[EVEX, p0, p1, p2, opcode]);
    Some(Rewritten::new(modern, evex.head(), head, evex.tail))
}
