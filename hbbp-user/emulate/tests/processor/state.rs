//! States by chance, whose operands in memory lie in the area.

use hbbp_emulate::{Machine, Value};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::generator::Chance;
use crate::shared_memory::{AREA, AREA_BYTES, BASE};
use crate::stepped::{Registers, Vectors, in_order, in_order_mut, machine};

/// A state before a step.
pub(crate) struct State {
    pub(crate) registers: Registers,
    pub(crate) vectors: Vectors,
    pub(crate) area: [u8; AREA_BYTES],
}

impl State {
    pub(crate) fn new(chance: &mut Chance) -> Self {
        // SAFETY: zeros are registers.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        let it = &mut registers;
        for register in in_order_mut(it) {
            *register = chance.value();
        }
        it.eflags = 0x202 | chance.bits() & 0x8d5;
        if chance.is(20) {
            it.eflags |= 0x400;
        }
        let mut area = [0; AREA_BYTES];
        area.chunks_exact_mut(8)
            .for_each(|chunk| chunk.copy_from_slice(&chance.value().to_le_bytes()));
        let mut vectors = Vectors {
            zmm: [[0; 64]; 32],
            masks: [0; 8],
        };
        for vector in &mut vectors.zmm {
            vector
                .chunks_exact_mut(8)
                .for_each(|chunk| chunk.copy_from_slice(&chance.value().to_le_bytes()));
            if chance.is(30) {
                // Bytes that are equal somewhere.
                vector.copy_from_slice(&area[..64]);
            }
        }
        vectors.masks.fill_with(|| chance.value());
        Self {
            registers,
            vectors,
            area,
        }
    }

    pub(crate) fn set(&mut self, register: Register, value: u64) {
        let number = register.full_register().number();
        *in_order_mut(&mut self.registers)[number] = value;
    }

    /// Leads the operands in memory into the area.
    pub(crate) fn aim(&mut self, it: &Instruction, target: u64, chance: &mut Chance) {
        if it.is_stack_instruction() || it.mnemonic() == Mnemonic::Leave {
            self.set(Register::RSP, AREA + 512 + chance.below(20) * 8);
            self.set(Register::RBP, AREA + 512 + chance.below(20) * 8);
        }
        let segment = if it.has_segment_prefix() { BASE } else { 0 };
        if it.is_string_instruction() || it.mnemonic() == Mnemonic::Maskmovdqu {
            self.set(Register::RSI, target - segment);
            self.set(Register::RDI, AREA + 256 + chance.below(512));
            self.set(Register::RCX, chance.below(20));
        }
        let operands = 0..it.op_count();
        if !operands
            .into_iter()
            .any(|operand| it.op_kind(operand) == OpKind::Memory)
        {
            return;
        }
        let target = target.wrapping_sub(segment);
        let (base, index) = (it.memory_base(), it.memory_index());
        let offset = it.memory_displacement64();
        let index_value = match index {
            Register::None => 0,
            _ if index.is_gpr() => in_order(&self.registers)[index.full_register().number()],
            _ => return,
        };
        let index_value = if index.is_gpr32() {
            index_value & 0xffff_ffff
        } else {
            index_value
        };
        // AL of XLAT.
        let index_value = if index.is_gpr8() {
            index_value & 0xff
        } else {
            index_value
        };
        let scale = u64::from(it.memory_index_scale());
        if base.is_gpr() && base != index {
            let value = target
                .wrapping_sub(offset)
                .wrapping_sub(index_value.wrapping_mul(scale));
            self.set(base, value);
        } else if index.is_gpr() {
            // Of a base that is the index the factor is one more.
            let factor = if base.is_gpr() { scale + 1 } else { scale };
            self.set(index, target.wrapping_sub(offset) / factor);
        }
    }

    /// The same for the emulator. Where there is chance, parts of it are unknown.
    pub(crate) fn machine(&self, code: &[u8], chance: Option<&mut Chance>) -> Machine {
        let mut machine = machine(&self.registers, &self.vectors);
        machine.memory.add_text(self.registers.rip, code).unwrap();
        let Some(chance) = chance else {
            machine.memory.add(AREA, &self.area).unwrap();
            return machine;
        };
        for (address, bytes) in (AREA..).step_by(4).zip(self.area.chunks(4)) {
            if !chance.is(4) {
                machine.memory.add(address, bytes).unwrap();
            }
        }
        forget(&mut machine, chance);
        machine
    }
}

/// Makes parts of registers unknown.
fn forget(machine: &mut Machine, chance: &mut Chance) {
    for value in &mut machine.registers {
        let known = match chance.below(8) {
            0 => 0,
            1 => chance.bits(),
            2 => 0xff,
            _ => u64::MAX,
        };
        *value = Value::partly(value.bits, known);
    }
    if chance.is(50) {
        machine.flags = Value::partly(machine.flags.bits, chance.bits());
    }
    for mask in &mut machine.masks {
        if chance.is(20) {
            *mask = Value::partly(mask.bits, chance.bits());
        }
    }
    for vector in &mut machine.vectors {
        if chance.is(40) {
            vector.known = chance.bits();
            let known = vector.known;
            let bytes = vector.bytes.iter_mut().enumerate();
            bytes
                .filter(|(at, _)| known >> at & 1 == 0)
                .for_each(|(_, byte)| *byte = 0);
        }
    }
}
