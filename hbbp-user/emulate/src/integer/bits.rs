//! Tests, counts and extractions of bits.

use iced_x86::{Instruction, Mnemonic as M, OpKind};

use crate::end::End;
use crate::flags::{AF, CF, OF, PF, SF, STATUS, ZF};
use crate::machine::Machine;
use crate::operands::width;
use crate::value::{Value, mask};

impl Machine {
    pub(crate) fn test_bit(&mut self, it: &Instruction) -> Result<(), End> {
        let width = width(it, 0);
        let index = self.operand(it, 1)?;
        let is_memory = it.op0_kind() == OpKind::Memory;
        let mut address = None;
        if is_memory && it.op1_kind() == OpKind::Register {
            // The index is signed, and goes beyond the operand.
            let index = index.sign_extended(width, 64).get(64).map(u64::cast_signed);
            let offset = index.map(|index| (index >> width.ilog2()) * i64::from(width / 8));
            address = self.address_at(it, offset.map(i64::cast_unsigned))?;
        } else if is_memory {
            address = self.address(it)?;
        }
        let a = if is_memory {
            self.load_at(address, width)
        } else {
            self.operand(it, 0)?
        };
        let index = index
            .get(width.ilog2())
            .and_then(|index| u32::try_from(index).ok());
        let bit = index.and_then(|index| a.bit(index));
        self.set_flag(CF, bit);
        self.forget_flags(1 << OF | 1 << SF | 1 << AF | 1 << PF);
        let new = match it.mnemonic() {
            M::Bt => return Ok(()),
            M::Bts => Some(true),
            M::Btr => Some(false),
            _ => bit.map(|bit| !bit),
        };
        let result = match index {
            Some(index) => a.with_bit(index, new),
            None => Value::UNKNOWN.truncated(width),
        };
        if is_memory {
            self.store_at(address, result, width)
        } else {
            self.set_operand(it, 0, result)
        }
    }

    pub(crate) fn count_bits(&mut self, it: &Instruction) -> Result<(), End> {
        let width = width(it, 0);
        let value = self.operand(it, 1)?;
        let is_zero = value.is_zero(width);
        self.forget_flags(STATUS);
        if matches!(it.mnemonic(), M::Bsf | M::Bsr) {
            self.set_flag(ZF, is_zero);
            if is_zero == Some(true) {
                // The destination stays (SDM vol. 2, BSF); whether that holds of the bits above 32 depends on the processor.
                let old = self.operand(it, 0)?;
                return match width {
                    32 => self.forget_above(it, old),
                    _ => Ok(()),
                };
            }
            if is_zero.is_none() {
                return self.forget_above(it, Value::UNKNOWN);
            }
        }
        let zeros_above = 64 - width;
        let result = value.get(width).map(|bits| match it.mnemonic() {
            M::Bsf => bits.trailing_zeros(),
            M::Bsr => 63 - bits.leading_zeros(),
            M::Tzcnt => bits.trailing_zeros().min(width),
            M::Lzcnt => bits.leading_zeros() - zeros_above,
            _ => bits.count_ones(),
        });
        match it.mnemonic() {
            M::Tzcnt | M::Lzcnt => {
                self.set_flag(CF, is_zero);
                self.set_flag(ZF, result.map(|n| n == 0));
            }
            M::Popcnt => {
                self.flags = self.flags.with(Value::known(0), STATUS);
                self.set_flag(ZF, is_zero);
            }
            _ => {}
        }
        self.set_operand(it, 0, Value::of(result.map(u64::from), width))
    }

    /// Leaves the lower 32 bits of a register, and makes the others unknown.
    fn forget_above(&mut self, it: &Instruction, old: Value) -> Result<(), End> {
        let register = it.op0_register().full_register();
        self.set_register(register, Value::UNKNOWN.with(old, mask(32)))
    }

    /// BMI1 and BMI2.
    pub(crate) fn extract_bits(&mut self, it: &Instruction) -> Result<(), End> {
        let width = width(it, 0);
        let a = self.operand(it, 1)?.get(width);
        let b = match it.op_count() {
            3 => self.operand(it, 2)?.get(width),
            _ => Some(0),
        };
        let inputs = a.zip(b);
        let result = inputs.map(|(a, b)| match it.mnemonic() {
            M::Blsi => a & a.wrapping_neg(),
            M::Blsr => a & a.wrapping_sub(1),
            M::Blsmsk => (a ^ a.wrapping_sub(1)) & mask(width),
            M::Bzhi => a & mask(low_byte(b)),
            M::Bextr => extracted(a, b),
            M::Pdep => deposited(a, b),
            _ => gathered(a, b),
        });
        let value = Value::of(result, width);
        let is_zero = a.map(|a| a == 0);
        match it.mnemonic() {
            M::Pdep | M::Pext => {}
            M::Bextr => {
                self.set_logic_flags(value, width);
                self.forget_flags(1 << SF | 1 << PF);
            }
            by => {
                self.set_logic_flags(value, width);
                self.forget_flags(1 << PF);
                self.set_flag(
                    CF,
                    match by {
                        M::Blsi => is_zero.map(|is_zero| !is_zero),
                        M::Bzhi => b.map(|b| width <= low_byte(b)),
                        _ => is_zero,
                    },
                );
            }
        }
        self.set_operand(it, 0, value)
    }

    /// CRC32C of the destination and the source (SDM vol. 2, CRC32).
    pub(crate) fn checksum(&mut self, it: &Instruction) -> Result<(), End> {
        /// The polynomial 0x11EDC6F41 with its bits reversed.
        const POLYNOMIAL: u64 = 0x82f6_3b78;
        let (crc, from) = (self.operand(it, 0)?.get(32), width(it, 1));
        let data = self.operand(it, 1)?.get(from);
        let result = crc.zip(data).map(|(crc, data)| {
            let bits = (0..from).map(|bit| data >> bit & 1);
            bits.fold(crc, |crc, bit| {
                let carry = (crc ^ bit) & 1;
                (crc >> 1) ^ (carry * POLYNOMIAL)
            })
        });
        self.set_operand(it, 0, Value::of(result, width(it, 0)))
    }
}

fn low_byte(value: u64) -> u32 {
    u32::from(value.to_le_bytes()[0])
}

/// BEXTR: the start in bits 0 to 7, the length in bits 8 to 15.
fn extracted(a: u64, control: u64) -> u64 {
    let (start, len) = (low_byte(control), low_byte(control >> 8));
    a.checked_shr(start).unwrap_or(0) & mask(len)
}

/// PDEP: the lowest bits go where the mask has ones.
fn deposited(a: u64, ones: u64) -> u64 {
    let (mut result, mut rest, mut from) = (0, ones, a);
    while rest != 0 {
        let lowest = rest & rest.wrapping_neg();
        if from & 1 != 0 {
            result |= lowest;
        }
        from >>= 1;
        rest ^= lowest;
    }
    result
}

/// PEXT: the bits where the mask has ones become the lowest.
fn gathered(a: u64, ones: u64) -> u64 {
    let (mut result, mut rest, mut n) = (0, ones, 0);
    while rest != 0 {
        let lowest = rest & rest.wrapping_neg();
        if a & lowest != 0 {
            result |= 1 << n;
        }
        n += 1;
        rest ^= lowest;
    }
    result
}
