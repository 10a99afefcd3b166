//! Classes of instructions whose bytes are written out.

use super::*;
use hbbp_code::blocks::blocks;
use hbbp_code::locate::Located;
use hbbp_model::addr::ImageAddr;
use hbbp_model::snapshot::{Module, ModuleIdx, ModuleKind, Snapshot, Text};
use iced_x86::Code;

fn class(bytes: &[u8]) -> Class {
    let name = String::new();
    let module = Module {
        name,
        kind: ModuleKind::Elf64,
        build_id: Vec::new(),
        symbols: Vec::new(),
    };
    let text = Text {
        module: ModuleIdx(0),
        start: ImageAddr(0),
        bytes: bytes.to_vec(),
        since: 0,
    };
    let snapshot = Snapshot {
        modules: vec![module],
        text: vec![text],
        ..Snapshot::default()
    };
    let map = blocks(&snapshot, &Located::default());
    let first = map.texts[0].instruction(0).unwrap();
    Class::of(&map.forms[usize::from(first.form.0)], first.flow).unwrap()
}

#[test]
fn class_properties_follow_the_instruction() {
    let cases: [(&[u8], &str); 17] = [
        (
            &[0x48, 0x89, 0xe5],
            "MOV BASE data transfer/none/64/none/next/none",
        ),
        (&[0x55], "PUSH BASE stack/none/64/write/next/none"),
        (&[0xf3, 0xa4], "MOVSB BASE string/none/8/read-write/next/none"),
        (&[0xa5], "MOVSD BASE string/none/32/read-write/next/none"),
        (
            &[0xf2, 0x0f, 0x10, 0x07],
            "MOVSD SSE2 data transfer/scalar/128/read/next/none",
        ),
        (
            &[0xf0, 0x48, 0x0f, 0xb1, 0x37],
            "CMPXCHG BASE exchange/none/64/read-write/next/locked",
        ),
        (
            &[0x87, 0x07],
            "XCHG BASE exchange/none/32/read-write/next/locked (implied)",
        ),
        (&[0x87, 0xc8], "XCHG BASE exchange/none/32/none/next/none"),
        (&[0x48, 0xf7, 0xf1], "DIV BASE arithmetic/none/64/none/next/none"),
        (
            &[0x0f, 0x51, 0xc1],
            "SQRTPS SSE arithmetic/packed/128/none/next/none",
        ),
        (
            &[0xc5, 0xf5, 0xfe, 0xc2],
            "VPADDD AVX2 arithmetic/packed/256/none/next/none",
        ),
        (
            &[0x62, 0xf1, 0x7c, 0x48, 0x58, 0xc1],
            "VADDPS AVX512F arithmetic/packed/512/none/next/none",
        ),
        (&[0xd9, 0xfe], "FSIN X87 arithmetic/none/0/none/next/none"),
        (&[0xe8, 0, 1, 0, 0], "CALL BASE call/none/0/write/call/none"),
        (&[0xc3], "RET BASE return/none/0/read/return/none"),
        (&[0x0f, 0x1f, 0x00], "NOP BASE nop/none/32/none/next/none"),
        (
            &[0xc4, 0xe2, 0xf3, 0xf6, 0xc2],
            "MULX BMI2 arithmetic/none/64/none/next/none",
        ),
    ];
    for (bytes, expected) in cases {
        let class = class(bytes);
        let shown = Dimension::ALL.iter().take_while(|d| **d != Dimension::Level);
        let values: Vec<String> = shown.filter_map(|d| class.value(*d)).collect();
        let (names, properties) = values.split_at(2);
        assert_eq!(
            format!("{} {}", names.join(" "), properties.join("/")),
            expected,
            "{bytes:x?}"
        );
    }
}

#[test]
fn decoder_instructions_all_have_a_category() {
    let without: Vec<String> = Code::values()
        .filter(|code| code.flow_control() == iced_x86::FlowControl::Next)
        .filter(|code| category(strip_encoding(&name(code.mnemonic()), legacy(*code))) == Category::Other)
        .map(|code| format!("{:?}", code.mnemonic()))
        .filter(|name| name != "Undoc" && name != "Zero_bytes")
        .collect();
    assert!(without.is_empty(), "{without:?}");
}

