//! Lengths of the most frequent 64-bit instructions, from their first bytes (SDM vol. 2, chapter 2 and appendix A).
//!
//! Decoding all text in full is most of what a report takes, while most instructions differ from earlier ones in registers,
//! displacements and immediate values only. [`Layout`] has the length of an instruction and a key: instructions of one key have
//! one opcode, operand size and kind of operands, which the decoder has to find once.
//! Whatever depends on more has no layout: rare prefixes, VEX and EVEX, opcodes that use all of ModRM.

/// The length of an instruction, and what determines its form.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Layout {
    /// Prefix (2 bits), REX.W, opcode map, opcode (8 bits), whether ModRM names a register, ModRM.reg (3 bits).
    pub(super) key: u16,
    /// Length in bytes.
    pub(super) len: u8,
    /// Length in bytes of a displacement at the end of a direct branch; 0 for other instructions.
    pub(super) relative: u8,
}

/// Bytes that are looked at: a segment, a prefix, REX, two bytes of opcode, ModRM and SIB.
pub(super) const LOOKED_AT: usize = 8;

/// What follows an opcode, as a set of these.
const MODRM: u16 = 1;
const IMM8: u16 = 1 << 1;
/// Two bytes after an operand size prefix, four otherwise.
const IMM32: u16 = 1 << 2;
/// The same, but eight with REX.W.
const IMM64: u16 = 1 << 3;
const REL8: u16 = 1 << 4;
const REL32: u16 = 1 << 5;
/// Only without REX: REX.B selects another instruction.
const NO_REX: u16 = 1 << 6;
/// ModRM.reg selects what follows.
const GROUP: u16 = 1 << 7;
/// No layout.
const NONE: u16 = 1 << 8;

/// Opcodes of one byte from the first to the second, with what follows. Later lines replace earlier ones.
const ONE_BYTE: [(u8, u8, u16); 26] = [
    (0x50, 0x5f, 0),
    (0x63, 0x63, MODRM),
    (0x68, 0x68, IMM32),
    (0x69, 0x69, MODRM | IMM32),
    (0x6a, 0x6a, IMM8),
    (0x6b, 0x6b, MODRM | IMM8),
    (0x70, 0x7f, REL8),
    (0x80, 0x80, MODRM | IMM8),
    (0x81, 0x81, MODRM | IMM32),
    (0x83, 0x83, MODRM | IMM8),
    (0x84, 0x8b, MODRM),
    (0x8d, 0x8d, MODRM),
    (0x90, 0x97, NO_REX),
    (0x98, 0x99, 0),
    (0xa4, 0xa7, 0),
    (0xa8, 0xa8, IMM8),
    (0xa9, 0xa9, IMM32),
    (0xaa, 0xaf, 0),
    (0xb0, 0xb7, IMM8),
    (0xb8, 0xbf, IMM64),
    (0xc0, 0xc1, MODRM | IMM8),
    (0xc3, 0xc3, 0),
    (0xc9, 0xc9, 0),
    (0xd0, 0xd3, MODRM),
    (0xeb, 0xeb, REL8),
    (0xfe, 0xff, MODRM),
];

/// Opcodes after 0x0f, likewise.
const TWO_BYTES: [(u8, u8, u16); 24] = [
    (0x0b, 0x0b, 0),
    (0x10, 0x17, MODRM),
    (0x1f, 0x1f, MODRM),
    (0x28, 0x2f, MODRM),
    (0x40, 0x4f, MODRM),
    (0x50, 0x6f, MODRM),
    (0x70, 0x73, MODRM | IMM8),
    (0x74, 0x76, MODRM),
    (0x7e, 0x7f, MODRM),
    (0x80, 0x8f, REL32),
    (0x90, 0x9f, MODRM),
    (0xa3, 0xa3, MODRM),
    (0xa4, 0xa4, MODRM | IMM8),
    (0xa5, 0xa5, MODRM),
    (0xab, 0xab, MODRM),
    (0xac, 0xac, MODRM | IMM8),
    (0xad, 0xad, MODRM),
    (0xaf, 0xb1, MODRM),
    (0xb3, 0xb3, MODRM),
    (0xb6, 0xb8, MODRM),
    (0xba, 0xba, MODRM | IMM8),
    (0xbb, 0xc1, MODRM),
    (0xc2, 0xc2, MODRM | IMM8),
    (0xc4, 0xc6, MODRM | IMM8),
];

const AFTER_ONE: [u16; 256] = one_byte();
const AFTER_TWO: [u16; 256] = table(&TWO_BYTES);

const fn one_byte() -> [u16; 256] {
    let mut after = table(&ONE_BYTE);
    // ADD, OR, ADC, SBB, AND, SUB, XOR and CMP have a row of eight opcodes each, of which the last two are no such.
    let mut opcode = 0;
    while opcode < 0x40 {
        after[opcode] = match opcode % 8 {
            0..4 => MODRM,
            4 => IMM8,
            5 => IMM32,
            _ => NONE,
        };
        opcode += 1;
    }
    after[0xc6] = MODRM | IMM8 | GROUP;
    after[0xc7] = MODRM | IMM32 | GROUP;
    after[0xe8] = REL32;
    after[0xe9] = REL32;
    after[0xf6] = MODRM | GROUP;
    after[0xf7] = MODRM | GROUP;
    // CLC to STD are a byte each.
    opcode = 0xf8;
    while opcode < 0xfe {
        after[opcode] = 0;
        opcode += 1;
    }
    after
}

