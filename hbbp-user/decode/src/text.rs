//! The text of instructions that iced-x86 does not know, by its formatters: the operands are those of the nearest
//! instruction, with the registers that are there.

use iced_x86::{Formatter, FormatterOutput, FormatterTextKind, Instruction, Mnemonic, OpKind, Register};

use crate::encoding::Encoding;
use crate::modern::Modern;
use crate::registers::{Field, Registers};
use crate::rewritten::Rewritten;

/// Writes the instruction at the beginning of these bytes of 64-bit code, where iced-x86 knows none but the decoder does.
/// `None` where there is no such instruction; nothing is written then.
pub fn write(
    formatter: &mut dyn Formatter,
    bytes: &[u8],
    ip: u64,
    out: &mut dyn FormatterOutput,
) -> Option<()> {
    let encoding = Encoding::read(bytes)?;
    let rewritten = encoding.with_operands()?;
    let mut instruction = rewritten.decoded(ip)?;
    let registers = encoding.registers();
    let decorations = encoding.decorations(rewritten.modern);
    write_mnemonic(
        formatter,
        &instruction,
        rewritten.modern,
        decorations.leaves_flags,
        out,
    );
    if let Some(flags) = decorations.default_flags {
        let names = ["of", "sf", "zf", "cf"].iter().enumerate();
        let set: Vec<&str> = names
            .filter(|(i, _)| flags & 8 >> i != 0)
            .map(|(_, name)| *name)
            .collect();
        out.write(&format!("{{dfv={}}} ", set.join(",")), FormatterTextKind::Text);
    }
    // Of AT&T, whose syntax has the destination last.
    let is_gas = formatter.format_register(Register::RAX).starts_with('%');
    let sigil = if is_gas { "%" } else { "" };
    let added = if decorations.has_second {
        Some(general(formatter, sigil, registers.second, size(&instruction)))
    } else if decorations.has_row && instruction.op_count() == 2 {
        Some(general(formatter, sigil, registers.second, 4))
    } else {
        None
    };
    // The number of the row follows the sources.
    let is_first = decorations.has_row == is_gas;
    if let Some(register) = added.as_ref().filter(|_| is_first) {
        out.write(register, FormatterTextKind::Register);
        formatter.format_operand_separator(&instruction, out);
    }
    let mut names = names(formatter, sigil, &rewritten, &instruction, registers);
    let (result, source) = (instruction.op0_register(), instruction.op1_register());
    if decorations.has_row {
        names.operands[1] = Some(format!("{sigil}tmm{}", source.number() & 7));
    }
    if decorations.has_half_result {
        let half = if result.is_zmm() { "ymm" } else { "xmm" };
        names.operands[0] = Some(format!("{sigil}{half}{}", result.number()));
    }
    if instruction.mnemonic() == Mnemonic::Imul && result == source {
        // The formatter leaves out a source that is the result, which it may only seem to be.
        instruction.set_op1_register(Register::None);
    }
    let mut named = Named { names, out };
    if decorations.is_reversed {
        formatter.format_operand(&instruction, &mut named, 1).ok()?;
        formatter.format_operand_separator(&instruction, &mut named);
        formatter.format_operand(&instruction, &mut named, 0).ok()?;
    } else {
        formatter.format_all_operands(&instruction, &mut named);
    }
    if let Some(register) = added.filter(|_| !is_first) {
        formatter.format_operand_separator(&instruction, out);
        out.write(&register, FormatterTextKind::Register);
    }
    Some(())
}

/// Writes the mnemonic up to the column of the operands.
fn write_mnemonic(
    formatter: &mut dyn Formatter,
    instruction: &Instruction,
    modern: Modern,
    leaves_flags: bool,
    out: &mut dyn FormatterOutput,
) {
    let mut mnemonic = String::new();
    formatter.format_mnemonic(instruction, &mut mnemonic);
    if let Some(name) = modern.mnemonic {
        let nearest = format!("{:?}", instruction.mnemonic()).to_lowercase();
        // In the syntax of AT&T, the size of operands in memory.
        let suffix = mnemonic.strip_prefix(&nearest).filter(|suffix| suffix.len() == 1);
        mnemonic = format!("{}{}", name.to_lowercase(), suffix.unwrap_or_default());
    }
    if leaves_flags {
        mnemonic = format!("{{nf}} {mnemonic}");
    }
    let width = formatter.options().first_operand_char_index() as usize;
    let blank = if mnemonic.len() < width { "" } else { " " };
    out.write_mnemonic(instruction, &format!("{mnemonic:<width$}{blank}"));
}

