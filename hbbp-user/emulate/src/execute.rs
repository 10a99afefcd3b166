//! Which part executes an instruction.

use iced_x86::{ConditionCode, FlowControl, Instruction, Mnemonic as M};

use crate::end::End;
use crate::machine::Machine;

impl Machine {
    pub(crate) fn execute(&mut self, it: &Instruction) -> Result<(), End> {
        if it.is_privileged() {
            return Err(End::Privileged);
        }
        match it.flow_control() {
            FlowControl::Next => {}
            FlowControl::Interrupt | FlowControl::Exception => return Err(End::Trap),
            FlowControl::XbeginXabortXend => return Err(End::NotEmulated),
            _ => return self.branch(it),
        }
        if let Some(end) = refusal(it) {
            return Err(end);
        }
        if it.condition_code() != ConditionCode::None {
            return self.conditional(it);
        }
        if it.is_string_instruction() {
            return self.string(it);
        }
        match it.mnemonic() {
            M::Mov | M::Movzx | M::Movsx | M::Movsxd | M::Movbe | M::Movnti | M::Lea => self.move_value(it),
            M::Xchg | M::Xlatb | M::Bswap => self.exchange(it),
            M::Cbw | M::Cwde | M::Cdqe | M::Cwd | M::Cdq | M::Cqo => self.extend(it),
            M::Push | M::Pop | M::Pushfq | M::Popfq | M::Pushf | M::Popf | M::Leave => self.stack(it),
            M::Clc | M::Stc | M::Cmc | M::Cld | M::Std | M::Lahf | M::Sahf => self.change_flags(it),
            M::Nop | M::Endbr64 | M::Endbr32 | M::Pause | M::Reservednop | M::Wait => Ok(()),
            M::Lfence | M::Mfence | M::Sfence | M::Prefetchw | M::Prefetchnta => Ok(()),
            M::Prefetcht0 | M::Prefetcht1 | M::Prefetcht2 => Ok(()),
            _ => self.calculate(it),
        }
    }

    /// Executes an instruction that calculates.
    fn calculate(&mut self, it: &Instruction) -> Result<(), End> {
        match it.mnemonic() {
            M::Add | M::Adc | M::Sub | M::Sbb | M::Cmp | M::Xadd | M::Cmpxchg => self.add(it),
            M::Inc | M::Dec | M::Neg => self.count(it),
            M::Adcx | M::Adox => self.add_with_flag(it),
            M::Cmpxchg8b | M::Cmpxchg16b => self.compare_pair(it),
            M::And | M::Or | M::Xor | M::Test | M::Not | M::Andn => self.logic(it),
            M::Mul | M::Imul | M::Mulx => self.multiply(it),
            M::Div | M::Idiv => self.divide(it),
            M::Shl | M::Sal | M::Shr | M::Sar => self.shift(it),
            M::Rol | M::Ror | M::Rcl | M::Rcr => self.rotate(it),
            M::Shld | M::Shrd => self.shift_double(it),
            M::Shlx | M::Shrx | M::Sarx | M::Rorx => self.shift_without_flags(it),
            M::Bt | M::Bts | M::Btr | M::Btc => self.test_bit(it),
            M::Bsf | M::Bsr | M::Tzcnt | M::Lzcnt | M::Popcnt => self.count_bits(it),
            M::Blsi | M::Blsr | M::Blsmsk | M::Bzhi | M::Bextr | M::Pdep | M::Pext => self.extract_bits(it),
            M::Crc32 => self.checksum(it),
            _ => self.vector(it),
        }
    }
}

/// Why an instruction is not emulated that is not privileged by its description.
fn refusal(it: &Instruction) -> Option<End> {
    match it.mnemonic() {
        // Input and output, and the flag of interrupts, are the kernel's too.
        M::In | M::Out | M::Cli | M::Sti => Some(End::Privileged),
        M::Insb | M::Insw | M::Insd | M::Outsb | M::Outsw | M::Outsd => Some(End::Privileged),
        // They change what addresses mean.
        M::Wrfsbase | M::Wrgsbase | M::Wrpkru => Some(End::NotEmulated),
        // The kernel emulates them (UMIP).
        M::Sgdt | M::Sidt | M::Sldt | M::Smsw | M::Str => Some(End::NotEmulated),
        // The hypervisor or an enclave goes on.
        M::Vmcall | M::Vmmcall | M::Vmfunc | M::Vmgexit | M::Enclu | M::Getsec => Some(End::NotEmulated),
        // With REX.B, processors differ in whether it is an exchange.
        M::Pause if 2 < it.len() => Some(End::NotEmulated),
        _ => None,
    }
}
