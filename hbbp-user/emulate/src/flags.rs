//! The flags, at their bits of RFLAGS (SDM vol. 1, 3.4.3).

use iced_x86::ConditionCode;

use crate::machine::Machine;
use crate::value::{Value, mask};

pub(crate) const CF: u32 = 0;
pub(crate) const PF: u32 = 2;
pub(crate) const AF: u32 = 4;
pub(crate) const ZF: u32 = 6;
pub(crate) const SF: u32 = 7;
pub(crate) const DF: u32 = 10;
pub(crate) const OF: u32 = 11;

/// The six that arithmetic sets.
pub(crate) const STATUS: u64 = 1 << CF | 1 << PF | 1 << AF | 1 << ZF | 1 << SF | 1 << OF;

impl Machine {
    pub(crate) fn flag(&self, flag: u32) -> Option<bool> {
        self.flags.bit(flag)
    }

    pub(crate) fn set_flag(&mut self, flag: u32, value: Option<bool>) {
        self.flags = self.flags.with_bit(flag, value);
    }

    /// The flags of a mask are unknown from here on.
    pub(crate) fn forget_flags(&mut self, mask: u64) {
        self.flags = self.flags.with(Value::UNKNOWN, mask);
    }

    /// SF, ZF and PF of a result.
    pub(crate) fn set_result_flags(&mut self, result: Value, width: u32) {
        self.set_flag(SF, result.bit(width - 1));
        self.set_flag(ZF, result.is_zero(width));
        self.set_flag(PF, result.get(8).map(|low| low.count_ones() % 2 == 0));
    }

    /// The flags of AND, OR, XOR and TEST.
    pub(crate) fn set_logic_flags(&mut self, result: Value, width: u32) {
        self.set_result_flags(result, width);
        self.set_flag(CF, Some(false));
        self.set_flag(OF, Some(false));
        self.set_flag(AF, None);
    }

    /// The flags of `a + b` or `a - b`, whose carry out of each bit is in `carries`.
    pub(crate) fn set_carry_flags(&mut self, result: Value, carries: u64, width: u32) {
        self.set_result_flags(result, width);
        let carry = |bit: u32| carries >> bit & 1 != 0;
        self.set_flag(CF, Some(carry(width - 1)));
        self.set_flag(AF, Some(carry(3)));
        self.set_flag(OF, Some(carry(width - 1) != carry(width - 2)));
    }

    /// Whether a condition holds, where the flags that it needs are known.
    pub(crate) fn condition(&self, condition: ConditionCode) -> Option<bool> {
        let not = |value: Option<bool>| value.map(|value| !value);
        let (carry, zero) = (self.flag(CF), self.flag(ZF));
        let less = match (self.flag(SF), self.flag(OF)) {
            (Some(sign), Some(overflow)) => Some(sign != overflow),
            _ => None,
        };
        match condition {
            ConditionCode::o => self.flag(OF),
            ConditionCode::no => not(self.flag(OF)),
            ConditionCode::b => carry,
            ConditionCode::ae => not(carry),
            ConditionCode::e => zero,
            ConditionCode::ne => not(zero),
            ConditionCode::be => any(carry, zero),
            ConditionCode::a => not(any(carry, zero)),
            ConditionCode::s => self.flag(SF),
            ConditionCode::ns => not(self.flag(SF)),
            ConditionCode::p => self.flag(PF),
            ConditionCode::np => not(self.flag(PF)),
            ConditionCode::l => less,
            ConditionCode::ge => not(less),
            ConditionCode::le => any(zero, less),
            ConditionCode::g => not(any(zero, less)),
            ConditionCode::None => None,
        }
    }
}

/// Whether one of two holds: one that is known to hold is enough.
fn any(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        _ => None,
    }
}

/// A sum of `width` bits, and the carry out of each bit.
pub(crate) fn sum(a: u64, b: u64, carry: bool, width: u32) -> Sum {
    let result = a.wrapping_add(b).wrapping_add(u64::from(carry)) & mask(width);
    Sum {
        result,
        carries: a & b | (a | b) & !result,
    }
}

/// A difference of `width` bits, and the borrow out of each bit.
pub(crate) fn difference(a: u64, b: u64, borrow: bool, width: u32) -> Sum {
    let result = a.wrapping_sub(b).wrapping_sub(u64::from(borrow)) & mask(width);
    Sum {
        result,
        carries: !a & b | (!a | b) & result,
    }
}

/// A sum or a difference.
pub(crate) struct Sum {
    pub(crate) result: u64,
    /// Carries or borrows.
    pub(crate) carries: u64,
}
