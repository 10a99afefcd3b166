//! What an instruction works on: the kinds of its operands, the type of its data elements, its floating-point operations.

use iced_x86::{Instruction, MemorySize, OpKind, Register};

/// How an instruction treats the elements of its vector operands.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Packing {
    /// It has no vector operand.
    None,
    /// It works on one element.
    Scalar,
    /// It works on all elements.
    Packed,
}

/// Names of the types of data elements; an instruction without data has none of them.
pub(super) const ELEMENTS: [&str; 14] = [
    "none", "int8", "int16", "int32", "int64", "int128", "int256", "int512", "bfloat16", "float16",
    "float32", "float64", "float80", "other",
];

impl Packing {
    pub(super) const ALL: [Self; 3] = [Self::None, Self::Scalar, Self::Packed];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Scalar => "scalar",
            Self::Packed => "packed",
        }
    }
}

/// The mnemonic with the kinds of the explicit operands: `MOV R64, M64`; sizes are in bits.
pub(super) fn form(mnemonic: &str, instruction: &Instruction) -> String {
    let kinds: Vec<String> = (0..instruction.op_count())
        .map(|operand| match instruction.op_kind(operand) {
            OpKind::Register => register(instruction.op_register(operand)),
            OpKind::Memory => memory(instruction.memory_size()),
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => "REL".to_owned(),
            OpKind::FarBranch16 | OpKind::FarBranch32 => "FAR".to_owned(),
            OpKind::Immediate8 | OpKind::Immediate8_2nd => "I8".to_owned(),
            OpKind::Immediate16 | OpKind::Immediate8to16 => "I16".to_owned(),
            OpKind::Immediate32 | OpKind::Immediate8to32 => "I32".to_owned(),
            OpKind::Immediate64 | OpKind::Immediate8to64 | OpKind::Immediate32to64 => "I64".to_owned(),
            // String instructions: memory at rSI and rDI.
            _ => memory(instruction.memory_size()),
        })
        .collect();
    if kinds.is_empty() {
        mnemonic.to_owned()
    } else {
        format!("{mnemonic} {}", kinds.join(", "))
    }
}

fn memory(size: MemorySize) -> String {
    match size.size() {
        0 => "M".to_owned(),
        bytes => format!("M{}", bytes * 8),
    }
}

fn register(register: Register) -> String {
    let name = match register {
        r if r.is_gpr() => return format!("R{}", r.size() * 8),
        r if r.is_xmm() => "XMM",
        r if r.is_ymm() => "YMM",
        r if r.is_zmm() => "ZMM",
        r if r.is_mm() => "MM",
        r if r.is_st() => "ST",
        r if r.is_k() => "K",
        r if r.is_segment_register() => "SEG",
        r if r.is_cr() => "CR",
        r if r.is_dr() => "DR",
        r if r.is_tmm() => "TMM",
        r if r.is_bnd() => "BND",
        _ => "R",
    };
    name.to_owned()
}

/// The type of the data elements, by the operand that can be in memory; of others, by the registers.
pub(super) fn element(instruction: &Instruction) -> &'static str {
    use MemorySize as M;
    match instruction.memory_size().element_type() {
        M::UInt8 | M::Int8 => "int8",
        M::UInt16 | M::Int16 => "int16",
        M::UInt32 | M::Int32 => "int32",
        M::UInt52 | M::UInt64 | M::Int64 => "int64",
        M::UInt128 | M::Int128 => "int128",
        M::UInt256 | M::Int256 => "int256",
        M::UInt512 | M::Int512 => "int512",
        M::BFloat16 => "bfloat16",
        M::Float16 => "float16",
        M::Float32 => "float32",
        M::Float64 => "float64",
        M::Float80 => "float80",
        M::Unknown => of_registers(instruction),
        _ => "other",
    }
}

/// x87 registers hold 80 bits; general registers hold integers.
fn of_registers(instruction: &Instruction) -> &'static str {
    let registers = (0..instruction.op_count())
        .filter(|operand| instruction.op_kind(*operand) == OpKind::Register)
        .map(|operand| instruction.op_register(operand));
    let widest = registers.max_by_key(|register| register.size());
    match widest {
        Some(r) if r.is_st() => "float80",
        Some(r) if r.is_gpr() => match r.size() {
            1 => "int8",
            2 => "int16",
            4 => "int32",
            _ => "int64",
        },
        Some(_) => "other",
        None if format!("{:?}", instruction.mnemonic()).starts_with('F') => "float80",
        None => "none",
    }
}