/// What a form has in common with its tables: mnemonic, extension, level, category, memory, element and operands.
fn modern(bytes: &[u8]) -> String {
    let class = class(bytes);
    let Class {
        mnemonic,
        extension,
        level,
        element,
        form,
        ..
    } = &class;
    let (category, memory) = (class.category.name(), class.memory.name());
    format!("{mnemonic} {extension} {level}/{category}/{memory}/{element}/{form}")
}

#[test]
fn instructions_of_apx_and_avx10_have_their_own_classes() {
    let cases: [(&[u8], &str); 11] = [
        // add r16, rcx
        (
            &[0xd5, 0x18, 0x01, 0xc8],
            "ADD APX_F no level/arithmetic/none/int64/ADD R64, R64",
        ),
        // add rbx, [rcx], 0x11
        (
            &[0x62, 0xf4, 0xe4, 0x18, 0x83, 0x01, 0x11],
            "ADD APX_F no level/arithmetic/read/int64/ADD R64, M64, I64",
        ),
        // {nf} add rbx, rcx, rax
        (
            &[0x62, 0xf4, 0xe4, 0x1c, 0x01, 0xc1],
            "ADD APX_F no level/arithmetic/none/int64/ADD R64, R64, R64",
        ),
        // ccmpne {dfv=} rcx, rax
        (
            &[0x62, 0xf4, 0x84, 0x05, 0x39, 0xc1],
            "CCMPNE APX_F no level/compare/none/int64/CCMPNE R64, R64",
        ),
        // push2 rcx, rbx
        (
            &[0x62, 0xf4, 0x64, 0x18, 0xff, 0xf1],
            "PUSH2 APX_F no level/stack/write/int64/PUSH2 R64",
        ),
        // {nf} andn
        (
            &[0x62, 0xf2, 0xe4, 0x0c, 0xf2, 0xc1],
            "ANDN APX_F no level/logic/none/int64/ANDN R64, R64, R64",
        ),
        // vaddbf16 xmm2, xmm0, [rcx]
        (
            &[0x62, 0xf5, 0x7d, 0x08, 0x58, 0x11],
            "VADDBF16 AVX10.2 no level/arithmetic/read/bfloat16/VADDBF16 XMM, XMM, M128",
        ),
        // urdmsr rcx, 1
        (
            &[0xc4, 0xe7, 0x7b, 0xf8, 0xc1, 1, 0, 0, 0],
            "URDMSR USER_MSR no level/system/none/int64/URDMSR R64, I64",
        ),
        // movrs eax, [rcx]
        (
            &[0x0f, 0x38, 0x8b, 0x01],
            "MOVRS MOVRS no level/data transfer/read/int32/MOVRS R32, M32",
        ),
        // tilemovrow zmm1, tmm2, eax
        (
            &[0x62, 0xf2, 0x7d, 0x48, 0x4a, 0xca],
            "TILEMOVROW AMX_AVX512 no level/matrix/none/int32/TILEMOVROW ZMM, ZMM",
        ),
        // jmpabs 0
        (
            &[0xd5, 0, 0xa1, 0, 0, 0, 0, 0, 0, 0, 0],
            "JMPABS APX_F no level/branch, unconditional/none/none/JMPABS REL",
        ),
    ];
    for (bytes, expected) in cases {
        assert_eq!(modern(bytes), expected, "{bytes:x?}");
    }
}

#[test]
fn forms_of_apx_differ_from_those_without() {
    let extension = |bytes: &[u8]| class(bytes).extension;
    assert_eq!(extension(&[0x48, 0x01, 0xc8]), "BASE");
    assert_eq!(extension(&[0x62, 0xf4, 0xfc, 0x08, 0x01, 0xc8]), "APX_F");
}
