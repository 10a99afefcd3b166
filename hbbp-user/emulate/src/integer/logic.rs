//! Bitwise logic.

use iced_x86::{Instruction, Mnemonic as M};

use super::arithmetic::is_same_register;
use crate::end::End;
use crate::machine::Machine;
use crate::operands::width;
use crate::value::Value;

impl Machine {
    pub(crate) fn logic(&mut self, it: &Instruction) -> Result<(), End> {
        let width = width(it, 0);
        let a = self.operand(it, 0)?;
        if it.mnemonic() == M::Not {
            return self.set_operand(it, 0, a.not().truncated(width));
        }
        let b = self.operand(it, 1)?;
        let result = match it.mnemonic() {
            M::And | M::Test => a.and(b),
            M::Or => a.or(b),
            M::Xor if is_same_register(it) => Value::known(0),
            M::Xor => a.xor(b),
            _ => b.not().and(self.operand(it, 2)?).truncated(width),
        };
        self.set_logic_flags(result, width);
        if it.mnemonic() == M::Andn {
            // PF is undefined.
            self.forget_flags(1 << crate::flags::PF);
        }
        match it.mnemonic() {
            M::Test => Ok(()),
            _ => self.set_operand(it, 0, result),
        }
    }
}
