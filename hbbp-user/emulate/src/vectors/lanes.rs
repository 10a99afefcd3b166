//! Calculations on lanes.

use iced_x86::{Instruction, Mnemonic as M, OpKind};

use super::{Form, element};
use crate::end::End;
use crate::flags::{CF, STATUS, ZF};
use crate::machine::Machine;
use crate::value::{Value, mask};
use crate::vector::Vector;

/// What becomes of two lanes of `width` bits.
type Operation = fn(u64, u64, u32) -> u64;

/// A lane of `width` bits as a signed number.
pub(super) fn signed(bits: u64, width: u32) -> i64 {
    Value::known(bits).sign_extended(width, 64).bits.cast_signed()
}

fn all_ones(holds: bool) -> u64 {
    if holds { u64::MAX } else { 0 }
}

/// The operation of an instruction with two sources that works on each lane.
fn operation(of: M) -> Option<Operation> {
    Some(match of {
        M::Pand | M::Vpand | M::Vpandd | M::Vpandq | M::Andps | M::Vandps | M::Andpd | M::Vandpd => {
            |a, b, _| a & b
        }
        M::Pandn | M::Vpandn | M::Vpandnd | M::Vpandnq | M::Andnps | M::Vandnps | M::Andnpd | M::Vandnpd => {
            |a, b, _| !a & b
        }
        M::Por | M::Vpor | M::Vpord | M::Vporq | M::Orps | M::Vorps | M::Orpd | M::Vorpd => |a, b, _| a | b,
        M::Pxor | M::Vpxor | M::Vpxord | M::Vpxorq | M::Xorps | M::Vxorps | M::Xorpd | M::Vxorpd => {
            |a, b, _| a ^ b
        }
        M::Pcmpeqb
        | M::Vpcmpeqb
        | M::Pcmpeqw
        | M::Vpcmpeqw
        | M::Pcmpeqd
        | M::Vpcmpeqd
        | M::Pcmpeqq
        | M::Vpcmpeqq => |a, b, _| all_ones(a == b),
        M::Pcmpgtb
        | M::Vpcmpgtb
        | M::Pcmpgtw
        | M::Vpcmpgtw
        | M::Pcmpgtd
        | M::Vpcmpgtd
        | M::Pcmpgtq
        | M::Vpcmpgtq => |a, b, width| all_ones(signed(b, width) < signed(a, width)),
        M::Pminub | M::Vpminub | M::Pminuw | M::Vpminuw | M::Pminud | M::Vpminud => |a, b, _| a.min(b),
        M::Pmaxub | M::Vpmaxub | M::Pmaxuw | M::Vpmaxuw | M::Pmaxud | M::Vpmaxud => |a, b, _| a.max(b),
        M::Pminsb | M::Vpminsb | M::Pminsw | M::Vpminsw | M::Pminsd | M::Vpminsd => {
            |a, b, width| if signed(a, width) < signed(b, width) { a } else { b }
        }
        M::Pmaxsb | M::Vpmaxsb | M::Pmaxsw | M::Vpmaxsw | M::Pmaxsd | M::Vpmaxsd => {
            |a, b, width| if signed(a, width) < signed(b, width) { b } else { a }
        }
        M::Paddb | M::Vpaddb | M::Paddw | M::Vpaddw | M::Paddd | M::Vpaddd | M::Paddq | M::Vpaddq => {
            |a, b, _| a.wrapping_add(b)
        }
        M::Psubb | M::Vpsubb | M::Psubw | M::Vpsubw | M::Psubd | M::Vpsubd | M::Psubq | M::Vpsubq => {
            |a, b, _| a.wrapping_sub(b)
        }
        M::Psubusb | M::Vpsubusb | M::Psubusw | M::Vpsubusw => |a, b, _| a.saturating_sub(b),
        M::Paddusb | M::Vpaddusb | M::Paddusw | M::Vpaddusw => |a, b, width| (a + b).min(mask(width)),
        M::Pmuludq | M::Vpmuludq => |a, b, _| (a & mask(32)) * (b & mask(32)),
        _ => return None,
    })
}

/// Whether the result is known of two operands that are one register.
fn is_idiom(of: M) -> bool {
    matches!(
        of,
        M::Pxor
            | M::Vpxor
            | M::Vpxord
            | M::Vpxorq
            | M::Xorps
            | M::Vxorps
            | M::Xorpd
            | M::Vxorpd
            | M::Pandn
            | M::Vpandn
            | M::Vpandnd
            | M::Vpandnq
            | M::Pcmpeqb
            | M::Vpcmpeqb
            | M::Pcmpeqw
            | M::Vpcmpeqw
            | M::Pcmpeqd
            | M::Vpcmpeqd
            | M::Pcmpeqq
            | M::Vpcmpeqq
            | M::Psubb
            | M::Vpsubb
            | M::Psubw
            | M::Vpsubw
            | M::Psubd
            | M::Vpsubd
            | M::Psubq
            | M::Vpsubq
    )
}

