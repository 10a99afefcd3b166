//! The stack.

use iced_x86::{Code, Instruction, Mnemonic as M, Register};

use crate::end::End;
use crate::flags::{DF, STATUS};
use crate::machine::{Machine, canonical};
use crate::operands::{RBP, RSP};
use crate::value::Value;

impl Machine {
    /// Stores a value of `width` bits below the stack pointer.
    pub(crate) fn push(&mut self, value: Value, width: u32) -> Result<(), End> {
        let top = self.registers[RSP].get(64).ok_or(End::UnknownAddress)?;
        let top = canonical(top.wrapping_sub(u64::from(width / 8)))?;
        self.memory.store_value(top, value, width)?;
        self.registers[RSP] = Value::known(top);
        Ok(())
    }

    /// Loads a value of `width` bits at the stack pointer.
    pub(crate) fn pop(&mut self, width: u32) -> Result<Value, End> {
        let top = self.registers[RSP].get(64).ok_or(End::UnknownAddress)?;
        let value = self.memory.load_value(canonical(top)?, width);
        self.registers[RSP] = Value::known(top.wrapping_add(u64::from(width / 8)));
        Ok(value)
    }

    pub(crate) fn stack(&mut self, it: &Instruction) -> Result<(), End> {
        // Bytes of an operand on the stack: 2 or 8.
        let moved = it.stack_pointer_increment().unsigned_abs();
        let moved = if moved == 2 { 16 } else { 64 };
        match it.mnemonic() {
            M::Push => {
                let value = if it.op0_register().is_segment_register() {
                    Value::UNKNOWN
                } else if let Ok(immediate) = it.try_immediate(0) {
                    Value::known(immediate)
                } else {
                    self.operand(it, 0)?
                };
                self.push(value, moved)
            }
            M::Pop if it.op0_register().is_segment_register() => Err(End::NotEmulated),
            M::Pop => {
                let value = self.pop(moved)?;
                // An address by RSP has the new one.
                self.set_operand(it, 0, value)
            }
            M::Pushf | M::Pushfq => {
                // Of a user's flags, bit 1 and IF are set, and the others up to NT are clear; AC and ID may be either.
                let fixed = Value::partly(0x202, 0xffff);
                let flags = fixed.with(self.flags, STATUS | 1 << DF);
                self.push(flags, moved)
            }
            M::Popf | M::Popfq => {
                let flags = self.pop(moved)?;
                self.flags = self.flags.with(flags, STATUS | 1 << DF);
                Ok(())
            }
            _ => {
                self.registers[RSP] = self.registers[RBP];
                match it.code() {
                    Code::Leavew => self
                        .pop(16)
                        .and_then(|value| self.set_register(Register::BP, value)),
                    _ => self
                        .pop(64)
                        .and_then(|value| self.set_register(Register::RBP, value)),
                }
            }
        }
    }
}
