//! Branches.

use iced_x86::{Code, FlowControl, Instruction, Mnemonic as M, OpKind, Register};

use crate::end::End;
use crate::machine::Machine;
use crate::operands::{RSP, width};
use crate::value::Value;

impl Machine {
    pub(crate) fn branch(&mut self, it: &Instruction) -> Result<(), End> {
        match it.mnemonic() {
            M::Syscall | M::Sysenter => return Err(End::SystemCall),
            M::Ret => return self.ret(it),
            M::Loop | M::Loope | M::Loopne => return self.branch_by_count(it),
            M::Jrcxz => return self.branch_if(it, self.register(Register::RCX).is_zero(64)),
            M::Jecxz => return self.branch_if(it, self.register(Register::ECX).is_zero(32)),
            // RETF and IRET.
            _ if it.flow_control() == FlowControl::Return => return Err(End::FarBranch),
            _ => {}
        }
        if it.is_jmp_far() || it.is_call_far() || it.is_jmp_far_indirect() || it.is_call_far_indirect() {
            return Err(End::FarBranch);
        }
        if it.op0_kind() == OpKind::Memory || it.op0_kind() == OpKind::Register {
            // Targets of 16 bits differ between makers of processors.
            if width(it, 0) != 64 {
                return Err(End::NotEmulated);
            }
        }
        let near = Value::known(it.near_branch_target());
        match it.flow_control() {
            FlowControl::UnconditionalBranch if it.mnemonic() == M::Jmp => self.jump(it, near),
            FlowControl::IndirectBranch if it.mnemonic() == M::Jmp => {
                let to = self.operand(it, 0)?;
                self.jump(it, to)
            }
            FlowControl::Call if it.mnemonic() == M::Call => self.call(it, near),
            FlowControl::IndirectCall if it.mnemonic() == M::Call => {
                let to = self.operand(it, 0)?;
                self.call(it, to)
            }
            FlowControl::ConditionalBranch if it.is_jcc_short_or_near() => {
                self.branch_if(it, self.condition(it.condition_code()))
            }
            _ => Err(End::NotEmulated),
        }
    }

    fn branch_if(&mut self, it: &Instruction, holds: Option<bool>) -> Result<(), End> {
        match holds {
            Some(true) => self.jump(it, Value::known(it.near_branch_target())),
            Some(false) => Ok(()),
            None => Err(End::UnknownBranch),
        }
    }

    /// LOOP counts in RCX, or in ECX with an address size of 32 bits.
    fn branch_by_count(&mut self, it: &Instruction) -> Result<(), End> {
        let is_narrow = matches!(
            it.code(),
            Code::Loop_rel8_64_ECX | Code::Loope_rel8_64_ECX | Code::Loopne_rel8_64_ECX
        );
        let (counter, width) = if is_narrow {
            (Register::ECX, 32)
        } else {
            (Register::RCX, 64)
        };
        let count = self.register(counter).get(64).ok_or(End::UnknownBranch)?;
        let count = Value::known(count.wrapping_sub(1)).truncated(width);
        let holds = match it.mnemonic() {
            M::Loop => Some(true),
            _ => self.condition(it.condition_code()),
        };
        self.set_register(counter, count)?;
        let is_last = count.bits == 0;
        self.branch_if(it, if is_last { Some(false) } else { holds })
    }

    fn call(&mut self, it: &Instruction, to: Value) -> Result<(), End> {
        // Where the target is unknown nothing is pushed.
        to.get(64).ok_or(End::UnknownBranch)?;
        self.push(Value::known(it.next_ip()), 64)?;
        self.jump(it, to)
    }

    fn ret(&mut self, it: &Instruction) -> Result<(), End> {
        if matches!(it.code(), Code::Retnw | Code::Retnw_imm16) {
            return Err(End::NotEmulated);
        }
        let to = self.pop(64)?;
        if 0 < it.op_count() {
            let top = self.registers[RSP]
                .get(64)
                .map(|top| top.wrapping_add(it.immediate(0)));
            self.registers[RSP] = Value::of(top, 64);
        }
        self.jump(it, to)
    }
}