const fn table<const N: usize>(lines: &[(u8, u8, u16); N]) -> [u16; 256] {
    let mut table = [NONE; 256];
    let mut n = 0;
    while n < N {
        let (first, last, after) = lines[n];
        let mut opcode = first as usize;
        while opcode <= last as usize {
            table[opcode] = after;
            opcode += 1;
        }
        n += 1;
    }
    table
}

/// Bytes of ModRM, SIB and displacement, by ModRM; without what the base in SIB adds.
const WITH_MODRM: [u8; 256] = {
    let mut lens = [0; 256];
    let mut modrm = 0;
    while modrm < 256 {
        let (mode, rm) = (modrm >> 6, modrm & 7);
        let displacement = match (mode, rm) {
            (1, _) => 1,
            (2, _) | (0, 5) => 4,
            _ => 0,
        };
        lens[modrm] = 1 + (mode != 3 && rm == 4) as u8 + displacement;
        modrm += 1;
    }
    lens
};

impl Layout {
    /// The first byte of the instruction is the lowest.
    #[inline]
    pub(super) fn of(bytes: u64) -> Option<Self> {
        let mut rest = Rest { bytes, len: 0 };
        let (mut prefix, mut has_segment) = (0, false);
        if matches!(rest.byte(), 0x64..=0x66 | 0xf2 | 0xf3) {
            (prefix, has_segment) = rest.skip_prefixes();
        }
        let mut key = prefix << 14;
        let rex = rest.byte();
        let has_rex = rex & 0xf0 == 0x40;
        if has_rex {
            key |= u16::from(rex & 8) << 10;
            rest.skip();
        }
        let mut table = &AFTER_ONE;
        if rest.byte() == 0x0f {
            key |= 1 << 12;
            table = &AFTER_TWO;
            rest.skip();
        }
        let opcode = rest.byte();
        rest.skip();
        key |= u16::from(opcode) << 4;
        let mut after = *table.get(usize::from(opcode))?;
        if after & (NONE | NO_REX) != 0 && (after & NONE != 0 || has_rex) {
            return None;
        }
        if after & MODRM != 0 {
            let modrm = rest.skip_modrm();
            key |= u16::from(modrm >= 0xc0) << 3 | u16::from(modrm >> 3 & 7);
            if after & GROUP != 0 {
                after |= by_reg(opcode, modrm >> 3 & 7)?;
            }
        } else if has_segment {
            return None;
        }
        if after & (IMM8 | IMM32 | IMM64 | REL8 | REL32) == 0 {
            return Some(Self {
                key,
                len: rest.len,
                relative: 0,
            });
        }
        let is_wide = key & 1 << 13 != 0;
        let relative = u8::from(after & REL8 != 0) + 4 * u8::from(after & REL32 != 0);
        // With an operand size prefix, the target is one of 16 bits.
        if 0 < relative && 0 < prefix {
            return None;
        }
        let immediate = match after & (IMM8 | IMM32 | IMM64) {
            0 => relative,
            IMM8 => 1,
            IMM64 if is_wide => 8,
            _ if prefix == 1 && !is_wide => 2,
            _ => 4,
        };
        Some(Self {
            key,
            len: rest.len + immediate,
            relative,
        })
    }
}

/// What follows as well where ModRM.reg selects it; `None` if ModRM.rm selects the instruction, too.
const fn by_reg(opcode: u8, reg: u8) -> Option<u16> {
    match (opcode, reg) {
        // TEST is the only one of group 3 with an immediate value.
        (0xf6, 0 | 1) => Some(IMM8),
        (0xf7, 0 | 1) => Some(IMM32),
        // XABORT and XBEGIN.
        (0xc6 | 0xc7, 1..) => None,
        _ => Some(0),
    }
}

/// The bytes of an instruction that were not looked at.
struct Rest {
    bytes: u64,
    /// Number of those before.
    len: u8,
}

impl Rest {
    const fn byte(&self) -> u8 {
        let [byte, ..] = self.bytes.to_le_bytes();
        byte
    }

    const fn skip(&mut self) {
        self.bytes >>= 8;
        self.len += 1;
    }

    /// Skips a segment and another prefix: the number of the latter, and whether there is the former.
    #[cold]
    fn skip_prefixes(&mut self) -> (u16, bool) {
        let has_segment = matches!(self.byte(), 0x64 | 0x65);
        if has_segment {
            self.skip();
        }
        let prefix = match self.byte() {
            0x66 => 1,
            0xf2 => 2,
            0xf3 => 3,
            _ => 0,
        };
        if 0 < prefix {
            self.skip();
        }
        (prefix, has_segment)
    }

    /// Skips ModRM with SIB and displacement, and returns it.
    fn skip_modrm(&mut self) -> u8 {
        let modrm = self.byte();
        self.len += WITH_MODRM.get(usize::from(modrm)).copied().unwrap_or(1);
        // SIB without a base has a displacement instead.
        if modrm & 0xc7 == 0x04 && self.bytes >> 8 & 7 == 5 {
            self.len += 4;
        }
        modrm
    }
}

#[cfg(test)]
mod tests;
