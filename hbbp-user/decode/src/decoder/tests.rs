//! The decoder against what assemblers make and two disassemblers agree on.

use iced_x86::{Decoder as Iced, DecoderOptions, InstructionInfoFactory, OpAccess};
use proptest::prelude::*;
use std::collections::HashSet;

use super::*;
use crate::modern::Extension;

const ENCODINGS: &str = include_str!("../../golden/encodings.txt");
const IP: u64 = 0x40_1000;

fn one(bytes: &[u8]) -> (Instruction, Option<Modern>) {
    let mut decoder = Decoder::try_with_ip(64, bytes, IP).unwrap();
    (decoder.decode(), decoder.modern())
}

fn mnemonic(instruction: &Instruction, modern: Option<Modern>) -> String {
    let other = modern.and_then(|modern| modern.mnemonic).map(str::to_lowercase);
    other.unwrap_or_else(|| format!("{:?}", instruction.mnemonic()).to_lowercase())
}

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Whether the operand in memory is read and written.
fn access(bytes: &[u8]) -> (bool, bool) {
    let instruction = one(bytes).0;
    let mut info = InstructionInfoFactory::new();
    let memory = info.info(&instruction).used_memory();
    let is = |wanted: &[OpAccess]| memory.iter().any(|memory| wanted.contains(&memory.access()));
    (
        is(&[OpAccess::Read, OpAccess::CondRead, OpAccess::ReadWrite]),
        is(&[OpAccess::Write, OpAccess::CondWrite, OpAccess::ReadWrite]),
    )
}

#[test]
fn lengths_and_mnemonics_are_those_of_two_disassemblers() {
    let lines: Vec<&str> = ENCODINGS.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(8_000 < lines.len());
    let iced = iced_x86::Mnemonic::values().map(|known| format!("{known:?}").to_uppercase());
    let known: HashSet<String> = iced.chain(mnemonics().map(str::to_owned)).collect();
    for line in lines {
        let (digits, expected) = line.split_once(' ').unwrap();
        let bytes = hex(digits);
        let mut followed = bytes.clone();
        followed.extend([0x90; 15]);
        let (instruction, modern) = one(&followed);
        assert_eq!(instruction.len(), bytes.len(), "{line}");
        assert_eq!(mnemonic(&instruction, modern), expected, "{line}");
        let named = modern.unwrap().mnemonic;
        assert!(named.is_none_or(|named| known.contains(named)), "{line}");
        assert_eq!(instruction.ip(), IP, "{line}");
        // Where text ends too early there is no instruction.
        let cut = &bytes[..bytes.len() - 1];
        assert!(one(cut).0.len() < bytes.len(), "{line}");
    }
}

#[test]
fn a_new_destination_leaves_memory_as_it_is() {
    // {evex} add [rcx], rax writes; add rbx, [rcx], rax does not. Likewise with an immediate value, and for shifts and NEG.
    for (plain, new) in [
        ("62f4fc080101", "62f4e4180101"),
        ("62f4fc08830111", "62f4e418830111"),
        ("62f4fc08c12111", "62f4e418c12111"),
        ("62f4fc08d121", "62f4e418d121"),
        ("62f4fc08f719", "62f4e418f719"),
        ("62f4fc08ff01", "62f4e418ff01"),
        ("62f4fc08240111", "62f4e418240111"),
    ] {
        assert_eq!(access(&hex(plain)), (true, true), "{plain}");
        assert_eq!(access(&hex(new)), (true, false), "{new}");
        let modern = one(&hex(new)).1.unwrap();
        assert!(modern.has_new_destination && modern.extension == Extension::ApxF);
        let name = |digits: &str| {
            let (instruction, modern) = one(&hex(digits));
            mnemonic(&instruction, modern)
        };
        assert_eq!(name(plain), name(new));
    }
    // CFCMOVE stores with one form and loads with the other.
    assert_eq!(access(&hex("62f4fc0c4401")), (false, true));
    assert_eq!(access(&hex("62f4fc084401")), (true, false));
}

#[test]
fn addresses_are_relative_to_the_end_of_the_instruction() {
    // mov r17, [rip + 0x100]: one byte longer than with REX.
    let (load, _) = one(&hex("d5488b0d00010000"));
    assert_eq!((load.len(), load.memory_displacement64()), (8, IP + 8 + 0x100));
    let (jump, modern) = one(&hex("d500a18877665544332211"));
    assert_eq!(jump.near_branch_target(), 0x1122_3344_5566_7788);
    assert_eq!((jump.len(), modern.unwrap().mnemonic), (11, Some("JMPABS")));
}

