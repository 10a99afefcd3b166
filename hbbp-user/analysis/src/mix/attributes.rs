//! Attributes of the operands of one instruction: how many there are, their sizes, what it does with them, and the sizes of the
//! immediate values and displacements in its encoding (paper section V.B: "types, numbers, sizes and attributes of operands").
//!
//! They differ between instructions of one form: a displacement may have 8 or 32 bits, and `XOR EAX, EAX` reads nothing. So
//! they are of the instruction that is there.

use hbbp_decode::Modern;
use iced_x86::{Code, Instruction, InstructionInfoFactory, OpAccess, OpKind};

use super::dimension::Dimension;

/// The value of an instruction without operands, or without what is asked for.
const NONE: &str = "none";

/// A decoded instruction, which may be the nearest one that iced-x86 knows.
pub(super) struct Attributes<'a> {
    instruction: &'a Instruction,
    /// Whether the result goes to one more register, and the other operands are only read.
    has_new_destination: bool,
}

impl<'a> Attributes<'a> {
    pub(super) fn new(instruction: &'a Instruction, modern: Option<Modern>) -> Self {
        Self {
            instruction,
            has_new_destination: modern.is_some_and(|modern| modern.has_new_destination),
        }
    }

    /// The value of a dimension of operands; `None` for the others.
    pub(super) fn value(&self, dimension: Dimension) -> Option<String> {
        Some(match dimension {
            Dimension::Operands => {
                (self.instruction.op_count() + u32::from(self.has_new_destination)).to_string()
            }
            Dimension::Sizes => listed(self.sizes().map(|bits| bits.to_string()), ", "),
            Dimension::Access => self.access(),
            Dimension::Immediate => {
                let sizes = self.kinds().filter_map(|kind| self.immediate(kind));
                listed(sizes.map(str::to_owned), "+")
            }
            Dimension::Displacement => {
                let bits = self.displacement();
                bits.map_or_else(|| NONE.to_owned(), |bits| bits.to_string())
            }
            _ => return None,
        })
    }

    fn kinds(&self) -> impl Iterator<Item = OpKind> {
        let instruction = self.instruction;
        (0..instruction.op_count()).map(|operand| instruction.op_kind(operand))
    }

    /// Bits of each operand. Immediate values have the size that they are extended to; memory has 0 where none is accessed, or
    /// as much as the processor is set up for.
    fn sizes(&self) -> impl Iterator<Item = usize> {
        let sizes = (0..self.instruction.op_count()).map(|operand| self.size(operand));
        // The new destination has the size of the register that the result would go to.
        let new = self.has_new_destination.then(|| self.size(0));
        new.into_iter().chain(sizes)
    }

    fn size(&self, operand: u32) -> usize {
        match self.instruction.op_kind(operand) {
            OpKind::Register => 8 * self.instruction.op_register(operand).size(),
            OpKind::Immediate8 | OpKind::Immediate8_2nd => 8,
            OpKind::Immediate16 | OpKind::Immediate8to16 | OpKind::NearBranch16 => 16,
            OpKind::Immediate32 | OpKind::Immediate8to32 | OpKind::NearBranch32 => 32,
            OpKind::Immediate64 | OpKind::Immediate8to64 | OpKind::Immediate32to64 => 64,
            OpKind::NearBranch64 => 64,
            // With the selector.
            OpKind::FarBranch16 => 32,
            OpKind::FarBranch32 => 48,
            _ => 8 * self.instruction.memory_size().size(),
        }
    }

    fn access(&self) -> String {
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(self.instruction);
        let of = |operand| match info.op_access(operand) {
            _ if self.has_new_destination => "read",
            OpAccess::None | OpAccess::NoMemAccess => NONE,
            OpAccess::Read => "read",
            OpAccess::CondRead => "conditional read",
            OpAccess::Write => "write",
            OpAccess::CondWrite => "conditional write",
            OpAccess::ReadWrite => "read-write",
            OpAccess::ReadCondWrite => "read, conditional write",
        };
        let new = self.has_new_destination.then_some("write");
        let operands = (0..self.instruction.op_count()).map(of);
        listed(new.into_iter().chain(operands).map(str::to_owned), "; ")
    }

