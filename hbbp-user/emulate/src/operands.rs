//! Registers and operands.

use iced_x86::{Instruction, OpKind, Register};

use crate::end::End;
use crate::machine::{Machine, canonical};
use crate::value::{Value, mask};

pub(crate) const RAX: usize = 0;
pub(crate) const RCX: usize = 1;
pub(crate) const RDX: usize = 2;
pub(crate) const RBX: usize = 3;
pub(crate) const RSP: usize = 4;
pub(crate) const RBP: usize = 5;

/// Bits of an operand.
pub(crate) fn width(instruction: &Instruction, operand: u32) -> u32 {
    let bytes = match instruction.op_kind(operand) {
        OpKind::Register => instruction.op_register(operand).size(),
        OpKind::Memory => instruction.memory_size().size(),
        _ => return width(instruction, 0),
    };
    u32::try_from(8 * bytes).unwrap_or(64)
}

/// Where a general-purpose register lies.
struct Part {
    index: usize,
    /// Bits below it, as of AH.
    shift: u32,
    width: u32,
}

impl Part {
    fn of(register: Register) -> Option<Self> {
        if !register.is_gpr() {
            return None;
        }
        let is_high = matches!(
            register,
            Register::AH | Register::BH | Register::CH | Register::DH
        );
        Some(Self {
            index: register.full_register().number(),
            shift: if is_high { 8 } else { 0 },
            width: u32::try_from(8 * register.size()).unwrap_or(64),
        })
    }
}

impl Machine {
    /// A register, with zeros above. Others than general-purpose ones are unknown.
    pub(crate) fn register(&self, register: Register) -> Value {
        let part = Part::of(register);
        let value = part.and_then(|part| {
            let value = self.registers.get(part.index)?;
            Some(value.shr(part.shift).truncated(part.width))
        });
        value.unwrap_or(Value::UNKNOWN)
    }

    /// Writes a register. Of 32 bits, it clears those above; of fewer, it leaves them.
    pub(crate) fn set_register(&mut self, register: Register, value: Value) -> Result<(), End> {
        let part = Part::of(register).ok_or(End::NotEmulated)?;
        let to = self.registers.get_mut(part.index).ok_or(End::NotEmulated)?;
        *to = match part.width {
            64 => value,
            32 => value.truncated(32),
            width => to.with(value.shl(part.shift), mask(width) << part.shift),
        };
        Ok(())
    }

    /// An operand, with zeros above.
    pub(crate) fn operand(&mut self, instruction: &Instruction, operand: u32) -> Result<Value, End> {
        let width = width(instruction, operand);
        match instruction.op_kind(operand) {
            OpKind::Register => Ok(self.register(instruction.op_register(operand))),
            OpKind::Memory => {
                let address = self.address(instruction)?;
                Ok(self.load_at(address, width))
            }
            _ => Ok(Value::known(instruction.immediate(operand)).truncated(width)),
        }
    }

    /// Writes an operand.
    pub(crate) fn set_operand(
        &mut self,
        instruction: &Instruction,
        operand: u32,
        value: Value,
    ) -> Result<(), End> {
        match instruction.op_kind(operand) {
            OpKind::Register => self.set_register(instruction.op_register(operand), value),
            OpKind::Memory => {
                let address = self.address(instruction)?;
                self.store_at(address, value, width(instruction, operand))
            }
            _ => Err(End::NotEmulated),
        }
    }

    /// Loads up to 64 bits. What lies at an unknown address is unknown.
    pub(crate) fn load_at(&mut self, address: Option<u64>, width: u32) -> Value {
        match address {
            Some(address) => self.memory.load_value(address, width),
            None => Value::UNKNOWN.truncated(width),
        }
    }

    /// Stores up to 64 bits.
    pub(crate) fn store_at(&mut self, address: Option<u64>, value: Value, width: u32) -> Result<(), End> {
        let address = address.ok_or(End::UnknownAddress)?;
        self.memory.store_value(address, value, width)
    }

    /// The address of the operand in memory, where it is known, before the instruction is executed.
    ///
    /// # Errors
    /// When it is one that no pointer may have.
    pub fn address(&self, instruction: &Instruction) -> Result<Option<u64>, End> {
        self.address_at(instruction, Some(0))
    }

    /// The same, that many bytes on.
    pub(crate) fn address_at(
        &self,
        instruction: &Instruction,
        offset: Option<u64>,
    ) -> Result<Option<u64>, End> {
        let address = self.effective_address(instruction, offset).get(64);
        let segment = self.segment(instruction);
        address
            .map(|address| canonical(address.wrapping_add(segment)))
            .transpose()
    }

    /// Where the segment of the operand in memory begins.
    pub(crate) fn segment(&self, instruction: &Instruction) -> u64 {
        match instruction.memory_segment() {
            Register::FS => self.fs_base,
            Register::GS => self.gs_base,
            _ => 0,
        }
    }

    /// The same without the segment, as LEA has it.
    pub(crate) fn effective_address(&self, instruction: &Instruction, offset: Option<u64>) -> Value {
        // Of an operand at an offset from RIP it is the whole address.
        let offset = offset.map(|offset| offset.wrapping_add(instruction.memory_displacement64()));
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        let is_narrow = [base, index]
            .iter()
            .any(|it| it.is_gpr32() || *it == Register::EIP);
        let part = |register: Register| match register {
            Register::None | Register::RIP | Register::EIP => Some(0),
            // Those of 32 bits have zeros above.
            _ => self.register(register).get(64),
        };
        let parts = part(base).zip(part(index)).zip(offset);
        let sum = parts.map(|((base, index), offset)| {
            let index = index.wrapping_mul(u64::from(instruction.memory_index_scale()));
            base.wrapping_add(index).wrapping_add(offset)
        });
        Value::of(sum, if is_narrow { 32 } else { 64 })
    }
}
