//! Instructions of VEX and EVEX that take the new registers, and those of AVX10.2.

use crate::avx10;
use crate::evex::{EVEX, Evex};
use crate::modern::Modern;
use crate::rewritten::{Bytes, Rewritten};
use crate::vex::{self, VEX};

/// Rewrites an instruction of VEX or AVX-512.
pub(crate) fn rewritten(evex: &Evex<'_>) -> Option<Rewritten> {
    let of_tiles = vex::under_evex(evex);
    of_tiles.or_else(|| to_vex(evex)).or_else(|| to_avx512(evex))
}

/// Whether it is the form of an instruction of VEX that leaves the flags as they are.
pub(crate) fn leaves_flags(evex: &Evex<'_>) -> bool {
    evex.has_no_flags() && to_vex(evex).is_some()
}

/// Rewrites an instruction of BMI, of mask registers, of AMX and the like to VEX, which has 16 registers only.
fn to_vex(evex: &Evex<'_>) -> Option<Rewritten> {
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
    let [_, p1, _] = evex.payload;
    let p0 = evex.with_index();
    let length = last >> 5 & 1;
    let vex = [VEX, p0 & 0xe0 | evex.map(), p1 & 0xfb | length << 2, evex.opcode];
    let head = Bytes::of(evex.prefixes).and(&vex);
    Some(Rewritten::new(Modern::APX, evex.head(), head, evex.tail))
}

/// Rewrites a vector instruction: without the higher half of general registers, and, where it is of AVX10.2, to the
/// nearest one of AVX-512.
fn to_avx512(evex: &Evex<'_>) -> Option<Rewritten> {
    /// B4 and the inverted R4 and X4 of the payload.
    const B4: u8 = 8;
    const NO_R4: u8 = 0x10;
    const NO_X4: u8 = 4;
    let [p0, p1, p2] = evex.payload;
    // Of other registers R4 is a bit that AVX-512 has as well.
    let general = if has_general_result(evex) { NO_R4 } else { 0 };
    let has_high_registers = p0 & B4 != 0 || p1 & NO_X4 == 0 || !p0 & general != 0;
    let (p0, p1) = (evex.with_index() & !B4 | general, p1 | NO_X4);
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

/// Whether ModRM.reg is a general register: conversions of a scalar to an integer, and VPEXTRW.
const fn has_general_result(evex: &Evex<'_>) -> bool {
    matches!(
        (evex.map(), evex.implied(), evex.opcode),
        (1 | 5, 2 | 3, 0x2c | 0x2d | 0x78 | 0x79) | (5, 2 | 3, 0x6c | 0x6d) | (1, 1, 0xc5)
    )
}