    /// Encoded bits of an operand that is an immediate value.
    fn immediate(&self, kind: OpKind) -> Option<&'static str> {
        Some(match kind {
            // The one of a shift is part of the opcode (SDM vol. 2, SAL: `D1 /4`).
            OpKind::Immediate8 if is_shift_by_one(self.instruction.code()) => return None,
            OpKind::Immediate8 | OpKind::Immediate8_2nd => "8",
            OpKind::Immediate8to16 | OpKind::Immediate8to32 | OpKind::Immediate8to64 => "8",
            OpKind::Immediate16 => "16",
            OpKind::Immediate32 | OpKind::Immediate32to64 => "32",
            OpKind::Immediate64 => "64",
            OpKind::FarBranch16 => "16+16",
            OpKind::FarBranch32 => "32+16",
            _ => return None,
        })
    }

    /// Encoded bits of the displacement of a memory operand, or of a branch.
    fn displacement(&self) -> Option<u32> {
        let code = self.instruction.code();
        self.kinds().find_map(|kind| match kind {
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => Some(match code {
                _ if is_short(code) => 8,
                Code::Xbegin_rel16 => 16,
                Code::Xbegin_rel32 => 32,
                _ if kind == OpKind::NearBranch16 => 16,
                _ => 32,
            }),
            OpKind::Memory => match self.instruction.memory_displ_size() {
                0 => None,
                // The decoder gives the size of the address for displacements that are extended to it.
                8 if !has_address(code) => Some(32),
                bytes => Some(8 * bytes),
            },
            _ => None,
        })
    }
}

fn listed(values: impl Iterator<Item = String>, separator: &str) -> String {
    let values: Vec<String> = values.collect();
    if values.is_empty() {
        NONE.to_owned()
    } else {
        values.join(separator)
    }
}

/// Whether a shift or rotation is by a one that its bytes do not have: the decoder names its form `.._1`.
fn is_shift_by_one(code: Code) -> bool {
    format!("{code:?}").ends_with("_1")
}

/// Whether a relative branch has a displacement of 8 bits: LOOP and JRCXZ have no other.
fn is_short(code: Code) -> bool {
    let is_counted = code.is_loop() || code.is_loopcc() || code.is_jcx_short();
    is_counted || code.is_jcc_short() || code.is_jmp_short()
}

