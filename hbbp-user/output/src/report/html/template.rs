//! Disassembly in parts: a template that many instructions share, and the numbers and functions in which they differ.
//!
//! A profile has ten times as many instructions as templates, such as `mov     rax, [rdi+#]` and `call    @`.

use iced_x86::{FormatterOutput, FormatterTextKind, Instruction, NumberKind, SymbolResult};

/// Placeholder for a number; neither mark is part of Intel's syntax.
const NUMBER: char = '#';
/// Placeholder for the name of a function.
const FUNCTION: char = '@';
/// Numbers above this are not exact in a script.
const LARGEST: u64 = (1 << 53) - 1;

/// One instruction, written by a formatter.
#[derive(Debug, Default)]
pub(super) struct Template {
    /// Its text with marks.
    pub(super) text: String,
    /// The values of the marks for numbers, in their order.
    pub(super) numbers: Vec<u64>,
    /// The start addresses of the functions of the other marks.
    pub(super) functions: Vec<u64>,
}

impl FormatterOutput for Template {
    fn write(&mut self, text: &str, _kind: FormatterTextKind) {
        self.text.push_str(text);
    }

    fn write_number(
        &mut self,
        _instruction: &Instruction,
        _operand: u32,
        _instruction_operand: Option<u32>,
        text: &str,
        _value: u64,
        _number_kind: NumberKind,
        _kind: FormatterTextKind,
    ) {
        match parsed(text) {
            Some(number) => {
                self.text.push(NUMBER);
                self.numbers.push(number);
            }
            None => self.text.push_str(text),
        }
    }

    fn write_symbol(
        &mut self,
        _instruction: &Instruction,
        _operand: u32,
        _instruction_operand: Option<u32>,
        _address: u64,
        symbol: &SymbolResult<'_>,
    ) {
        self.text.push(FUNCTION);
        self.functions.push(symbol.address);
    }
}

/// A number that the page's script writes in the same way: decimal below ten, else hexadecimal.
fn parsed(text: &str) -> Option<u64> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    let shown = |number: u64| match number {
        0..10 => number.to_string(),
        _ => format!("{number:#x}"),
    };
    number
        .ok()
        .filter(|number| *number <= LARGEST && shown(*number) == text)
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, Formatter as _};

    use super::*;
    use hbbp_analysis::annotate::formatter;
    use hbbp_model::addr::ImageAddr;
    use hbbp_model::names::Demangle;
    use hbbp_model::snapshot::{Module, ModuleKind, Symbol};

    #[test]
    fn marks_replace_numbers_and_functions() {
        let module = Module {
            name: "a".to_owned(),
            kind: ModuleKind::Elf64,
            build_id: Vec::new(),
            symbols: vec![Symbol {
                start: ImageAddr(0x1010),
                len: 0x20,
                name: "f".to_owned(),
            }],
        };
        let mut formatter = formatter(&module, Demangle::On);
        let mut template = |bytes: &[u8]| {
            let mut template = Template::default();
            let instruction = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode();
            formatter.format(&instruction, &mut template);
            (template.text, template.numbers, template.functions)
        };
        let shown = |text: &str, numbers: &[u64], functions: &[u64]| {
            (text.to_owned(), numbers.to_vec(), functions.to_vec())
        };
        assert_eq!(
            template(&[0xe8, 0x0b, 0, 0, 0]),
            shown("call    @", &[], &[0x1010])
        );
        assert_eq!(
            template(&[0x75, 0x12]),
            shown("jne     short @+#", &[4], &[0x1010])
        );
        assert_eq!(template(&[0x75, 0x72]), shown("jne     short #", &[0x1074], &[]));
        assert_eq!(
            template(&[0x48, 0x8b, 0x47, 0xf0]),
            shown("mov     rax, [rdi-#]", &[0x10], &[])
        );
        let large = [0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(
            template(&large),
            shown("mov     rax, 0x807060504030201", &[], &[])
        );
    }
}
