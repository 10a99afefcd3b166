//! Text against that of two disassemblers, and of instructions put together by hand.

use iced_x86::{GasFormatter, IntelFormatter};

use super::*;

const OPERANDS: &str = include_str!("../../golden/operands.txt");

fn hex(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn intel(bytes: &[u8]) -> Option<String> {
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_branch_leading_zeros(false);
    options.set_space_after_operand_separator(true);
    options.set_rip_relative_addresses(true);
    let mut text = String::new();
    write(&mut formatter, bytes, 0, &mut text).map(|()| text)
}

fn gas(digits: &str) -> String {
    let mut text = String::new();
    write(&mut GasFormatter::new(), &hex(digits), 0, &mut text).unwrap();
    text
}

#[test]
fn operands_are_those_of_two_disassemblers() {
    let lines: Vec<&str> = OPERANDS.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(3_000 < lines.len());
    for line in lines {
        let (digits, expected) = line.split_once(' ').unwrap();
        assert_eq!(intel(&hex(digits)).as_deref(), Some(expected), "{digits}");
    }
}

#[test]
fn syntax_of_at_and_t_has_the_destination_last() {
    for (digits, expected) in [
        ("d51801c8", "add %rcx,%r16"),
        ("62f4e41c01c1", "{nf} add %rax,%rcx,%rbx"),
        ("62f46418830111", "addl $0x11,(%rcx),%ebx"),
        ("62f4840539c1", "ccmpne {dfv=} %rax,%rcx"),
        ("62f48405833911", "ccmpneq {dfv=} $0x11,(%rcx)"),
        ("62cc0410fff2", "push2 %r26,%r31"),
        ("62f27d484aca", "tilemovrow %eax,%tmm2,%zmm1"),
        ("c4e77af8c144332211", "uwrmsr %rcx,$0x11223344"),
        ("626a7e2874d2", "vcvtph2bf8 %ymm2,%xmm26"),
    ] {
        assert_eq!(gas(digits), expected, "{digits}");
    }
}

#[test]
fn registers_may_be_the_same_in_the_nearest_instruction() {
    for (digits, expected) in [
        // The higher half of the index alone means that there is one.
        ("d5288b0420", "mov rax, [rax+r20]"),
        ("d5388b0400", "mov rax, [r16+r16]"),
        ("d5108b0400", "mov eax, [r16+rax]"),
        ("d5208b0400", "mov eax, [rax+r16]"),
        ("d51887c0", "xchg r16, rax"),
        ("d51090", "xchg r16d, eax"),
        ("d5106bc011", "imul eax, r16d, 0x11"),
        // The count of a shift is a register that no field has.
        ("d510d3e1", "shl r17d, cl"),
    ] {
        assert_eq!(intel(&hex(digits)).as_deref(), Some(expected), "{digits}");
    }
}

#[test]
fn what_iced_knows_has_no_text_here() {
    for digits in [
        "4801c8",
        "c5f058c1",
        "62f17c4858c1",
        "0f0b",
        "06",
        "",
        "d5",
        "62f4",
        "c4e77bf8",
    ] {
        assert_eq!(intel(&hex(digits)), None, "{digits}");
    }
}