/// Beginnings of the mnemonics, without the V of VEX and EVEX, of one floating-point operation for each element, and of
/// those with several: a fused multiply-add counts as two, as FP_ARITH_INST_RETIRED does.
const ARITHMETIC: [(&str, u32); 22] = [
    ("ADDSUB", 1),
    ("ADD", 1),
    ("SUB", 1),
    ("MUL", 1),
    ("DIV", 1),
    ("SQRT", 1),
    ("MIN", 1),
    ("MAX", 1),
    ("RCP", 1),
    ("RSQRT", 1),
    ("HADD", 1),
    ("HSUB", 1),
    ("FMADD", 2),
    ("FMSUB", 2),
    ("FNMADD", 2),
    ("FNMSUB", 2),
    ("FADD", 1),
    ("FSUB", 1),
    ("FMUL", 1),
    ("FDIV", 1),
    ("FSQRT", 1),
    ("DPP", 2),
];

/// Floating-point operations of an instruction; masked elements of AVX-512 count as well.
/// `coding` is the mnemonic without the V of VEX and EVEX encodings.
pub(super) fn flops(instruction: &Instruction, coding: &str, packing: Packing, width: usize) -> u32 {
    let bits = match element(instruction) {
        "bfloat16" | "float16" => 16,
        "float32" => 32,
        "float64" => 64,
        "float80" => 80,
        // Of x87 instructions the integer operand gives the type: FIADD.
        _ if coding.starts_with("FI") => 80,
        _ => return 0,
    };
    let x87 = coding.strip_prefix("FI").map(|rest| format!("F{rest}"));
    let name = x87.as_deref().unwrap_or(coding);
    let each = ARITHMETIC
        .iter()
        .find(|(beginning, _)| name.starts_with(beginning));
    let elements = match packing {
        Packing::Packed => u32::try_from(width).unwrap_or(0) / bits,
        Packing::Scalar | Packing::None => 1,
    };
    each.map_or(0, |(_, flops)| flops * elements)
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use crate::mix::class::Class;
    use hbbp_code::blocks::Flow;

    #[test]
    fn operands_say_what_an_instruction_works_on() {
        let cases: [(&[u8], &str, &str, u32); 14] = [
            (&[0x48, 0x89, 0xe5], "MOV R64, R64", "int64", 0),
            (&[0x48, 0x8b, 0x07], "MOV R64, M64", "int64", 0),
            (&[0x87, 0x07], "XCHG M32, R32", "int32", 0),
            (&[0x83, 0xc0, 0x01], "ADD R32, I32", "int32", 0),
            (&[0xe8, 0, 1, 0, 0], "CALL REL", "none", 0),
            (&[0xf3, 0xa4], "MOVSB M8, M8", "int8", 0),
            (&[0x0f, 0x58, 0xc1], "ADDPS XMM, XMM", "float32", 4),
            (&[0xf2, 0x0f, 0x58, 0xc1], "ADDSD XMM, XMM", "float64", 1),
            (
                &[0xc4, 0xe2, 0xf5, 0xb8, 0xc2],
                "VFMADD231PD YMM, YMM, YMM",
                "float64",
                8,
            ),
            (
                &[0x62, 0xf1, 0x7c, 0x48, 0x58, 0xc1],
                "VADDPS ZMM, ZMM, ZMM",
                "float32",
                16,
            ),
            (&[0xc5, 0xf5, 0xfe, 0xc2], "VPADDD YMM, YMM, YMM", "int32", 0),
            (&[0xd8, 0xc1], "FADD ST, ST", "float80", 1),
            (&[0x0f, 0x28, 0xc1], "MOVAPS XMM, XMM", "float32", 0),
            (&[0x0f, 0x22, 0xd8], "MOV CR, R64", "int64", 0),
        ];
        for (bytes, form, element, flops) in cases {
            let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
            let class = Class::new(&instruction, Flow::Next);
            assert_eq!(
                (class.form.as_str(), class.element, class.flops),
                (form, element, flops),
                "{bytes:x?}"
            );
        }
    }
}