/// Whether the whole address is in the instruction (SDM vol. 2, MOV: `A0` to `A3`).
fn has_address(code: Code) -> bool {
    matches!(
        code,
        Code::Mov_AL_moffs8
            | Code::Mov_AX_moffs16
            | Code::Mov_EAX_moffs32
            | Code::Mov_RAX_moffs64
            | Code::Mov_moffs8_AL
            | Code::Mov_moffs16_AX
            | Code::Mov_moffs32_EAX
            | Code::Mov_moffs64_RAX
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{ConstantOffsets, Decoder as Iced, DecoderOptions};
    use proptest::prelude::*;

    const DIMENSIONS: [Dimension; 5] = [
        Dimension::Operands,
        Dimension::Sizes,
        Dimension::Access,
        Dimension::Immediate,
        Dimension::Displacement,
    ];

    fn values(bytes: &[u8]) -> [String; 5] {
        let mut decoder = hbbp_decode::Decoder::try_with_ip(64, bytes, 0x1000).unwrap();
        let instruction = decoder.decode();
        let attributes = Attributes::new(&instruction, decoder.modern());
        DIMENSIONS.map(|dimension| attributes.value(dimension).unwrap())
    }

    #[test]
    fn attributes_are_those_of_the_manual() {
        let cases: [(&[u8], [&str; 5]); 18] = [
            // NOP, RET, RET 16, ENTER 16, 1
            (&[0x90], ["0", "none", "none", "none", "none"]),
            (&[0xc3], ["0", "none", "none", "none", "none"]),
            (&[0xc2, 16, 0], ["1", "16", "read", "16", "none"]),
            (&[0xc8, 16, 0, 1], ["2", "16, 8", "read; read", "16+8", "none"]),
            // ADD EAX, 1 with 8 and with 32 bits; ADD [RBP - 8], 1
            (&[0x83, 0xc0, 1], ["2", "32, 32", "read-write; read", "8", "none"]),
            (
                &[0x81, 0xc0, 1, 0, 0, 0],
                ["2", "32, 32", "read-write; read", "32", "none"],
            ),
            (
                &[0x48, 0x83, 0x45, 0xf8, 1],
                ["2", "64, 64", "read-write; read", "8", "8"],
            ),
            // MOV RAX, imm64; MOV RAX, moffs64; MOV RAX, [RIP + 1]; MOV RAX, [1]
            (
                &[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8],
                ["2", "64, 64", "write; read", "64", "none"],
            ),
            (
                &[0x48, 0xa1, 1, 2, 3, 4, 5, 6, 7, 8],
                ["2", "64, 64", "write; read", "none", "64"],
            ),
            (
                &[0x48, 0x8b, 0x05, 1, 0, 0, 0],
                ["2", "64, 64", "write; read", "none", "32"],
            ),
            (
                &[0x48, 0x8b, 0x04, 0x25, 1, 0, 0, 0],
                ["2", "64, 64", "write; read", "none", "32"],
            ),
            // LEA RAX, [RAX + RAX]: an address, no data
            (
                &[0x48, 0x8d, 0x04, 0x00],
                ["2", "64, 0", "write; none", "none", "none"],
            ),
            // XOR EAX, EAX depends on nothing; XOR EAX, ECX does
            (&[0x31, 0xc0], ["2", "32, 32", "write; none", "none", "none"]),
            (&[0x31, 0xc8], ["2", "32, 32", "read-write; read", "none", "none"]),
            // SHL EAX, 1 without an immediate value; JNE short; CALL
            (&[0xd1, 0xe0], ["2", "32, 8", "read-write; read", "none", "none"]),
            (&[0x75, 0xfe], ["1", "64", "read", "none", "8"]),
            (&[0xe8, 0, 1, 0, 0], ["1", "64", "read", "none", "32"]),
            // VADDPS ZMM0, ZMM1, [RAX + 64], whose displacement is one byte
            (
                &[0x62, 0xf1, 0x74, 0x48, 0x58, 0x40, 0x01],
                ["3", "512, 512, 512", "write; read; read", "none", "8"],
            ),
        ];
        for (bytes, expected) in cases {
            assert_eq!(values(bytes), expected, "{bytes:x?}");
        }
    }

    /// ADD R16, RAX, RBX of APX: the register with the result is one more operand, and the others are only read.
    #[test]
    fn a_new_destination_is_an_operand() {
        let bytes = [0x62, 0xf4, 0xfc, 0x10, 0x01, 0xd8];
        let expected = ["3", "64, 64, 64", "write; read; read", "none", "none"];
        assert_eq!(values(&bytes), expected);
    }

    fn bits(text: &str) -> Vec<usize> {
        let parts = text.split('+').filter(|part| *part != NONE);
        parts.map(|part| part.parse().unwrap()).collect()
    }

    /// Compares what the operands say of the encoding with what the decoder read from the bytes.
    fn compare(instruction: &Instruction, read: &ConstantOffsets) {
        let attributes = Attributes::new(instruction, None);
        let values = DIMENSIONS.map(|dimension| attributes.value(dimension).unwrap());
        let [operands, sizes, access, immediate, displacement] = values;
        let n_of = |listed: &str, separator| match operands.as_str() {
            "0" => 0,
            _ => listed.split(separator).count(),
        };
        let n = instruction.op_count() as usize;
        assert_eq!(
            (n_of(&sizes, ", "), n_of(&access, "; ")),
            (n, n),
            "{instruction:?}"
        );
        let some = |bytes: &[usize]| -> Vec<usize> {
            let there = bytes.iter().filter(|bytes| 0 < **bytes);
            there.map(|bytes| 8 * bytes).collect()
        };
        let mut read_immediate = some(&[read.immediate_size(), read.immediate_size2()]);
        let mut read_displacement = some(&[read.displacement_size()]);
        // The decoder counts the displacement of a branch as an immediate value.
        let is_near = |kind: OpKind| {
            use OpKind::{NearBranch16, NearBranch32, NearBranch64};
            matches!(kind, NearBranch16 | NearBranch32 | NearBranch64)
        };
        if attributes.kinds().any(is_near) {
            (read_immediate, read_displacement) = (read_displacement, read_immediate);
        }
        let found = (bits(&immediate), bits(&displacement));
        assert_eq!(found, (read_immediate, read_displacement), "{instruction:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn encoded_sizes_are_those_that_the_decoder_read(
            bytes in prop::collection::vec(any::<u8>(), 300),
            width in prop::sample::select(vec![16_u32, 32, 64]),
        ) {
            let mut decoder = Iced::with_ip(width, &bytes, 0x1000, DecoderOptions::NONE);
            while decoder.can_decode() {
                let instruction = decoder.decode();
                if !instruction.is_invalid() {
                    compare(&instruction, &decoder.get_constant_offsets(&instruction));
                }
            }
        }
    }
}
