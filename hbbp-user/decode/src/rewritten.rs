//! The bytes of an instruction, rewritten into those of another one.

use iced_x86::{Decoder, DecoderOptions, Instruction};

use crate::modern::Modern;

/// The longest x86 instruction in bytes (SDM vol. 2, 2.3.11).
pub(crate) const LONGEST: usize = 15;
/// Room for prefixes that make an instruction longer than the one it is of.
const ROOM: usize = LONGEST + 4;

/// Bytes that are put together one by one; those that do not fit are dropped, and the decoder then finds no instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes {
    bytes: [u8; ROOM],
    len: usize,
}

impl Bytes {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let none = Self {
            bytes: [0; ROOM],
            len: 0,
        };
        none.and(bytes)
    }

    /// The same, and these.
    pub(crate) fn and(mut self, bytes: &[u8]) -> Self {
        for byte in bytes {
            if let Some(to) = self.bytes.get_mut(self.len) {
                *to = *byte;
                self.len += 1;
            }
        }
        self
    }
}

/// An instruction that iced-x86 knows, instead of one that it does not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rewritten {
    bytes: Bytes,
    /// Bytes that the instruction has more, or less if negative, than the one it is rewritten to.
    longer_by: isize,
    /// What differs.
    pub(crate) modern: Modern,
    /// The target of a jump to an absolute address.
    absolute: Option<u64>,
}

impl Rewritten {
    /// Of an instruction whose first `head` bytes become `new_head`; the others follow in `tail`.
    pub(crate) fn new(modern: Modern, head: usize, new_head: Bytes, tail: &[u8]) -> Self {
        Self {
            bytes: new_head.and(tail),
            longer_by: head.cast_signed() - new_head.len.cast_signed(),
            modern,
            absolute: None,
        }
    }

    /// The same, which jumps to an address.
    pub(crate) const fn jumping_to(mut self, target: u64) -> Self {
        self.absolute = Some(target);
        self
    }

    /// The same, where the new instruction has one byte of an immediate value that the old one lacks.
    pub(crate) const fn with_added_byte(mut self) -> Self {
        self.longer_by -= 1;
        self
    }

    /// The new bytes; zeros follow those that are known.
    pub(crate) const fn bytes(&self) -> &[u8; ROOM] {
        &self.bytes.bytes
    }

    /// The new instruction at an address, with the length of the old one; `None` where there is no such instruction, or none
    /// that a processor executes.
    pub(crate) fn decoded(&self, ip: u64) -> Option<Instruction> {
        self.decode(self.bytes(), ip)
    }

    /// The same of bytes that differ from the new ones in the numbers of registers.
    pub(crate) fn decode(&self, bytes: &[u8], ip: u64) -> Option<Instruction> {
        // Addresses are relative to the end of the instruction.
        let start = ip.wrapping_add_signed(self.longer_by as i64);
        let mut iced = Decoder::try_with_ip(64, bytes, start, DecoderOptions::NONE).ok()?;
        let mut found = iced.decode();
        if found.is_invalid() {
            return None;
        }
        let len = found.len().checked_add_signed(self.longer_by)?;
        found.set_len(len);
        found.set_ip(ip);
        if let Some(target) = self.absolute {
            found.set_near_branch64(target);
        }
        (len <= LONGEST).then_some(found)
    }
}
