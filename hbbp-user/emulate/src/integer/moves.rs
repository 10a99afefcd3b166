//! Moves, exchanges and extensions, and what depends on a condition.

use iced_x86::{Instruction, Mnemonic as M, OpKind, Register};

use crate::end::End;
use crate::flags::{AF, CF, DF, PF, SF, ZF};
use crate::machine::Machine;
use crate::operands::{RAX, RDX, width};
use crate::value::Value;

/// The flags that LAHF and SAHF move.
const LOW_FLAGS: u64 = 1 << CF | 1 << PF | 1 << AF | 1 << ZF | 1 << SF;

impl Machine {
    pub(crate) fn move_value(&mut self, it: &Instruction) -> Result<(), End> {
        let (to, from) = (width(it, 0), width(it, 1));
        if it.mnemonic() == M::Lea {
            let address = self.effective_address(it, Some(0)).truncated(to);
            return self.set_operand(it, 0, address);
        }
        // Segment, control and debug registers have no part in user code that is emulated.
        if it.op0_register().is_segment_register() {
            return Err(End::NotEmulated);
        }
        if it.op1_kind() == OpKind::Register && !it.op1_register().is_gpr() {
            return self.set_operand(it, 0, Value::UNKNOWN.truncated(to));
        }
        let value = self.operand(it, 1)?;
        let value = match it.mnemonic() {
            M::Movsx | M::Movsxd => value.sign_extended(from, to),
            M::Movbe => swapped(value, to),
            _ => value,
        };
        self.set_operand(it, 0, value)
    }

    pub(crate) fn exchange(&mut self, it: &Instruction) -> Result<(), End> {
        match it.mnemonic() {
            M::Bswap => {
                let value = self.operand(it, 0)?;
                let value = match width(it, 0) {
                    16 => Value::UNKNOWN,
                    width => swapped(value, width),
                };
                self.set_operand(it, 0, value)
            }
            M::Xlatb => {
                let address = self.address(it)?;
                let value = self.load_at(address, 8);
                self.set_register(Register::AL, value)
            }
            _ => {
                let (a, b) = (self.operand(it, 0)?, self.operand(it, 1)?);
                // The address may depend on the register.
                let (memory, register) = if it.op0_kind() == OpKind::Memory {
                    (0, 1)
                } else {
                    (1, 0)
                };
                let (to_memory, to_register) = if memory == 0 { (b, a) } else { (a, b) };
                self.set_operand(it, memory, to_memory)?;
                self.set_operand(it, register, to_register)
            }
        }
    }

    /// CBW and its kin: the sign of the accumulator.
    pub(crate) fn extend(&mut self, it: &Instruction) -> Result<(), End> {
        let a = self.registers[RAX];
        match it.mnemonic() {
            M::Cbw => self.set_register(Register::AX, a.sign_extended(8, 16)),
            M::Cwde => self.set_register(Register::EAX, a.sign_extended(16, 32)),
            M::Cdqe => self.set_register(Register::RAX, a.sign_extended(32, 64)),
            M::Cwd => self.set_register(Register::DX, a.shr(15).truncated(1).sign_extended(1, 16)),
            M::Cdq => self.set_register(Register::EDX, a.shr(31).truncated(1).sign_extended(1, 32)),
            _ => {
                self.registers[RDX] = a.shr(63).sign_extended(1, 64);
                Ok(())
            }
        }
    }

    /// SETcc, and CMOVcc, which loads whatever the condition, and clears the upper half of a register of 32 bits.
    pub(crate) fn conditional(&mut self, it: &Instruction) -> Result<(), End> {
        let holds = self.condition(it.condition_code());
        let is_integer = it.op0_kind() == OpKind::Memory || it.op0_register().is_gpr();
        match it.op_count() {
            1 if is_integer => self.set_operand(it, 0, Value::known(0).with_bit(0, holds)),
            2 if is_integer => {
                let (old, new) = (self.operand(it, 0)?, self.operand(it, 1)?);
                let value = match holds {
                    Some(true) => new,
                    Some(false) => old,
                    None => old.either(new),
                };
                self.set_operand(it, 0, value)
            }
            // Of floating point and others.
            _ => self.opaque(it),
        }
    }

    pub(crate) fn change_flags(&mut self, it: &Instruction) -> Result<(), End> {
        match it.mnemonic() {
            M::Clc => self.set_flag(CF, Some(false)),
            M::Stc => self.set_flag(CF, Some(true)),
            M::Cmc => self.set_flag(CF, self.flag(CF).map(|carry| !carry)),
            M::Cld => self.set_flag(DF, Some(false)),
            M::Std => self.set_flag(DF, Some(true)),
            M::Sahf => self.flags = self.flags.with(self.registers[RAX].shr(8), LOW_FLAGS),
            _ => {
                // Bit 1 is always set (SDM vol. 2, LAHF).
                let flags = Value::known(1 << 1).with(self.flags, LOW_FLAGS);
                return self.set_register(Register::AH, flags);
            }
        }
        Ok(())
    }
}

/// The bytes of `width` bits in the other order.
fn swapped(value: Value, width: u32) -> Value {
    let value = Value::partly(value.bits.swap_bytes(), value.known.swap_bytes());
    value.shr(64 - width)
}
