//! A fast writer of LEB128 numbers, which collects them in a word before they are appended: half of what a recording
//! costs after its end is the encoding of its counts.

use crate::snapshot::{EventIdx, ProcessIdx};

/// The bytes that are not appended yet: most rows fit into a word. It is passed by value, so that it stays in
/// registers.
#[derive(Clone, Copy, Default)]
#[must_use]
pub(super) struct Word {
    /// The lowest byte comes first.
    bytes: u64,
    /// How many bits of `bytes` are used.
    bits: u32,
}

impl Word {
    #[inline(always)]
    pub(super) fn number(self, out: &mut Vec<u8>, number: u64) -> Self {
        if number < 1 << 7 {
            self.append(out, number, 8)
        } else if number < 1 << 14 {
            self.append(out, number & 0x7f | 0x80 | number >> 7 << 8, 16)
        } else {
            self.long(out, number)
        }
    }

    #[inline(always)]
    pub(super) fn difference(self, out: &mut Vec<u8>, difference: u64) -> Self {
        let sign = (difference.cast_signed() >> 63).cast_unsigned();
        self.number(out, difference << 1 ^ sign)
    }

    pub(super) fn double(self, out: &mut Vec<u8>, double: f64) -> Self {
        let word = self.end_row(out);
        out.extend_from_slice(&double.to_le_bytes());
        word
    }

    #[inline(always)]
    pub(super) fn hits_in_units(self, out: &mut Vec<u8>, hits: u64, excess: u64) -> Self {
        if excess == 0 {
            return self.number(out, hits << 1);
        }
        self.number(out, hits << 1 | 1).difference(out, excess)
    }

    /// Begins a group of rows that have this in common.
    pub(super) fn group(
        self,
        out: &mut Vec<u8>,
        n: usize,
        event: EventIdx,
        process: ProcessIdx,
        kind: bool,
    ) -> Self {
        let word = self.number(out, n as u64).number(out, event.0.into());
        word.number(out, process.0.into()).number(out, kind.into())
    }

    /// To be called after each row, and at the end.
    #[inline(always)]
    pub(super) fn end_row(self, out: &mut Vec<u8>) -> Self {
        let end = out.len() + (self.bits / 8) as usize;
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.truncate(end);
        Self::default()
    }

    /// Adds up to 16 bits.
    #[inline(always)]
    fn append(self, out: &mut Vec<u8>, bytes: u64, bits: u32) -> Self {
        let before = if u64::BITS < self.bits + bits {
            self.end_row(out)
        } else {
            self
        };
        Self {
            bytes: before.bytes | bytes << before.bits,
            bits: before.bits + bits,
        }
    }

    /// Adds a number of more than two bytes.
    #[inline(never)]
    fn long(mut self, out: &mut Vec<u8>, mut number: u64) -> Self {
        while 0x80 <= number {
            self = self.append(out, number & 0x7f | 0x80, 8);
            number >>= 7;
        }
        self.append(out, number, 8)
    }
}
