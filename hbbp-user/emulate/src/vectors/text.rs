//! Comparisons of text, of SSE4.2: PCMPISTRI and PCMPESTRI (SDM vol. 2, 4.1).

use iced_x86::{Instruction, Mnemonic as M, Register};

use super::Form;
use crate::end::End;
use crate::flags::{CF, OF, SF, STATUS, ZF};
use crate::machine::Machine;
use crate::value::Value;
use crate::vector::Vector;

/// The elements of a source that count, as numbers.
struct Text {
    elements: Vec<i64>,
    /// Those before the end of the text.
    len: usize,
}

impl Text {
    /// Of a vector whose bytes are all known. Bits 0 and 1 of the control have the format.
    fn of(vector: &Vector, control: u8) -> Option<Self> {
        let bytes = if control & 1 == 0 { 1 } else { 2 };
        let lanes = (0..16).step_by(bytes).map(|begin| vector.lane(begin, bytes));
        let width = u32::try_from(8 * bytes).ok()?;
        let number = |lane: u64| match control & 2 {
            0 => lane.cast_signed(),
            _ => super::lanes::signed(lane, width),
        };
        let elements: Vec<i64> = lanes.map(|lane| lane.map(number)).collect::<Option<_>>()?;
        let len = elements.iter().position(|element| *element == 0);
        Some(Self {
            len: len.unwrap_or(elements.len()),
            elements,
        })
    }

    /// Ends it after the number of elements in a register, without its sign.
    fn end_at(&mut self, len: i64) {
        self.len = usize::try_from(len.unsigned_abs())
            .unwrap_or(usize::MAX)
            .min(self.elements.len());
    }

    fn get(&self, at: usize) -> Option<i64> {
        self.elements[..self.len].get(at).copied()
    }
}

/// Which elements of the second text match, one bit each, as bits 2 and 3 of the control say.
fn matches(a: &Text, b: &Text, control: u8) -> u32 {
    let n = b.elements.len();
    let is_match = |at: usize| match control >> 2 & 3 {
        // Any of the first.
        0 => b.get(at).is_some_and(|b| a.elements[..a.len].contains(&b)),
        // Ranges.
        1 => b.get(at).is_some_and(|b| {
            let ranges = a.elements[..a.len].chunks_exact(2);
            ranges.into_iter().any(|range| range[0] <= b && b <= range[1])
        }),
        // Each.
        2 => a.get(at) == b.get(at),
        // The first within the second, which may be cut at the end.
        _ => (at..n)
            .zip(0..)
            .all(|(at, from)| a.get(from).is_none_or(|a| b.get(at) == Some(a))),
    };
    (0..n).filter(|at| is_match(*at)).fold(0, |all, at| all | 1 << at)
}

impl Machine {
    /// Whether it was a comparison of text that results in an index.
    pub(super) fn compare_text(&mut self, it: &Instruction, form: Form) -> Result<bool, End> {
        let is_implicit = matches!(it.mnemonic(), M::Pcmpistri | M::Vpcmpistri);
        let is_wide = matches!(it.mnemonic(), M::Pcmpestri64 | M::Vpcmpestri64);
        if !is_implicit && !is_wide && !matches!(it.mnemonic(), M::Pcmpestri | M::Vpcmpestri) {
            return Ok(false);
        }
        debug_assert!(form.bytes == 16);
        let control = it.immediate8();
        let (a, b) = (
            self.vector_operand(it, 0, false)?,
            self.vector_operand(it, 1, false)?,
        );
        let mut texts = Text::of(&a, control).zip(Text::of(&b, control));
        if !is_implicit {
            let width = if is_wide { 64 } else { 32 };
            let len = |register: Register| {
                let value = self.register(register).sign_extended(width, 64).get(64);
                value.map(u64::cast_signed)
            };
            texts = texts.zip(len(Register::RAX).zip(len(Register::RDX))).map(
                |((mut a, mut b), (first, second))| {
                    a.end_at(first);
                    b.end_at(second);
                    (a, b)
                },
            );
        }
        let Some((a, b)) = texts else {
            self.forget_flags(STATUS);
            self.set_register(Register::RCX, Value::UNKNOWN)?;
            return Ok(true);
        };
        let n = u32::try_from(b.elements.len()).unwrap_or(16);
        let all = (1 << n) - 1;
        let valid = (1 << b.len) - 1;
        let result = matches(&a, &b, control)
            ^ match control >> 4 & 3 {
                1 => all,
                3 => valid,
                _ => 0,
            };
        let index = match control & 0x40 {
            _ if result == 0 => n,
            0 => result.trailing_zeros(),
            _ => result.ilog2(),
        };
        self.flags = self.flags.with(Value::known(0), STATUS);
        self.set_flag(CF, Some(result != 0));
        self.set_flag(ZF, Some(b.len < b.elements.len()));
        self.set_flag(SF, Some(a.len < a.elements.len()));
        self.set_flag(OF, Some(result & 1 != 0));
        self.set_register(Register::RCX, Value::known(u64::from(index)))?;
        Ok(true)
    }
}
