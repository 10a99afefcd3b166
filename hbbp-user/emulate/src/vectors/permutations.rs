//! Moves of bytes to other positions.

use iced_x86::{Instruction, Mnemonic as M, OpKind};

use super::Form;
use crate::end::End;
use crate::machine::Machine;
use crate::vector::{BYTES, Vector};

/// Where a byte of the result comes from.
#[derive(Clone, Copy)]
enum From {
    First(usize),
    Second(usize),
    Zero,
}

/// The source of each byte of an interleaving of lanes: from the lower or the upper half of each 16 bytes.
fn interleaved(at: usize, lane: usize, is_upper: bool) -> From {
    let (half, within) = (at / 16 * 16, at % 16);
    let from = half + if is_upper { 8 } else { 0 } + within / (2 * lane) * lane + within % lane;
    let is_first = (within / lane).is_multiple_of(2);
    if is_first {
        From::First(from)
    } else {
        From::Second(from)
    }
}

/// The position of a lane of 2, 4 or 8 bytes that two bits of a control choose.
fn chosen(control: u8, at: usize, lane: usize) -> usize {
    usize::from(control >> (2 * (at / lane % 4)) & 3) * lane + at % lane
}

/// One of the halves of 16 bytes of two vectors, as VPERM2I128 chooses it.
fn half(control: u8, at: usize) -> From {
    let control = if at < 16 { control } else { control >> 4 };
    let from = at % 16 + 16 * usize::from(control & 1);
    match control & 0b1010 {
        0 => From::First(from),
        2 => From::Second(from),
        _ => From::Zero,
    }
}

/// The source of byte `at`, where an instruction permutes bytes in a fixed order.
fn source(it: &Instruction, at: usize) -> Option<From> {
    let control = it
        .try_immediate(it.op_count().saturating_sub(1))
        .map_or(0, |bits| bits.to_le_bytes()[0]);
    let (lane_half, within, n) = (at / 16 * 16, at % 16, usize::from(control));
    Some(match it.mnemonic() {
        M::Punpcklbw | M::Vpunpcklbw => interleaved(at, 1, false),
        M::Punpckhbw | M::Vpunpckhbw => interleaved(at, 1, true),
        M::Punpcklwd | M::Vpunpcklwd => interleaved(at, 2, false),
        M::Punpckhwd | M::Vpunpckhwd => interleaved(at, 2, true),
        M::Punpckldq | M::Vpunpckldq | M::Unpcklps | M::Vunpcklps => interleaved(at, 4, false),
        M::Punpckhdq | M::Vpunpckhdq | M::Unpckhps | M::Vunpckhps => interleaved(at, 4, true),
        M::Punpcklqdq | M::Vpunpcklqdq | M::Unpcklpd | M::Vunpcklpd => interleaved(at, 8, false),
        M::Punpckhqdq | M::Vpunpckhqdq | M::Unpckhpd | M::Vunpckhpd => interleaved(at, 8, true),
        M::Shufps | M::Vshufps => {
            let from = lane_half + chosen(control, within, 4);
            if within < 8 {
                From::First(from)
            } else {
                From::Second(from)
            }
        }
        M::Palignr | M::Vpalignr => match within + n {
            from @ 0..16 => From::Second(lane_half + from),
            from @ 16..32 => From::First(lane_half + from - 16),
            _ => From::Zero,
        },
        M::Vperm2i128 | M::Vperm2f128 => half(control, at),
        M::Vinserti128 | M::Vinsertf128 if at / 16 == n % 2 => From::Second(within),
        M::Vinserti128 | M::Vinsertf128 => From::First(at),
        M::Pshufd | M::Vpshufd => From::Second(lane_half + chosen(control, within, 4)),
        M::Pshuflw | M::Vpshuflw if within < 8 => From::Second(lane_half + chosen(control, within, 2)),
        M::Pshufhw | M::Vpshufhw if 8 <= within => From::Second(lane_half + 8 + chosen(control, within, 2)),
        M::Pshuflw | M::Vpshuflw | M::Pshufhw | M::Vpshufhw => From::Second(at),
        M::Vpermq => From::Second(at / 32 * 32 + chosen(control, at % 32, 8)),
        M::Vextracti128 | M::Vextractf128 => From::Second(n % 2 * 16 + within),
        M::Vpbroadcastb => From::Second(0),
        M::Vpbroadcastw => From::Second(at % 2),
        M::Vpbroadcastd | M::Vbroadcastss => From::Second(at % 4),
        M::Vpbroadcastq | M::Vbroadcastsd => From::Second(at % 8),
        M::Vbroadcasti128 | M::Vbroadcastf128 => From::Second(within),
        M::Pslldq | M::Vpslldq if within < n => From::Zero,
        M::Pslldq | M::Vpslldq => From::First(at - n),
        M::Psrldq | M::Vpsrldq if 16 <= within + n => From::Zero,
        M::Psrldq | M::Vpsrldq => From::First(at + n),
        _ => return None,
    })
}

impl Machine {
    /// Whether it was a permutation.
    pub(super) fn permute(&mut self, it: &Instruction, form: Form) -> Result<bool, End> {
        if matches!(it.mnemonic(), M::Pshufb | M::Vpshufb) {
            self.shuffle(it, form)?;
            return Ok(true);
        }
        let has_variable_order =
            it.mnemonic() == M::Vpermq && it.op_kind(it.op_count() - 1) != OpKind::Immediate8;
        if has_variable_order || source(it, 0).is_none() {
            return Ok(false);
        }
        let has_immediate = it.op_kind(it.op_count() - 1) == OpKind::Immediate8;
        // Of those with one source it is the second.
        let sources = it.op_count() - u32::from(has_immediate);
        let second = sources - 1;
        let is_shift = matches!(it.mnemonic(), M::Pslldq | M::Psrldq | M::Vpslldq | M::Vpsrldq);
        let is_to_memory = it.op0_kind() == OpKind::Memory;
        let a = match second {
            _ if is_shift => self.vector_register(it.op_register(form.first)),
            0 => Vector::UNKNOWN,
            _ => self.vector_register(it.op_register(second - 1)),
        };
        let b = match is_shift {
            true => Vector::UNKNOWN,
            false => self.vector_operand(it, second, !form.is_vex)?,
        };
        // VEXTRACTI128 has a source of 32 bytes and a result of 16.
        let is_extraction = matches!(it.mnemonic(), M::Vextracti128 | M::Vextractf128);
        let bytes = if is_extraction { 16 } else { form.bytes };
        let result = Vector::from_bytes((0..bytes.min(BYTES)).map(|at| match source(it, at)? {
            From::First(from) => a.byte(from),
            From::Second(from) => b.byte(from),
            From::Zero => Some(0),
        }));
        if is_to_memory {
            self.store_vector(it, result, bytes, false)?;
        } else {
            self.set_vector(it, result, Form { bytes, ..form })?;
        }
        Ok(true)
    }

    /// PSHUFB: each byte of the second chooses one of the first within 16, or a zero.
    fn shuffle(&mut self, it: &Instruction, form: Form) -> Result<(), End> {
        let (a, b) = (
            self.vector_operand(it, form.first, false)?,
            self.vector_operand(it, form.first + 1, !form.is_vex)?,
        );
        let result = Vector::from_bytes((0..form.bytes).map(|at| match b.byte(at)? {
            control if control & 0x80 != 0 => Some(0),
            control => a.byte(at / 16 * 16 + usize::from(control & 15)),
        }));
        self.set_vector(it, result, form)
    }
}