impl Machine {
    /// Whether it was a calculation.
    pub(super) fn calculate_lanes(&mut self, it: &Instruction, form: Form) -> Result<bool, End> {
        if matches!(it.mnemonic(), M::Ptest | M::Vptest) {
            self.test_vector(it, form)?;
            return Ok(true);
        }
        if matches!(it.mnemonic(), M::Vpternlogd | M::Vpternlogq) {
            self.ternary_logic(it, form)?;
            return Ok(true);
        }
        let last = form.first + 1;
        if it.op_kind(last) == OpKind::Immediate8 {
            return self.shift_lanes(it, form);
        }
        let Some(by) = operation(it.mnemonic()) else {
            return Ok(false);
        };
        let (mut a, mut b) = (
            self.vector_operand(it, form.first, false)?,
            self.vector_operand(it, last, !form.is_vex)?,
        );
        let is_same =
            it.op_kind(last) == OpKind::Register && it.op_register(form.first) == it.op_register(last);
        if is_same && is_idiom(it.mnemonic()) {
            (a, b) = (Vector::ZERO, Vector::ZERO);
        }
        // What is bitwise has no elements.
        let bytes = element(it).unwrap_or(1);
        let width = u32::try_from(8 * bytes).unwrap_or(64);
        let mut result = Vector::ZERO;
        for begin in (0..form.bytes).step_by(bytes) {
            let lanes = a.lane(begin, bytes).zip(b.lane(begin, bytes));
            result.set_lane(begin, bytes, lanes.map(|(a, b)| by(a, b, width)));
        }
        self.set_vector(it, result, form)?;
        Ok(true)
    }

    /// Shifts of each lane by an immediate count.
    fn shift_lanes(&mut self, it: &Instruction, form: Form) -> Result<bool, End> {
        let bytes = match it.mnemonic() {
            M::Psllw | M::Vpsllw | M::Psrlw | M::Vpsrlw | M::Psraw | M::Vpsraw => 2,
            M::Pslld | M::Vpslld | M::Psrld | M::Vpsrld | M::Psrad | M::Vpsrad => 4,
            _ => 8,
        };
        let width = u32::try_from(8 * bytes).unwrap_or(64);
        let n = u32::from(it.immediate8());
        let by = |lane: u64| match it.mnemonic() {
            M::Psllw | M::Vpsllw | M::Pslld | M::Vpslld | M::Psllq | M::Vpsllq => {
                Some(if n < width { lane << n } else { 0 })
            }
            M::Psrlw | M::Vpsrlw | M::Psrld | M::Vpsrld | M::Psrlq | M::Vpsrlq => {
                Some(if n < width { lane >> n } else { 0 })
            }
            M::Psraw | M::Vpsraw | M::Psrad | M::Vpsrad => {
                Some((signed(lane, width) >> n.min(width - 1)).cast_unsigned())
            }
            _ => None,
        };
        if by(0).is_none() {
            return Ok(false);
        }
        let a = self.vector_operand(it, form.first, false)?;
        let mut result = Vector::ZERO;
        for begin in (0..form.bytes).step_by(bytes) {
            result.set_lane(begin, bytes, a.lane(begin, bytes).and_then(by));
        }
        self.set_vector(it, result, form)?;
        Ok(true)
    }

    /// VPTERNLOG: three bits choose a bit of the control.
    fn ternary_logic(&mut self, it: &Instruction, form: Form) -> Result<(), End> {
        let (a, b, c) = (
            self.vector_operand(it, 0, false)?,
            self.vector_operand(it, 1, false)?,
            self.vector_operand(it, 2, false)?,
        );
        let control = it.immediate8();
        let bit = |bits: u8, n: u32| bits >> n & 1;
        let chosen = |a: u8, b: u8, c: u8| {
            (0..8).fold(0, |all, n| {
                all | bit(control, u32::from(bit(a, n) << 2 | bit(b, n) << 1 | bit(c, n))) << n
            })
        };
        let result = Vector::from_bytes((0..form.bytes).map(|at| match control {
            // It is the same whatever the sources are.
            0 | u8::MAX => Some(control),
            _ => Some(chosen(a.byte(at)?, b.byte(at)?, c.byte(at)?)),
        }));
        self.set_vector(it, result, form)
    }

    /// PTEST: ZF where no bit is in both, CF where each bit of the second is in the first.
    fn test_vector(&mut self, it: &Instruction, form: Form) -> Result<(), End> {
        let (a, b) = (
            self.vector_operand(it, 0, false)?,
            self.vector_operand(it, 1, !form.is_vex)?,
        );
        self.flags = self.flags.with(Value::known(0), STATUS);
        let value = |vector: &Vector, at| Value::of(vector.byte(at).map(u64::from), 8);
        let (mut both, mut second) = (Value::known(0), Value::known(0));
        for at in 0..form.bytes {
            let (a, b) = (value(&a, at), value(&b, at));
            both = both.or(a.and(b));
            second = second.or(a.not().and(b));
        }
        self.set_flag(ZF, both.is_zero(8));
        self.set_flag(CF, second.is_zero(8));
        Ok(())
    }
}
