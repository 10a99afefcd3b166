//! A value of which some bits may be unknown.

/// Up to 64 bits. What is computed from unknown bits is unknown, unless it is the same whatever they are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Value {
    /// The bits; unknown ones are 0.
    pub bits: u64,
    /// Which of them are known.
    pub known: u64,
}

/// The lowest `width` bits.
pub(crate) const fn mask(width: u32) -> u64 {
    if 64 <= width { u64::MAX } else { (1 << width) - 1 }
}

impl Value {
    /// A value of which nothing is known.
    pub(crate) const UNKNOWN: Self = Self { bits: 0, known: 0 };

    /// A value that is known in full.
    pub const fn known(bits: u64) -> Self {
        Self {
            bits,
            known: u64::MAX,
        }
    }

    /// A value of which the bits in `known` are known.
    pub const fn partly(bits: u64, known: u64) -> Self {
        Self {
            bits: bits & known,
            known,
        }
    }

    /// `bits`, of which the lowest `width` count; they are unknown where there are none.
    pub(crate) fn of(bits: Option<u64>, width: u32) -> Self {
        bits.map_or(Self::UNKNOWN, Self::known).truncated(width)
    }

    /// The lowest `width` bits, where all of them are known.
    pub(crate) fn get(self, width: u32) -> Option<u64> {
        (self.known & mask(width) == mask(width)).then_some(self.bits & mask(width))
    }

    /// Bit `n`.
    pub(crate) fn bit(self, n: u32) -> Option<bool> {
        (self.known >> n & 1 != 0).then_some(self.bits >> n & 1 != 0)
    }

    /// The same with bit `n`.
    pub(crate) fn with_bit(self, n: u32, bit: Option<bool>) -> Self {
        let value = bit.map_or(Self::UNKNOWN, |bit| Self::known(u64::from(bit) << n));
        self.with(value, 1 << n)
    }

    /// The bits in `mask` from `other`, the rest from this one.
    pub(crate) fn with(self, other: Self, mask: u64) -> Self {
        Self {
            bits: self.bits & !mask | other.bits & mask,
            known: self.known & !mask | other.known & mask,
        }
    }

    /// The lowest `width` bits; those above are zeros.
    pub(crate) fn truncated(self, width: u32) -> Self {
        Self::known(0).with(self, mask(width))
    }

    /// `width` bits with the sign of the lowest `from` ones.
    pub(crate) fn sign_extended(self, from: u32, width: u32) -> Self {
        let sign = match self.bit(from - 1) {
            Some(sign) => Self::known(if sign { u64::MAX } else { 0 }),
            None => Self::UNKNOWN,
        };
        sign.with(self, mask(from)).truncated(width)
    }

    pub(crate) fn and(self, other: Self) -> Self {
        let zeros = self.known & !self.bits | other.known & !other.bits;
        Self::partly(self.bits & other.bits, self.known & other.known | zeros)
    }

    pub(crate) fn or(self, other: Self) -> Self {
        let known = self.known & other.known | self.bits | other.bits;
        Self::partly(self.bits | other.bits, known)
    }

    pub(crate) fn xor(self, other: Self) -> Self {
        Self::partly(self.bits ^ other.bits, self.known & other.known)
    }

    /// All 64 bits inverted.
    pub(crate) fn not(self) -> Self {
        Self::partly(!self.bits, self.known)
    }

    /// Shifted left by less than 64.
    pub(crate) fn shl(self, n: u32) -> Self {
        Self {
            bits: self.bits << n,
            known: self.known << n | mask(n),
        }
    }

    /// Shifted right by less than 64.
    pub(crate) fn shr(self, n: u32) -> Self {
        Self {
            bits: self.bits >> n,
            known: self.known >> n | !(u64::MAX >> n),
        }
    }

    /// What holds of either.
    pub(crate) fn either(self, other: Self) -> Self {
        Self::partly(self.bits, self.known & other.known & !(self.bits ^ other.bits))
    }

    /// Whether the lowest `width` bits are zeros: unknown only where no known bit is 1.
    pub(crate) fn is_zero(self, width: u32) -> Option<bool> {
        if self.bits & mask(width) != 0 {
            return Some(false);
        }
        self.get(width).map(|bits| bits == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::Value;

    #[test]
    fn zeros_hide_what_is_unknown() {
        let low = Value::partly(0x5a, 0xff);
        assert_eq!(low.and(Value::known(0xf)), Value::known(0xa));
        assert_eq!(low.or(Value::known(!0xff)), Value::known(!0xff | 0x5a));
        assert_eq!(low.xor(Value::known(0)), low);
        assert_eq!(low.get(8), Some(0x5a));
        assert_eq!(low.get(9), None);
    }

    #[test]
    fn a_known_one_is_not_zero() {
        assert_eq!(Value::partly(2, 2).is_zero(64), Some(false));
        assert_eq!(Value::partly(2, 2).is_zero(1), None);
        assert_eq!(Value::UNKNOWN.is_zero(64), None);
        assert_eq!(Value::known(0).is_zero(64), Some(true));
    }

    #[test]
    fn an_unknown_sign_is_not_extended() {
        assert_eq!(
            Value::partly(1, 0x7f).sign_extended(8, 32),
            Value::partly(1, !0xffff_ff80)
        );
        assert_eq!(Value::known(0x80).sign_extended(8, 16), Value::known(0xff80));
    }
}
