//! Mask registers of AVX-512, and the comparisons that write them.

use iced_x86::{Instruction, Mnemonic as M, OpKind, Register};

use super::lanes::signed;
use super::{Form, element};
use crate::end::End;
use crate::flags::{CF, STATUS, ZF};
use crate::machine::Machine;
use crate::value::Value;
use crate::vector::Vector;

/// Whether two lanes of `width` bits match.
type Comparison = fn(u64, u64, u32) -> bool;

/// The comparison of an instruction.
fn comparison(it: &Instruction) -> Option<Comparison> {
    Some(match it.mnemonic() {
        M::Vpcmpeqb | M::Vpcmpeqw | M::Vpcmpeqd | M::Vpcmpeqq => |a, b, _| a == b,
        M::Vpcmpgtb | M::Vpcmpgtw | M::Vpcmpgtd | M::Vpcmpgtq => {
            |a, b, width| signed(b, width) < signed(a, width)
        }
        M::Vptestmb | M::Vptestmw | M::Vptestmd | M::Vptestmq => |a, b, _| a & b != 0,
        M::Vptestnmb | M::Vptestnmw | M::Vptestnmd | M::Vptestnmq => |a, b, _| a & b == 0,
        M::Vpcmpub | M::Vpcmpuw | M::Vpcmpud | M::Vpcmpuq => match it.immediate8() & 7 {
            0 => |a, b, _| a == b,
            1 => |a, b, _| a < b,
            2 => |a, b, _| a <= b,
            3 => |_, _, _| false,
            4 => |a, b, _| a != b,
            5 => |a, b, _| b <= a,
            6 => |a, b, _| b < a,
            _ => |_, _, _| true,
        },
        M::Vpcmpb | M::Vpcmpw | M::Vpcmpd | M::Vpcmpq => match it.immediate8() & 7 {
            0 => |a, b, _| a == b,
            1 => |a, b, width| signed(a, width) < signed(b, width),
            2 => |a, b, width| signed(a, width) <= signed(b, width),
            3 => |_, _, _| false,
            4 => |a, b, _| a != b,
            5 => |a, b, width| signed(b, width) <= signed(a, width),
            6 => |a, b, width| signed(b, width) < signed(a, width),
            _ => |_, _, _| true,
        },
        _ => return None,
    })
}

/// Bits of the operands of an instruction on masks, by the last letter of its name.
fn width(of: M) -> Option<u32> {
    Some(match of {
        M::Kmovb
        | M::Kortestb
        | M::Ktestb
        | M::Kandb
        | M::Kandnb
        | M::Korb
        | M::Kxorb
        | M::Kxnorb
        | M::Knotb
        | M::Kshiftlb
        | M::Kshiftrb
        | M::Kaddb => 8,
        M::Kmovw
        | M::Kortestw
        | M::Ktestw
        | M::Kandw
        | M::Kandnw
        | M::Korw
        | M::Kxorw
        | M::Kxnorw
        | M::Knotw
        | M::Kshiftlw
        | M::Kshiftrw
        | M::Kaddw
        | M::Kunpckbw => 16,
        M::Kmovd
        | M::Kortestd
        | M::Ktestd
        | M::Kandd
        | M::Kandnd
        | M::Kord
        | M::Kxord
        | M::Kxnord
        | M::Knotd
        | M::Kshiftld
        | M::Kshiftrd
        | M::Kaddd
        | M::Kunpckwd => 32,
        M::Kmovq
        | M::Kortestq
        | M::Ktestq
        | M::Kandq
        | M::Kandnq
        | M::Korq
        | M::Kxorq
        | M::Kxnorq
        | M::Knotq
        | M::Kshiftlq
        | M::Kshiftrq
        | M::Kaddq
        | M::Kunpckdq => 64,
        _ => return None,
    })
}

impl Machine {
    pub(super) fn mask_register(&self, register: Register) -> Value {
        let mask = register.is_k().then(|| self.masks.get(register.number()));
        mask.flatten().copied().unwrap_or(Value::UNKNOWN)
    }

    fn set_mask(&mut self, register: Register, value: Value) -> Result<(), End> {
        let mask = register.is_k().then(|| self.masks.get_mut(register.number()));
        *mask.flatten().ok_or(End::NotEmulated)? = value;
        Ok(())
    }

