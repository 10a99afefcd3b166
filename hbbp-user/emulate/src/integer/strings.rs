//! String instructions, one repetition at a time, as interrupts see them (SDM vol. 2, REP).

use iced_x86::{Instruction, Mnemonic as M, OpKind, Register};

use crate::end::End;
use crate::flags::{DF, ZF};
use crate::machine::{Machine, canonical};
use crate::value::Value;

/// The registers of a string instruction, by its address size.
struct Registers {
    count: Register,
    source: Register,
    destination: Register,
}

impl Registers {
    fn of(it: &Instruction) -> Self {
        let kinds = [it.op0_kind(), it.op1_kind()];
        let is_narrow = kinds
            .iter()
            .any(|kind| matches!(kind, OpKind::MemorySegESI | OpKind::MemoryESEDI));
        if is_narrow {
            return Self {
                count: Register::ECX,
                source: Register::ESI,
                destination: Register::EDI,
            };
        }
        Self {
            count: Register::RCX,
            source: Register::RSI,
            destination: Register::RDI,
        }
    }
}

impl Machine {
    pub(crate) fn string(&mut self, it: &Instruction) -> Result<(), End> {
        let registers = Registers::of(it);
        let is_repeated = it.has_rep_prefix() || it.has_repne_prefix();
        if is_repeated {
            match self.register(registers.count).is_zero(64) {
                Some(true) => return Ok(()),
                Some(false) if self.register(registers.count).get(64).is_some() => {}
                _ => return Err(End::UnknownBranch),
            }
        }
        self.string_element(it, &registers)?;
        if !is_repeated {
            return Ok(());
        }
        let count = self.register(registers.count).get(64).map(|count| count - 1);
        self.set_register(registers.count, Value::of(count, 64))?;
        let is_compared = matches!(
            it.mnemonic(),
            M::Cmpsb | M::Cmpsw | M::Cmpsd | M::Cmpsq | M::Scasb | M::Scasw | M::Scasd | M::Scasq
        );
        let goes_on = match is_compared {
            false => true,
            true if count == Some(0) => false,
            true => self.flag(ZF).ok_or(End::UnknownBranch)? != it.has_repne_prefix(),
        };
        if goes_on && count != Some(0) {
            self.rip = it.ip();
        }
        Ok(())
    }

    fn string_element(&mut self, it: &Instruction, registers: &Registers) -> Result<(), End> {
        let bytes = it.memory_size().size();
        let width = u32::try_from(8 * bytes).unwrap_or(64);
        let backward = self.flag(DF).ok_or(End::UnknownAddress)?;
        let step = if backward {
            (bytes as u64).wrapping_neg()
        } else {
            bytes as u64
        };
        let segment = self.segment(it);
        let source = self.register(registers.source).get(64);
        let source_at = source.map(|at| canonical(at.wrapping_add(segment))).transpose()?;
        let destination = self.register(registers.destination).get(64);
        let accumulator = self.register(match width {
            8 => Register::AL,
            16 => Register::AX,
            32 => Register::EAX,
            _ => Register::RAX,
        });
        let (mut moves_source, mut moves_destination) = (true, true);
        match it.mnemonic() {
            M::Movsb | M::Movsw | M::Movsd | M::Movsq => {
                let value = self.load_at(source_at, width);
                self.store_at(destination.map(canonical).transpose()?, value, width)?;
            }
            M::Stosb | M::Stosw | M::Stosd | M::Stosq => {
                self.store_at(destination.map(canonical).transpose()?, accumulator, width)?;
                moves_source = false;
            }
            M::Lodsb | M::Lodsw | M::Lodsd | M::Lodsq => {
                let value = self.load_at(source_at, width);
                self.set_operand(it, 0, value)?;
                moves_destination = false;
            }
            M::Cmpsb | M::Cmpsw | M::Cmpsd | M::Cmpsq => {
                let a = self.load_at(source_at, width);
                let b = self.load_at(destination.map(canonical).transpose()?, width);
                self.difference(a, b, Some(false), width);
            }
            _ => {
                let b = self.load_at(destination.map(canonical).transpose()?, width);
                self.difference(accumulator, b, Some(false), width);
                moves_source = false;
            }
        }
        if moves_source {
            self.advance(registers.source, step)?;
        }
        if moves_destination {
            self.advance(registers.destination, step)?;
        }
        Ok(())
    }

    fn advance(&mut self, register: Register, step: u64) -> Result<(), End> {
        let value = self.register(register).get(64).map(|at| at.wrapping_add(step));
        self.set_register(register, Value::of(value, 64))
    }
}
