//! A vector register of which some bytes may be unknown.

/// Bytes of a register.
pub(crate) const BYTES: usize = 64;

/// A vector register, with bytes that may be unknown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Vector {
    /// The bytes, the lowest first; unknown ones are 0.
    pub bytes: [u8; BYTES],
    /// Which of them are known, one bit per byte.
    pub known: u64,
}

impl Vector {
    /// A register of which nothing is known.
    pub(crate) const UNKNOWN: Self = Self {
        bytes: [0; BYTES],
        known: 0,
    };
    pub(crate) const ZERO: Self = Self {
        bytes: [0; BYTES],
        known: u64::MAX,
    };

    /// A byte, if it is known.
    pub(crate) fn byte(&self, at: usize) -> Option<u8> {
        let byte = *self.bytes.get(at)?;
        (self.known >> at & 1 != 0).then_some(byte)
    }

    pub(crate) fn set_byte(&mut self, at: usize, byte: Option<u8>) {
        if let Some(to) = self.bytes.get_mut(at) {
            *to = byte.unwrap_or(0);
            self.known = self.known & !(1 << at) | u64::from(byte.is_some()) << at;
        }
    }

    /// A vector from its bytes, from the lowest; the others are zeros.
    pub(crate) fn from_bytes(bytes: impl Iterator<Item = Option<u8>>) -> Self {
        let mut vector = Self::ZERO;
        bytes.enumerate().for_each(|(at, byte)| vector.set_byte(at, byte));
        vector
    }

    /// The lane of `lane <= 8` bytes at `begin`, if it is known.
    pub(crate) fn lane(&self, begin: usize, lane: usize) -> Option<u64> {
        (begin..begin + lane)
            .rev()
            .try_fold(0, |all: u64, at| Some(all << 8 | u64::from(self.byte(at)?)))
    }

    pub(crate) fn set_lane(&mut self, begin: usize, lane: usize, value: Option<u64>) {
        let bytes = value.map(u64::to_le_bytes);
        for at in 0..lane.min(8) {
            self.set_byte(begin + at, bytes.map(|bytes| bytes[at]));
        }
    }
}
