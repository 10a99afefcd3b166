//! Moves between vectors, memory and general-purpose registers.

use iced_x86::{Instruction, Mnemonic as M, OpKind};

use super::Form;
use crate::end::End;
use crate::machine::Machine;
use crate::operands::width;
use crate::value::Value;
use crate::vector::Vector;

impl Machine {
    /// Whether it was a move.
    pub(super) fn move_vector(&mut self, it: &Instruction, form: Form) -> Result<bool, End> {
        match it.mnemonic() {
            M::Movdqa
            | M::Movaps
            | M::Movapd
            | M::Vmovdqa
            | M::Vmovaps
            | M::Vmovapd
            | M::Movntdq
            | M::Movntps
            | M::Movntpd
            | M::Movntdqa
            | M::Vmovntdq
            | M::Vmovntps
            | M::Vmovntpd
            | M::Vmovntdqa
            | M::Vmovdqa32
            | M::Vmovdqa64 => self.move_whole(it, form, true)?,
            M::Movdqu
            | M::Movups
            | M::Movupd
            | M::Lddqu
            | M::Vmovdqu
            | M::Vmovups
            | M::Vmovupd
            | M::Vlddqu
            | M::Vmovdqu8
            | M::Vmovdqu16
            | M::Vmovdqu32
            | M::Vmovdqu64 => self.move_whole(it, form, false)?,
            M::Movd | M::Movq | M::Vmovd | M::Vmovq => self.move_low(it, form)?,
            M::Movss | M::Movsd | M::Vmovss | M::Vmovsd => {
                if it.op0_kind() != OpKind::Memory && it.op1_kind() != OpKind::Memory {
                    return Ok(false);
                }
                self.move_low(it, form)?;
            }
            M::Movlps | M::Movlpd | M::Vmovlps | M::Vmovlpd => self.move_half(it, form, 0)?,
            M::Movhps | M::Movhpd | M::Vmovhps | M::Vmovhpd => self.move_half(it, form, 8)?,
            M::Pmovmskb | M::Vpmovmskb => self.move_signs(it, form, 1)?,
            M::Movmskps | M::Vmovmskps => self.move_signs(it, form, 4)?,
            M::Movmskpd | M::Vmovmskpd => self.move_signs(it, form, 8)?,
            M::Pinsrb | M::Vpinsrb => self.insert(it, form, 1)?,
            M::Pinsrw | M::Vpinsrw => self.insert(it, form, 2)?,
            M::Pinsrd | M::Vpinsrd => self.insert(it, form, 4)?,
            M::Pinsrq | M::Vpinsrq => self.insert(it, form, 8)?,
            M::Pextrb | M::Vpextrb => self.extract(it, 1)?,
            M::Pextrw | M::Vpextrw => self.extract(it, 2)?,
            M::Pextrd | M::Vpextrd => self.extract(it, 4)?,
            M::Pextrq | M::Vpextrq => self.extract(it, 8)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn move_whole(&mut self, it: &Instruction, form: Form, is_aligned: bool) -> Result<(), End> {
        let value = self.vector_operand(it, 1, is_aligned)?;
        match it.op0_kind() {
            OpKind::Memory => self.store_vector(it, value, form.bytes, is_aligned),
            _ => self.set_vector(it, value, form),
        }
    }

    /// The lowest lane of 4 or 8 bytes; a vector gets zeros above.
    fn move_low(&mut self, it: &Instruction, form: Form) -> Result<(), End> {
        let is_vector = |operand: u32| it.op_register(operand).is_xmm();
        let bytes = match it.mnemonic() {
            M::Movss | M::Vmovss => 4,
            M::Movsd | M::Vmovsd => 8,
            // Between vectors it is MOVQ.
            _ => (0..2)
                .find(|operand| !is_vector(*operand))
                .map_or(8, |other| width(it, other) as usize / 8),
        };
        let value = match it.op1_kind() {
            OpKind::Memory => self.load_vector(it, bytes, false)?,
            _ => self.vector_register(it.op1_register()),
        };
        let value = Vector::from_bytes((0..bytes).map(|at| value.byte(at)));
        if is_vector(0) {
            self.set_vector(it, value, form)
        } else if it.op0_kind() == OpKind::Memory {
            self.store_vector(it, value, bytes, false)
        } else {
            self.set_operand(it, 0, lane_value(&value, 0, bytes))
        }
    }

    /// MOVLPS and MOVHPS, of which the other half stays.
    fn move_half(&mut self, it: &Instruction, form: Form, half: usize) -> Result<(), End> {
        if it.op0_kind() == OpKind::Memory {
            let value = self.vector_register(it.op1_register());
            let value = Vector::from_bytes((half..half + 8).map(|at| value.byte(at)));
            return self.store_vector(it, value, 8, false);
        }
        let mut value = self.vector_register(it.op_register(form.first));
        let loaded = self.load_vector(it, 8, false)?;
        (0..8).for_each(|at| value.set_byte(half + at, loaded.byte(at)));
        self.set_vector(it, value, form)
    }

    /// The sign of each lane.
    fn move_signs(&mut self, it: &Instruction, form: Form, lane: usize) -> Result<(), End> {
        let value = self.vector_register(it.op1_register());
        let tops = (lane - 1..form.bytes).step_by(lane);
        let signs = (0..).zip(tops).fold(Value::known(0), |signs, (bit, top)| {
            signs.with_bit(bit, value.byte(top).map(|byte| byte & 0x80 != 0))
        });
        self.set_register(it.op0_register().full_register(), signs)
    }

    fn insert(&mut self, it: &Instruction, form: Form, lane: usize) -> Result<(), End> {
        let mut value = self.vector_register(it.op_register(form.first));
        let from = form.first + 1 - u32::from(!form.is_vex && it.op_count() == 2);
        let inserted = match it.op_kind(from) {
            OpKind::Memory => {
                let address = self.address(it)?;
                self.load_at(address, u32::try_from(8 * lane).unwrap_or(64))
            }
            _ => self.register(it.op_register(from)),
        };
        let begin = usize::from(it.immediate8()) % (16 / lane) * lane;
        let bytes = inserted
            .bits
            .to_le_bytes()
            .into_iter()
            .zip(inserted.known.to_le_bytes());
        for (at, (byte, known)) in bytes.enumerate().take(lane) {
            value.set_byte(begin + at, (known == u8::MAX).then_some(byte));
        }
        self.set_vector(it, value, form)
    }

    fn extract(&mut self, it: &Instruction, lane: usize) -> Result<(), End> {
        let value = self.vector_register(it.op1_register());
        let begin = usize::from(it.immediate8()) % (16 / lane) * lane;
        let value = lane_value(&value, begin, lane);
        match it.op0_kind() {
            OpKind::Memory => {
                let address = self.address(it)?;
                self.store_at(address, value, u32::try_from(8 * lane).unwrap_or(64))
            }
            _ => self.set_register(it.op0_register().full_register(), value),
        }
    }
}

/// A lane, with zeros above.
fn lane_value(vector: &Vector, begin: usize, lane: usize) -> Value {
    (0..lane).rev().fold(Value::known(0), |value, at| {
        let byte = vector.byte(begin + at).map(u64::from);
        value.shl(8).with(Value::of(byte, 8), 0xff)
    })
}
