//! Sums and differences.

use iced_x86::{Instruction, Mnemonic as M, OpKind, Register};

use crate::end::End;
use crate::flags::{AF, CF, OF, STATUS, ZF, difference, sum};
use crate::machine::Machine;
use crate::operands::{RAX, RBX, RCX, RDX, width};
use crate::value::Value;

impl Machine {
    pub(crate) fn add(&mut self, it: &Instruction) -> Result<(), End> {
        let width = width(it, 0);
        let (mut a, mut b) = (self.operand(it, 0)?, self.operand(it, 1)?);
        let is_difference = matches!(it.mnemonic(), M::Sub | M::Sbb | M::Cmp);
        if is_difference && is_same_register(it) {
            // The difference of a register from itself is known even if the register is not.
            (a, b) = (Value::known(0), Value::known(0));
        }
        match it.mnemonic() {
            M::Add => {
                let result = self.sum(a, b, Some(false), width);
                self.set_operand(it, 0, result)
            }
            M::Adc => {
                let result = self.sum(a, b, self.flag(CF), width);
                self.set_operand(it, 0, result)
            }
            M::Sub => {
                let result = self.difference(a, b, Some(false), width);
                self.set_operand(it, 0, result)
            }
            M::Sbb => {
                let result = self.difference(a, b, self.flag(CF), width);
                self.set_operand(it, 0, result)
            }
            M::Cmp => {
                self.difference(a, b, Some(false), width);
                Ok(())
            }
            M::Xadd => {
                let result = self.sum(a, b, Some(false), width);
                // The address may depend on the register; where both are one, it gets the sum.
                if it.op0_kind() == OpKind::Memory {
                    self.set_operand(it, 0, result)?;
                    return self.set_operand(it, 1, a);
                }
                self.set_operand(it, 1, a)?;
                self.set_operand(it, 0, result)
            }
            _ => self.compare_exchange(it),
        }
    }

    fn compare_exchange(&mut self, it: &Instruction) -> Result<(), End> {
        let width = width(it, 0);
        let (old, new) = (self.operand(it, 0)?, self.operand(it, 1)?);
        let accumulator = match width {
            8 => Register::AL,
            16 => Register::AX,
            32 => Register::EAX,
            _ => Register::RAX,
        };
        self.difference(self.register(accumulator), old, Some(false), width);
        match self.flag(ZF) {
            Some(true) => self.set_operand(it, 0, new),
            Some(false) => {
                // Whether the upper half of a register of 32 bits is cleared depends on the processor.
                match it.op0_register() {
                    register if register.is_gpr32() => {
                        let either = self.register(register.full_register()).either(old);
                        self.set_register(register.full_register(), either)?;
                    }
                    _ => self.set_operand(it, 0, old)?,
                }
                self.set_register(accumulator, old)
            }
            None => {
                match it.op0_register() {
                    register if register.is_gpr32() => {
                        self.set_register(register.full_register(), Value::UNKNOWN)?;
                    }
                    _ => self.set_operand(it, 0, old.either(new))?,
                }
                self.registers[RAX] = Value::UNKNOWN;
                Ok(())
            }
        }
    }

    /// CMPXCHG8B and CMPXCHG16B.
    pub(crate) fn compare_pair(&mut self, it: &Instruction) -> Result<(), End> {
        let half = width(it, 0) / 2;
        let address = self.address(it)?.ok_or(End::UnknownAddress)?;
        if address % 16 != 0 && half == 64 {
            return Err(End::Fault);
        }
        let above = address.wrapping_add(u64::from(half / 8));
        let (low, high) = (
            self.memory.load_value(address, half),
            self.memory.load_value(above, half),
        );
        let part = |register: usize| self.registers[register].truncated(half);
        let is_zero = part(RAX).xor(low).or(part(RDX).xor(high)).is_zero(half);
        let (new_low, new_high) = (part(RBX), part(RCX));
        self.set_flag(ZF, is_zero);
        match is_zero {
            Some(true) => {
                self.memory.store_value(address, new_low, half)?;
                self.memory.store_value(above, new_high, half)
            }
            Some(false) => {
                self.registers[RAX] = low;
                self.registers[RDX] = high;
                Ok(())
            }
            None => {
                self.memory.store_value(address, new_low.either(low), half)?;
                self.memory.store_value(above, new_high.either(high), half)?;
                self.registers[RAX] = Value::UNKNOWN;
                self.registers[RDX] = Value::UNKNOWN;
                Ok(())
            }
        }
    }

