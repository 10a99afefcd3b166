//! Instructions whose results are not calculated: floating point, wider vectors, and others. What they write is unknown
//! afterwards.

use iced_x86::{Instruction, InstructionInfoFactory, OpAccess, Register, RflagsBits};

use crate::end::End;
use crate::flags::{AF, CF, DF, OF, PF, SF, ZF};
use crate::machine::{Machine, canonical};
use crate::value::Value;
use crate::vector::Vector;

/// Most bytes that such an instruction may store: a vector of AVX-512.
const MOST_BYTES: usize = 64;

/// The flags of instructions' descriptions, and their bits of RFLAGS.
const FLAGS: [(u32, u32); 7] = [
    (RflagsBits::CF, CF),
    (RflagsBits::PF, PF),
    (RflagsBits::AF, AF),
    (RflagsBits::ZF, ZF),
    (RflagsBits::SF, SF),
    (RflagsBits::DF, DF),
    (RflagsBits::OF, OF),
];

impl Machine {
    pub(crate) fn opaque(&mut self, it: &Instruction) -> Result<(), End> {
        if it.is_save_restore_instruction() || it.is_invalid() {
            return Err(End::NotEmulated);
        }
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(it);
        for memory in info.used_memory().iter().filter(|memory| writes(memory.access())) {
            let n = memory.memory_size().size();
            if n == 0 || MOST_BYTES < n || it.is_vsib() {
                return Err(End::NotEmulated);
            }
            let address = memory.virtual_address(0, |register, _, _| match register {
                Register::FS => Some(self.fs_base),
                Register::GS => Some(self.gs_base),
                _ if register.is_segment_register() => Some(0),
                _ => self.register(register).get(64),
            });
            let address = canonical(address.ok_or(End::UnknownAddress)?)?;
            self.memory.store(address, &[0; MOST_BYTES][..n], 0)?;
        }
        for used in info.used_registers().iter().filter(|used| writes(used.access())) {
            self.forget(used.register())?;
        }
        let modified = FLAGS.iter().filter(|(bit, _)| it.rflags_modified() & bit != 0);
        self.forget_flags(modified.fold(0, |all, (_, flag)| all | 1 << flag));
        Ok(())
    }

    /// Makes a register unknown. The others have no part in a burst.
    fn forget(&mut self, register: Register) -> Result<(), End> {
        if register.is_segment_register() {
            return Err(End::NotEmulated);
        }
        if register.is_gpr() {
            return self.set_register(register.full_register(), Value::UNKNOWN);
        }
        if register.is_vector_register()
            && let Some(vector) = self.vectors.get_mut(register.number())
        {
            *vector = Vector::UNKNOWN;
        }
        if register.is_k()
            && let Some(mask) = self.masks.get_mut(register.number())
        {
            *mask = Value::UNKNOWN;
        }
        Ok(())
    }
}

fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}
