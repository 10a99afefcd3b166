//! Shifts and rotations. The count is taken modulo 32, or 64 for operands of 64 bits.

use iced_x86::{Instruction, Mnemonic as M};

use crate::end::End;
use crate::flags::{AF, CF, OF, STATUS};
use crate::machine::Machine;
use crate::operands::width;
use crate::value::Value;

/// The count of a shift of `width` bits.
fn count(value: Value, width: u32) -> Option<u32> {
    let width = if width == 64 { 6 } else { 5 };
    u32::try_from(value.get(width)?).ok()
}

impl Machine {
    pub(crate) fn shift(&mut self, it: &Instruction) -> Result<(), End> {
        let width = width(it, 0);
        let a = self.operand(it, 0)?;
        let Some(n) = count(self.operand(it, 1)?, width) else {
            self.forget_flags(STATUS);
            return self.set_operand(it, 0, Value::UNKNOWN.truncated(width));
        };
        if n == 0 {
            // Flags stay, and a register of 32 bits is written.
            return self.set_operand(it, 0, a);
        }
        let result = shifted(it.mnemonic(), a, n, width);
        let top = a.bit(width - 1);
        let (carry, overflow) = match it.mnemonic() {
            M::Shr => (a.bit((n - 1).min(63)), top),
            M::Sar => (a.sign_extended(width, 64).bit((n - 1).min(63)), Some(false)),
            _ => {
                let carry = if n < width { a.bit(width - n) } else { None };
                (carry, differ(result.bit(width - 1), carry))
            }
        };
        // It is undefined where the operand has no bit left.
        let carry = if it.mnemonic() != M::Sar && width <= n {
            None
        } else {
            carry
        };
        self.set_result_flags(result, width);
        self.set_flag(CF, carry);
        self.set_flag(OF, if n == 1 { overflow } else { None });
        self.set_flag(AF, None);
        self.set_operand(it, 0, result)
    }

    pub(crate) fn rotate(&mut self, it: &Instruction) -> Result<(), End> {
        let width = width(it, 0);
        let a = self.operand(it, 0)?;
        let Some(n) = count(self.operand(it, 1)?, width) else {
            self.forget_flags(1 << CF | 1 << OF);
            return self.set_operand(it, 0, Value::UNKNOWN.truncated(width));
        };
        if n == 0 {
            return self.set_operand(it, 0, a);
        }
        let result = match it.mnemonic() {
            M::Rol => rotated(a, n % width, width),
            M::Ror => rotated(a, (width - n % width) % width, width),
            // Bit by bit, as the carry goes through.
            M::Rcl => (0..n % (width + 1)).fold(a, |a, _| {
                let carry = self.flag(CF);
                self.set_flag(CF, a.bit(width - 1));
                a.shl(1).with_bit(0, carry).truncated(width)
            }),
            _ => (0..n % (width + 1)).fold(a, |a, _| {
                let carry = self.flag(CF);
                self.set_flag(CF, a.bit(0));
                a.shr(1).with_bit(width - 1, carry).truncated(width)
            }),
        };
        let top = result.bit(width - 1);
        match it.mnemonic() {
            M::Rol => self.set_flag(CF, result.bit(0)),
            M::Ror => self.set_flag(CF, top),
            _ => {}
        }
        let overflow = match it.mnemonic() {
            M::Rol | M::Rcl => differ(top, self.flag(CF)),
            _ => differ(top, result.bit(width - 2)),
        };
        self.set_flag(OF, if n == 1 { overflow } else { None });
        self.set_operand(it, 0, result)
    }

    /// SHLD and SHRD.
    pub(crate) fn shift_double(&mut self, it: &Instruction) -> Result<(), End> {
        let width = width(it, 0);
        let (a, b) = (self.operand(it, 0)?, self.operand(it, 1)?);
        let n = count(self.operand(it, 2)?, width);
        if n == Some(0) {
            return self.set_operand(it, 0, a);
        }
        // Result and flags are undefined for counts above the width.
        let Some(n) = n.filter(|n| *n <= width) else {
            self.forget_flags(STATUS);
            return self.set_operand(it, 0, Value::UNKNOWN.truncated(width));
        };
        let (result, carry) = if it.mnemonic() == M::Shld {
            let low = if n == width { b } else { b.shr(width - n) };
            (above(a, n).or(low), a.bit(width - n))
        } else {
            let high = above(b, width - n);
            (below(a, n).or(high), a.bit(n - 1))
        };
        let result = result.truncated(width);
        self.set_result_flags(result, width);
        self.set_flag(CF, carry);
        let overflow = differ(a.bit(width - 1), result.bit(width - 1));
        self.set_flag(OF, if n == 1 { overflow } else { None });
        self.set_flag(AF, None);
        self.set_operand(it, 0, result)
    }

    /// The shifts of BMI2.
    pub(crate) fn shift_without_flags(&mut self, it: &Instruction) -> Result<(), End> {
        let width = width(it, 0);
        let a = self.operand(it, 1)?;
        let result = match count(self.operand(it, 2)?, width) {
            None => Value::UNKNOWN.truncated(width),
            Some(n) if it.mnemonic() == M::Rorx => rotated(a, (width - n % width) % width, width),
            Some(n) => shifted(it.mnemonic(), a, n, width),
        };
        self.set_operand(it, 0, result)
    }
}

/// A value shifted by less than 64.
fn shifted(by: M, a: Value, n: u32, width: u32) -> Value {
    let result = match by {
        M::Shr | M::Shrx => a.shr(n),
        M::Sar | M::Sarx => a.sign_extended(width, 64).shr(n).sign_extended(64 - n, 64),
        _ => a.shl(n),
    };
    result.truncated(width)
}

/// A value rotated to the left by less than its width.
fn rotated(a: Value, n: u32, width: u32) -> Value {
    above(a, n).or(below(a, width - n)).truncated(width)
}

/// Shifted to the left by up to 64.
fn above(a: Value, n: u32) -> Value {
    if n < 64 { a.shl(n) } else { Value::known(0) }
}

/// Shifted to the right by up to 64.
fn below(a: Value, n: u32) -> Value {
    if n < 64 { a.shr(n) } else { Value::known(0) }
}

fn differ(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    Some(a? != b?)
}
