//! The fields of an EVEX prefix.

use crate::registers::Registers;

/// The first byte of EVEX.
pub(crate) const EVEX: u8 = 0x62;

/// An instruction with EVEX.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evex<'a> {
    /// Prefixes before it: segments and address size.
    pub(crate) prefixes: &'a [u8],
    pub(crate) payload: [u8; 3],
    /// The opcode.
    pub(crate) opcode: u8,
    /// What follows: ModRM, SIB, displacement, immediate value.
    pub(crate) tail: &'a [u8],
}

impl<'a> Evex<'a> {
    /// Reads an instruction; `rest` begins with EVEX.
    pub(crate) fn read(prefixes: &'a [u8], rest: &'a [u8]) -> Option<Self> {
        let [EVEX, p0, p1, p2, opcode, tail @ ..] = rest else {
            return None;
        };
        // Others are not defined before EVEX.
        let is_defined = |prefix: &u8| matches!(prefix, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x67);
        (!tail.is_empty() && prefixes.iter().all(is_defined)).then_some(Self {
            prefixes,
            payload: [*p0, *p1, *p2],
            opcode: *opcode,
            tail,
        })
    }

    /// Bytes up to the opcode.
    pub(crate) const fn head(&self) -> usize {
        self.prefixes.len() + 5
    }

    /// The opcode map.
    pub(crate) const fn map(&self) -> u8 {
        self.payload[0] & 7
    }

    /// The implied prefix: none, 0x66, 0xf3 or 0xf2.
    pub(crate) const fn implied(&self) -> u8 {
        self.payload[1] & 3
    }

    /// W, as REX has it.
    pub(crate) const fn is_wide(&self) -> bool {
        self.payload[1] & 0x80 != 0
    }

    /// REX with the lower bits of the registers.
    pub(crate) fn rex(&self) -> u8 {
        let registers = !self.with_index() >> 5 & 7;
        0x40 | u8::from(self.is_wide()) << 3 | registers
    }

    /// The first byte of the payload, where an index r20 of an address does not become rsp, which means that there is none.
    pub(crate) fn with_index(&self) -> u8 {
        let [p0, p1, _] = self.payload;
        let has_high_index = p1 & 4 == 0 && !self.has_register();
        p0 & !(u8::from(has_high_index) << 6)
    }

    /// The numbers of its general registers.
    pub(crate) const fn registers(&self) -> Registers {
        let [p0, p1, p2] = self.payload;
        Registers {
            reg: !p0 & 0x10 | (!p0 & 0x80) >> 4,
            base: (p0 & 8) << 1 | (!p0 & 0x20) >> 2,
            index: (!p1 & 4) << 2 | (!p0 & 0x40) >> 3,
            second: (!p2 & 8) << 1 | (!p1 & 0x78) >> 3,
        }
    }

    /// The last byte of the payload: zeroing, length, broadcast or new destination, the highest bit of the second source, mask
    /// or no flags.
    pub(crate) const fn last(&self) -> u8 {
        self.payload[2]
    }

    pub(crate) const fn has_new_destination(&self) -> bool {
        self.payload[2] & 0x10 != 0
    }

    pub(crate) const fn has_no_flags(&self) -> bool {
        self.payload[2] & 4 != 0
    }

    /// The second source, or the new destination, is left out: all of its bits are set.
    pub(crate) const fn has_no_second(&self) -> bool {
        self.payload[1] & 0x78 == 0x78 && self.payload[2] & 8 != 0
    }

    /// ModRM.mod of a register.
    pub(crate) fn has_register(&self) -> bool {
        self.tail.first().is_some_and(|modrm| 0xc0 <= *modrm)
    }

    /// ModRM.reg.
    pub(crate) fn reg(&self) -> u8 {
        self.tail.first().map_or(0, |modrm| modrm >> 3 & 7)
    }
}