/// The size of the result in bytes.
fn size(instruction: &Instruction) -> usize {
    match instruction.op0_kind() {
        OpKind::Register => instruction.op0_register().size(),
        _ => instruction.memory_size().size(),
    }
}

/// The name of a general register of a size in bytes.
fn general(formatter: &mut dyn Formatter, sigil: &str, number: u8, size: usize) -> String {
    let (lowest, suffix) = match size {
        1 => (Register::AL, "b"),
        2 => (Register::AX, "w"),
        4 => (Register::EAX, "d"),
        _ => (Register::RAX, ""),
    };
    // SPL and others follow BH in the numbers of iced-x86.
    let skipped = if size == 1 && 4 <= number { 4 } else { 0 };
    match Register::try_from(lowest as usize + usize::from(number) + skipped) {
        Ok(register) if number < 16 => formatter.format_register(register).to_owned(),
        _ => format!("{sigil}r{number}{suffix}"),
    }
}

/// The names of registers that the formatter does not know.
#[derive(Debug, Default)]
struct Names {
    /// Of each operand.
    operands: [Option<String>; 5],
    base: Option<String>,
    index: Option<String>,
}

/// The names of the general registers of an instruction.
fn names(
    formatter: &mut dyn Formatter,
    sigil: &str,
    rewritten: &Rewritten,
    instruction: &Instruction,
    registers: Registers,
) -> Names {
    let mut names = Names::default();
    for field in Field::ALL {
        let Some(other) = other_in(rewritten, field) else {
            continue;
        };
        for (operand, name) in (0..instruction.op_count()).zip(&mut names.operands) {
            let register = instruction.op_register(operand);
            // XCHG of RAX with itself is a NOP without operands; of another register that is the first one.
            let is_there = other.op_count() == instruction.op_count() || operand == 0;
            if register.is_gpr() && is_there && register != other.op_register(operand) {
                let number = registers.number(field, low(register));
                *name = Some(general(formatter, sigil, number, register.size()));
            }
        }
    }
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    if base.is_gpr() {
        let number = registers.number(Field::Base, low(base));
        names.base = Some(general(formatter, sigil, number, base.size()));
    }
    if index.is_gpr() {
        let number = registers.index | low(index);
        names.index = Some(general(formatter, sigil, number, index.size()));
    }
    names
}

/// The lowest bits of the number of a register.
fn low(register: Register) -> u8 {
    let number = register.number();
    // SPL and others follow BH in the numbers of iced-x86.
    let skipped = if register.is_gpr8() && 8 <= number { 4 } else { 0 };
    u8::try_from((number - skipped) & 7).unwrap_or_default()
}

/// The nearest instruction with another register in a field, where it has one there.
fn other_in(rewritten: &Rewritten, field: Field) -> Option<Instruction> {
    let mut bytes = *rewritten.bytes();
    let is_legacy = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
    let at = bytes.iter().position(|byte| !is_legacy(byte))?;
    let (offset, bit) = match (bytes.get(at)? & 0xf0, field) {
        (0x40, Field::Reg) => (0, 4),
        (0x40, Field::Base) => (0, 1),
        // VEX and EVEX.
        (0xc0 | 0x60, Field::Reg) => (1, 0x80),
        (0xc0 | 0x60, Field::Base) => (1, 0x20),
        (0xc0 | 0x60, Field::Second) => (2, 0x40),
        _ => return None,
    };
    *bytes.get_mut(at + offset)? ^= bit;
    rewritten.decode(&bytes, 0)
}

/// Passes on what a formatter writes, with other names of registers.
struct Named<'a> {
    names: Names,
    out: &'a mut dyn FormatterOutput,
}

impl FormatterOutput for Named<'_> {
    fn write(&mut self, text: &str, kind: FormatterTextKind) {
        self.out.write(text, kind);
    }

    fn write_register(
        &mut self,
        instruction: &Instruction,
        _: u32,
        operand: Option<u32>,
        text: &str,
        register: Register,
    ) {
        let names = &mut self.names;
        let operand = operand.unwrap_or(u32::MAX);
        let is_memory = operand < instruction.op_count() && instruction.op_kind(operand) == OpKind::Memory;
        let name = if !is_memory {
            names.operands.get(operand as usize).cloned().flatten()
        } else if register == instruction.memory_base() && names.base.is_some() {
            // The base is written before the index, which may be the same one of the nearest instruction.
            names.base.take()
        } else if register == instruction.memory_index() {
            names.index.take()
        } else {
            None
        };
        self.out
            .write(name.as_deref().unwrap_or(text), FormatterTextKind::Register);
    }
}

#[cfg(test)]
mod tests;
