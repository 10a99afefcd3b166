//! The layout of instructions against the decoder: opcodes, prefixes and operands of every kind, and real code.

use super::*;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, OpKind};
use proptest::prelude::*;
use std::collections::HashMap;

/// The longest instruction (SDM vol. 2, 2.3.11).
const LONGEST: usize = 15;

fn decoded(bytes: &[u8]) -> Instruction {
    Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode()
}

fn layout(bytes: &[u8]) -> Option<Layout> {
    Layout::of(u64::from_le_bytes(bytes[..LOOKED_AT].try_into().unwrap()))
}

/// What a key must determine.
fn told(instruction: &Instruction) -> (Code, bool, bool, bool) {
    let is_memory = (0..instruction.op_count()).any(|nth| instruction.op_kind(nth) == OpKind::Memory);
    (
        instruction.code(),
        is_memory,
        instruction.has_lock_prefix(),
        instruction.has_rep_prefix() || instruction.has_repne_prefix(),
    )
}

/// Prefixes in every combination that has a layout, and each pair of opcode and ModRM.
fn every_beginning(mut seen: impl FnMut(&[u8; LONGEST])) {
    let prefixes: [&[u8]; 8] = [
        &[],
        &[0x66],
        &[0xf2],
        &[0xf3],
        &[0x65],
        &[0x64, 0x66],
        &[0x65, 0xf2],
        &[0x64, 0xf3],
    ];
    let rexes: [&[u8]; 4] = [&[], &[0x41], &[0x48], &[0x4f]];
    let maps: [&[u8]; 2] = [&[], &[0x0f]];
    for ((prefix, rex), map) in prefixes
        .iter()
        .flat_map(|prefix| rexes.iter().map(move |rex| (prefix, rex)))
        .flat_map(|before| maps.iter().map(move |map| (before, map)))
    {
        for (opcode, modrm) in (0..=255u8).flat_map(|opcode| (0..=255u8).map(move |modrm| (opcode, modrm))) {
            for sib in [0x25, 0xe4] {
                let all = [*prefix, *rex, *map, &[opcode, modrm, sib]].concat();
                let mut bytes = [0x11; LONGEST];
                bytes.iter_mut().zip(all).for_each(|(to, from)| *to = from);
                seen(&bytes);
            }
        }
    }
}

#[test]
fn a_key_has_one_opcode_and_the_length_of_the_decoder() {
    let mut known: HashMap<u16, _> = HashMap::new();
    let mut n_valid = 0;
    every_beginning(|bytes| {
        let Some(layout) = layout(bytes) else { return };
        let instruction = decoded(bytes);
        let told = told(&instruction);
        let first = known.entry(layout.key).or_insert(told);
        assert_eq!(*first, told, "{bytes:x?} {layout:x?}");
        if !instruction.is_invalid() {
            n_valid += 1;
            assert_eq!(usize::from(layout.len), instruction.len(), "{bytes:x?}");
            let is_near = instruction.is_jcc_short_or_near()
                || instruction.is_jmp_short_or_near()
                || instruction.is_call_near();
            assert_eq!(0 < layout.relative, is_near, "{bytes:x?}");
        }
    });
    assert!(1_000_000 < n_valid, "{n_valid}");
}

proptest! {
    #[test]
    fn lengths_are_those_of_the_decoder(bytes in prop::array::uniform15(any::<u8>())) {
        if let Some(layout) = layout(&bytes) {
            let instruction = decoded(&bytes);
            prop_assert!(instruction.is_invalid() || usize::from(layout.len) == instruction.len());
        }
    }
}
