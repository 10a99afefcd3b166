//! Products and quotients.

use iced_x86::{Instruction, Mnemonic as M, Register};

use crate::end::End;
use crate::flags::STATUS;
use crate::machine::Machine;
use crate::operands::{RAX, RDX, width};
use crate::value::{Value, mask};

impl Machine {
    pub(crate) fn multiply(&mut self, it: &Instruction) -> Result<(), End> {
        let width = width(it, 0);
        match (it.mnemonic(), it.op_count()) {
            (M::Mulx, _) => {
                let (a, b) = (self.registers[RDX].truncated(width), self.operand(it, 2)?);
                let product = product(a, b, width, false);
                self.set_operand(it, 1, Value::of(product.map(|product| product.low), width))?;
                // Where both are one register, it has the upper half.
                self.set_operand(it, 0, Value::of(product.map(|product| product.high), width))
            }
            (_, 1) => {
                let a = self.registers[RAX].truncated(width);
                let b = self.operand(it, 0)?;
                let product = product(a, b, width, it.mnemonic() == M::Imul);
                self.set_overflow(product);
                let low = Value::of(product.map(|product| product.low), width);
                let high = Value::of(product.map(|product| product.high), width);
                self.set_pair(low, high, width)
            }
            (_, n) => {
                let (a, b) = (self.operand(it, n - 2)?, self.operand(it, n - 1)?);
                let product = product(a, b, width, true);
                self.set_overflow(product);
                self.set_operand(it, 0, Value::of(product.map(|product| product.low), width))
            }
        }
    }

    pub(crate) fn divide(&mut self, it: &Instruction) -> Result<(), End> {
        let width = width(it, 0);
        let divisor = self.operand(it, 0)?;
        let (low, high) = match width {
            8 => (
                self.registers[RAX].truncated(8),
                self.registers[RAX].shr(8).truncated(8),
            ),
            _ => (
                self.registers[RAX].truncated(width),
                self.registers[RDX].truncated(width),
            ),
        };
        self.forget_flags(STATUS);
        if divisor.is_zero(width) == Some(true) {
            return Err(End::Fault);
        }
        let (Some(low), Some(high), Some(divisor)) = (low.get(width), high.get(width), divisor.get(width))
        else {
            let unknown = Value::UNKNOWN.truncated(width);
            return self.set_pair(unknown, unknown, width);
        };
        let dividend = u128::from(high) << width | u128::from(low);
        let quotient = match it.mnemonic() {
            M::Div => unsigned_quotient(dividend, divisor, width),
            _ => signed_quotient(dividend, divisor, width),
        };
        let (quotient, remainder) = quotient.ok_or(End::Fault)?;
        self.set_pair(Value::known(quotient), Value::known(remainder), width)
    }

    /// Writes the accumulator and its upper half, which is AH for 8 bits.
    fn set_pair(&mut self, low: Value, high: Value, width: u32) -> Result<(), End> {
        let (to_low, to_high) = match width {
            8 => (Register::AL, Register::AH),
            16 => (Register::AX, Register::DX),
            32 => (Register::EAX, Register::EDX),
            _ => (Register::RAX, Register::RDX),
        };
        self.set_register(to_low, low)?;
        self.set_register(to_high, high)
    }

    /// CF and OF; the other flags are undefined.
    fn set_overflow(&mut self, product: Option<Product>) {
        self.forget_flags(STATUS);
        let overflows = product.map(|product| product.overflows);
        self.set_carry_and_overflow(overflows, overflows);
    }
}

/// The product of two values.
#[derive(Clone, Copy)]
struct Product {
    low: u64,
    high: u64,
    /// Whether the lower half does not have all of it.
    overflows: bool,
}

fn product(a: Value, b: Value, width: u32, is_signed: bool) -> Option<Product> {
    let (a, b) = (a.get(width)?, b.get(width)?);
    let product = if is_signed {
        (signed(u128::from(a), width) * signed(u128::from(b), width)).cast_unsigned()
    } else {
        u128::from(a) * u128::from(b)
    };
    let low = low(product) & mask(width);
    let extended = if is_signed {
        signed(u128::from(low), width).cast_unsigned()
    } else {
        u128::from(low)
    };
    Some(Product {
        low,
        high: self::low(product >> width) & mask(width),
        overflows: extended != product,
    })
}

/// The lowest `width` bits, at most 128, as a signed number.
fn signed(bits: u128, width: u32) -> i128 {
    let above = 128 - width;
    (bits << above).cast_signed() >> above
}

fn low(bits: u128) -> u64 {
    (bits & u128::from(u64::MAX)) as u64
}

/// Quotient and remainder, if the quotient fits.
fn unsigned_quotient(dividend: u128, divisor: u64, width: u32) -> Option<(u64, u64)> {
    let divisor = u128::from(divisor);
    let quotient = dividend.checked_div(divisor)?;
    (quotient <= u128::from(mask(width))).then(|| (low(quotient), low(dividend % divisor)))
}

fn signed_quotient(dividend: u128, divisor: u64, width: u32) -> Option<(u64, u64)> {
    let (dividend, divisor) = (signed(dividend, 2 * width), signed(u128::from(divisor), width));
    let quotient = dividend.checked_div(divisor)?;
    let remainder = dividend.checked_rem(divisor)?;
    let fits = signed(quotient.cast_unsigned(), width) == quotient;
    let bits = |number: i128| low(number.cast_unsigned()) & mask(width);
    fits.then(|| (bits(quotient), bits(remainder)))
}