    /// Whether it was an instruction on masks, or a comparison.
    pub(super) fn mask(&mut self, it: &Instruction, form: Form) -> Result<bool, End> {
        if let (Some(comparison), Some(bytes)) = (comparison(it), element(it)) {
            self.compare_vectors(it, form, comparison, bytes)?;
            return Ok(true);
        }
        let Some(width) = width(it.mnemonic()) else {
            return Ok(false);
        };
        let (a, b) = (self.mask_operand(it, 0, width)?, self.mask_operand(it, 1, width)?);
        let result = match it.mnemonic() {
            M::Kortestb | M::Kortestw | M::Kortestd | M::Kortestq => {
                let or = a.or(b);
                self.set_mask_flags(or.is_zero(width), or.not().is_zero(width));
                return Ok(true);
            }
            M::Ktestb | M::Ktestw | M::Ktestd | M::Ktestq => {
                self.set_mask_flags(a.and(b).is_zero(width), a.not().and(b).is_zero(width));
                return Ok(true);
            }
            M::Kmovb | M::Kmovw | M::Kmovd | M::Kmovq => b,
            M::Knotb | M::Knotw | M::Knotd | M::Knotq => b.not(),
            M::Kshiftlb | M::Kshiftlw | M::Kshiftld | M::Kshiftlq => match u32::from(it.immediate8()) {
                n if n < width => b.shl(n),
                _ => Value::known(0),
            },
            M::Kshiftrb | M::Kshiftrw | M::Kshiftrd | M::Kshiftrq => match u32::from(it.immediate8()) {
                n if n < width => b.shr(n),
                _ => Value::known(0),
            },
            _ => {
                let c = self.mask_operand(it, 2, width)?;
                combined(it, b, c, width)
            }
        };
        let result = result.truncated(width);
        match it.op0_kind() {
            OpKind::Register if it.op0_register().is_k() => self.set_mask(it.op0_register(), result)?,
            OpKind::Register => self.set_register(it.op0_register(), result)?,
            _ => {
                let address = self.address(it)?;
                self.store_at(address, result, width)?;
            }
        }
        Ok(true)
    }

    fn mask_operand(&mut self, it: &Instruction, operand: u32, width: u32) -> Result<Value, End> {
        let value = match it.op_kind(operand) {
            OpKind::Register if it.op_register(operand).is_k() => self.mask_register(it.op_register(operand)),
            OpKind::Register => self.register(it.op_register(operand)),
            OpKind::Memory if operand != 0 => {
                let address = self.address(it)?;
                self.load_at(address, width)
            }
            _ => Value::UNKNOWN,
        };
        Ok(value.truncated(width))
    }

    fn set_mask_flags(&mut self, zero: Option<bool>, carry: Option<bool>) {
        self.flags = self.flags.with(Value::known(0), STATUS);
        self.set_flag(ZF, zero);
        self.set_flag(CF, carry);
    }

    /// A bit for each lane, of those that the other mask selects.
    fn compare_vectors(
        &mut self,
        it: &Instruction,
        form: Form,
        by: Comparison,
        bytes: usize,
    ) -> Result<(), End> {
        let (a, b): (Vector, Vector) = (
            self.vector_operand(it, 1, false)?,
            self.vector_operand(it, 2, false)?,
        );
        let width = u32::try_from(8 * bytes).unwrap_or(64);
        let lanes = (0..).zip((0..form.bytes).step_by(bytes));
        let result = lanes.fold(Value::known(0), |result, (bit, begin)| {
            let lanes = a.lane(begin, bytes).zip(b.lane(begin, bytes));
            result.with_bit(bit, lanes.map(|(a, b)| by(a, b, width)))
        });
        let result = match it.has_op_mask() {
            true => result.and(self.mask_register(it.op_mask())),
            false => result,
        };
        self.set_mask(it.op0_register(), result)
    }
}

/// Two masks as one.
fn combined(it: &Instruction, a: Value, b: Value, width: u32) -> Value {
    let is_same = it.op1_register() == it.op2_register();
    match it.mnemonic() {
        M::Kandb | M::Kandw | M::Kandd | M::Kandq => a.and(b),
        M::Kandnb | M::Kandnw | M::Kandnd | M::Kandnq => a.not().and(b),
        M::Korb | M::Korw | M::Kord | M::Korq => a.or(b),
        M::Kxorb | M::Kxorw | M::Kxord | M::Kxorq if is_same => Value::known(0),
        M::Kxorb | M::Kxorw | M::Kxord | M::Kxorq => a.xor(b),
        M::Kxnorb | M::Kxnorw | M::Kxnord | M::Kxnorq if is_same => Value::known(u64::MAX),
        M::Kxnorb | M::Kxnorw | M::Kxnord | M::Kxnorq => a.xor(b).not(),
        M::Kunpckbw | M::Kunpckwd | M::Kunpckdq => {
            let half = width / 2;
            a.truncated(half).shl(half).or(b.truncated(half))
        }
        _ => Value::of(
            a.get(width).zip(b.get(width)).map(|(a, b)| a.wrapping_add(b)),
            width,
        ),
    }
}
