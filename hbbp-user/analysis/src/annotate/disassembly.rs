//! Instructions as text, in the syntax of the Intel manuals; targets of branches are named.

use hbbp_decode::{Decoder, Modern};
use iced_x86::{
    Formatter as _, FormatterOutput, FormatterTextKind, Instruction, IntelFormatter, SymbolResolver,
    SymbolResult,
};

use crate::mix::function;
use hbbp_model::addr::ImageAddr;
use hbbp_model::names::{self, Demangle};
use hbbp_model::snapshot::Module;

/// The column of the first operand.
const OPERANDS_AT: usize = 8;

/// Shown for bytes that are not an instruction.
const BAD: &str = "(bad)";

/// One decoded instruction as text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Disassembled {
    /// Its address.
    pub addr: ImageAddr,
    /// Length in bytes.
    pub len: usize,
    /// The text.
    pub text: String,
}

/// Disassembles code of a module from `start` on; bytes that are no instruction are skipped one by one, as `(bad)`.
pub fn disassembled(
    module: &Module,
    start: ImageAddr,
    bytes: &[u8],
    demangle: Demangle,
) -> Vec<Disassembled> {
    let Ok(mut decoder) = Decoder::try_with_ip(module.kind.bits(), bytes, start.0) else {
        return Vec::new();
    };
    let mut formatter = formatter(module, demangle);
    let mut found = Vec::new();
    while decoder.position() < bytes.len() {
        let position = decoder.position();
        let instruction = decoder.decode();
        let (len, text) = if instruction.is_invalid() {
            (1, BAD.to_owned())
        } else {
            let of = bytes.get(position..position + instruction.len()).unwrap_or(&[]);
            let mut text = String::new();
            write_decoded(&mut formatter, &instruction, decoder.modern(), of, &mut text);
            (instruction.len(), text)
        };
        let addr = ImageAddr(start.0.wrapping_add(position as u64));
        found.push(Disassembled { addr, len, text });
        let next = position + len;
        if decoder.go_to(next, start.0.wrapping_add(next as u64)).is_err() {
            break;
        }
    }
    found
}

/// One instruction of a module, alone; `(bad)` where the bytes are none.
pub fn instruction(formatter: &mut IntelFormatter, bits: u32, addr: ImageAddr, bytes: &[u8]) -> String {
    let mut text = String::new();
    write_instruction(formatter, bits, addr, bytes, &mut text);
    text
}

/// Writes one instruction of a module; `(bad)` where the bytes are none.
pub fn write_instruction(
    formatter: &mut IntelFormatter,
    bits: u32,
    addr: ImageAddr,
    bytes: &[u8],
    out: &mut dyn FormatterOutput,
) {
    let decoder = Decoder::try_with_ip(bits, bytes, addr.0);
    let decoded = decoder.map(|mut decoder| (decoder.decode(), decoder.modern()));
    let (instruction, modern) = decoded.unwrap_or_default();
    if instruction.is_invalid() {
        out.write(BAD, FormatterTextKind::Text);
    } else {
        let bytes = bytes.get(..instruction.len()).unwrap_or(bytes);
        write_decoded(formatter, &instruction, modern, bytes, out);
    }
}

/// Writes an instruction of these bytes.
fn write_decoded(
    formatter: &mut IntelFormatter,
    instruction: &Instruction,
    modern: Option<Modern>,
    bytes: &[u8],
    out: &mut dyn FormatterOutput,
) {
    // The formatter has no names for what iced-x86 does not know.
    let is_written =
        modern.is_some() && hbbp_decode::write(formatter, bytes, instruction.ip(), out).is_some();
    if !is_written {
        formatter.format(instruction, out);
    }
}

/// The formatter for the code of a module.
pub fn formatter(module: &Module, demangle: Demangle) -> IntelFormatter {
    let names = Names {
        module: module.clone(),
        demangle,
    };
    let mut formatter = IntelFormatter::with_options(Some(Box::new(names)), None);
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_branch_leading_zeros(false);
    options.set_space_after_operand_separator(true);
    options.set_first_operand_char_index(OPERANDS_AT as u32);
    options.set_rip_relative_addresses(true);
    formatter
}

/// Names the targets of branches by the functions of the module that were hit.
struct Names {
    module: Module,
    demangle: Demangle,
}

impl SymbolResolver for Names {
    fn symbol(
        &mut self,
        instruction: &Instruction,
        _operand: u32,
        instruction_operand: Option<u32>,
        address: u64,
        _size: u32,
    ) -> Option<SymbolResult<'_>> {
        // Immediate values and displacements only look like addresses.
        if instruction_operand != Some(0) || instruction.near_branch_target() != address {
            return None;
        }
        let symbol = self.module.symbol_at(ImageAddr(address))?;
        let name = function(&self.module, symbol.start)?;
        let name = names::function(&name, self.demangle);
        Some(SymbolResult::with_string(symbol.start.0, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hbbp_model::snapshot::{ModuleKind, Symbol};

    #[test]
    fn branch_targets_are_named() {
        let module = Module {
            name: "/bin/a".to_owned(),
            kind: ModuleKind::Elf64,
            build_id: Vec::new(),
            symbols: vec![Symbol {
                start: ImageAddr(0x1010),
                len: 0x20,
                name: "_ZN5space3fooEi".to_owned(),
            }],
        };
        let code = [
            0xe8, 0x0b, 0, 0, 0, // call 0x1010
            0x75, 0x0d, // jne 0x1014
            0x48, 0x8b, 0x47, 0x10, // mov rax, [rdi+0x10]
            0x06, // not valid in 64-bit code
            0xb8, 0x10, 0x10, 0, 0, // mov eax, 0x1010
            0xd5, 0x18, 0x01, 0xc8, // add r16, rcx
            0x62, 0xf5, 0x7d, 0x08, 0x58, 0xd1, // vaddbf16 xmm2, xmm0, xmm1
            0xd5, 0, 0xa1, 0x14, 0x10, 0, 0, 0, 0, 0, 0, // jmpabs 0x1014
        ];
        let shown = disassembled(&module, ImageAddr(0x1000), &code, Demangle::On);
        let shown: Vec<_> = shown
            .iter()
            .map(|line| (line.addr.0, line.text.as_str()))
            .collect();
        let expected = [
            (0x1000, "call    space::foo"),
            (0x1005, "jne     short space::foo+4"),
            (0x1007, "mov     rax, [rdi+0x10]"),
            (0x100b, "(bad)"),
            (0x100c, "mov     eax, 0x1010"),
            (0x1011, "add     r16, rcx"),
            (0x1015, "vaddbf16 xmm2, xmm0, xmm1"),
            (0x101b, "jmpabs  space::foo+4"),
        ];
        assert_eq!(shown, expected);
    }
}