#[test]
fn new_extensions_are_known() {
    let extension = |digits: &str| one(&hex(digits)).1.map(|modern| modern.extension.to_string());
    for (digits, expected) in [
        ("f20f38f8c1", "USER_MSR"),
        ("c4e77bf8c144332211", "USER_MSR"),
        ("c4e77af6c144332211", "MSR_IMM"),
        ("0f388b01", "MOVRS"),
        ("c4e27b4a0c11", "AMX_MOVRS"),
        ("c4e561fdca", "AMX_FP8"),
        ("c4e26148c1", "AMX_TF32"),
        ("62f27d484aca", "AMX_AVX512"),
        ("d51801c8", "APX_F"),
        ("62f57d0858d1", "AVX10.2"),
    ] {
        assert_eq!(extension(digits).as_deref(), Some(expected), "{digits}");
    }
    // Of a register, with W, with another second source, and under a mask there are none.
    for digits in [
        "0f388bc1",
        "c4e7fbf8c144332211",
        "c4e773f8c144332211",
        "62f27d494aca",
    ] {
        assert!(one(&hex(digits)).0.is_invalid(), "{digits}");
    }
}

#[test]
fn general_results_of_vectors_may_be_in_new_registers() {
    // vcvttsd2si r26, xmm1; vpextrw r16d, xmm1, 1; vcvttss2usis r18d, xmm1.
    for (digits, expected) in [
        ("6261ff082cd1", "vcvttsd2si"),
        ("62e17d08c5c101", "vpextrw"),
        ("62e57e086cd1", "vcvttss2usis"),
    ] {
        let (instruction, modern) = one(&hex(digits));
        assert_eq!(instruction.len(), digits.len() / 2, "{digits}");
        assert_eq!(mnemonic(&instruction, modern), expected);
    }
}

#[test]
fn only_the_last_instruction_is_modern() {
    // add rax, r17; mov eax, ecx, whose bytes also end the first one.
    let bytes = hex("d51801c889c8");
    let mut decoder = Decoder::try_with_ip(64, &bytes, IP).unwrap();
    decoder.decode();
    assert!(decoder.modern().is_some());
    decoder.decode();
    assert_eq!(decoder.modern(), None);
    // The same end, from another start.
    decoder.go_to(0, IP).unwrap();
    decoder.decode();
    decoder.go_to(2, IP + 2).unwrap();
    assert_eq!((decoder.decode().len(), decoder.position()), (2, 4));
    assert_eq!(decoder.modern(), None);
    // Nothing follows the end.
    let mut decoder = Decoder::try_with_ip(64, &bytes[..4], IP).unwrap();
    decoder.decode();
    assert!(decoder.decode().is_invalid());
    assert_eq!(decoder.modern(), None);
}

#[test]
fn other_code_knows_no_such_prefixes() {
    // AAD in 32-bit code, BOUND with memory.
    for bytes in [&[0xd5, 0x0a][..], &[0x62, 0x01]] {
        let mut decoder = Decoder::try_with_ip(32, bytes, IP).unwrap();
        assert!(!decoder.decode().is_invalid());
        assert_eq!(decoder.modern(), None);
    }
    // REX2 before a jump of 8 bits, before an escape, and after 14 other prefixes.
    for digits in ["d5007405", "d5000f05", "66666666666666666666666666666666d51889c8"] {
        assert!(one(&hex(digits)).0.is_invalid(), "{digits}");
    }
}

proptest! {
    #[test]
    fn what_iced_knows_stays_as_it_is(bytes in prop::collection::vec(any::<u8>(), 1..20)) {
        let iced = Iced::with_ip(64, &bytes, IP, DecoderOptions::NONE).decode();
        let (instruction, modern) = one(&bytes);
        if iced.is_invalid() {
            prop_assert_eq!(instruction.is_invalid(), modern.is_none());
        } else {
            prop_assert_eq!(instruction, iced);
            prop_assert_eq!(modern, None);
        }
    }

    #[test]
    fn code_of_any_bytes_has_instructions_without_gaps(
        prefix in prop::sample::select(vec![&[0xd5][..], &[0x62, 0xf4], &[0x62, 0xf2], &[0x62, 0xfd], &[0x66, 0xd5], &[0x67, 0x62]]),
        rest in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let bytes = [prefix, &rest].concat();
        let mut decoder = Decoder::try_with_ip(64, &bytes, IP).unwrap();
        while decoder.position() < bytes.len() {
            let position = decoder.position();
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                decoder.go_to(position + 1, IP + position as u64 + 1).unwrap();
                continue;
            }
            prop_assert!((1..=15).contains(&instruction.len()));
            prop_assert_eq!(decoder.position(), position + instruction.len());
            prop_assert_eq!(instruction.next_ip(), IP + decoder.position() as u64);
        }
    }
}