    /// INC and DEC, which leave CF, and NEG.
    pub(crate) fn count(&mut self, it: &Instruction) -> Result<(), End> {
        let width = width(it, 0);
        let a = self.operand(it, 0)?;
        let carry = self.flag(CF);
        let (zero, one) = (Value::known(0), Value::known(1));
        let result = match it.mnemonic() {
            M::Inc => self.sum(a, one, Some(false), width),
            M::Dec => self.difference(a, one, Some(false), width),
            _ => self.difference(zero, a, Some(false), width),
        };
        if it.mnemonic() != M::Neg {
            self.set_flag(CF, carry);
        }
        self.set_operand(it, 0, result)
    }

    /// ADCX and ADOX: a sum with one flag as its carry, which leaves the others.
    pub(crate) fn add_with_flag(&mut self, it: &Instruction) -> Result<(), End> {
        let width = width(it, 0);
        let flag = if it.mnemonic() == M::Adcx { CF } else { OF };
        let (a, b) = (self.operand(it, 0)?.get(width), self.operand(it, 1)?.get(width));
        let sum = match (a, b, self.flag(flag)) {
            (Some(a), Some(b), Some(carry)) => Some(sum(a, b, carry, width)),
            _ => None,
        };
        self.set_flag(flag, sum.as_ref().map(|sum| sum.carries >> (width - 1) & 1 != 0));
        self.set_operand(it, 0, Value::of(sum.map(|sum| sum.result), width))
    }

    fn sum(&mut self, a: Value, b: Value, carry: Option<bool>, width: u32) -> Value {
        match (a.get(width), b.get(width), carry) {
            (Some(a), Some(b), Some(carry)) => {
                let sum = sum(a, b, carry, width);
                self.set_carry_flags(Value::known(sum.result), sum.carries, width);
                Value::known(sum.result)
            }
            _ => self.unknown_result(width),
        }
    }

    pub(crate) fn difference(&mut self, a: Value, b: Value, borrow: Option<bool>, width: u32) -> Value {
        match (a.get(width), b.get(width), borrow) {
            (Some(a), Some(b), Some(borrow)) => {
                let difference = difference(a, b, borrow, width);
                self.set_carry_flags(Value::known(difference.result), difference.carries, width);
                Value::known(difference.result)
            }
            _ => {
                let is_same = a.xor(b).is_zero(width);
                let result = self.unknown_result(width);
                // One bit that differs is enough to know that the whole does.
                if borrow == Some(false) && is_same == Some(false) {
                    self.set_flag(ZF, Some(false));
                }
                result
            }
        }
    }

    /// An unknown result of `width` bits, and unknown flags.
    fn unknown_result(&mut self, width: u32) -> Value {
        self.forget_flags(STATUS);
        Value::UNKNOWN.truncated(width)
    }

    /// Flags of which only CF and OF are defined.
    pub(crate) fn set_carry_and_overflow(&mut self, carry: Option<bool>, overflow: Option<bool>) {
        self.set_flag(CF, carry);
        self.set_flag(OF, overflow);
        self.set_flag(AF, None);
    }
}

/// Whether both operands are one register.
pub(crate) fn is_same_register(it: &Instruction) -> bool {
    it.op0_kind() == OpKind::Register
        && it.op1_kind() == OpKind::Register
        && it.op0_register() == it.op1_register()
}
