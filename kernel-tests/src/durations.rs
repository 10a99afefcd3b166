//! The cost model: how many cycles each instruction takes.
//!
//! An instruction takes what the hardware profile states for its class ([`HardwareProfile::latency`]), a near taken branch
//! [`HardwareProfile::taken_cycles`] more. Nothing overlaps, and whether a load misses depends on the instruction alone: streaming
//! loads (MOVNTDQA), which bypass the caches where they can, always do, the others never. So the cycles of a run follow from its
//! exact counts. It is a model: what matters is that instructions differ, not by how much.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess};

use crate::hardware_profile::{CLASSES, HardwareProfile};

/// The durations of a hardware profile.
pub struct Durations {
    latency: [u32; CLASSES.len()],
    info: InstructionInfoFactory,
}

impl Durations {
    /// Those of this hardware profile.
    pub fn new(hardware_profile: &HardwareProfile) -> Self {
        Self {
            latency: hardware_profile.latency,
            info: InstructionInfoFactory::new(),
        }
    }

    /// Cycles that an instruction takes, without those of a taken branch.
    pub fn of(&mut self, instruction: &Instruction) -> u32 {
        let class = self.class(instruction);
        self.latency.get(class).copied().unwrap_or(1)
    }

    /// Index into [`CLASSES`].
    fn class(&mut self, instruction: &Instruction) -> usize {
        use Mnemonic as M;
        match instruction.mnemonic() {
            M::Div
            | M::Idiv
            | M::Divss
            | M::Divsd
            | M::Divps
            | M::Divpd
            | M::Vdivss
            | M::Vdivsd
            | M::Vdivps
            | M::Vdivpd
            | M::Fdiv
            | M::Fdivp => 4,
            M::Sqrtss | M::Sqrtsd | M::Sqrtps | M::Sqrtpd | M::Vsqrtss | M::Vsqrtsd | M::Fsqrt => 6,
            M::Mul | M::Imul | M::Mulx => 3,
            M::Syscall
            | M::Sysretq
            | M::Iretq
            | M::Cpuid
            | M::Wrmsr
            | M::Rdmsr
            | M::Rdtsc
            | M::Rdtscp
            | M::Invlpg
            | M::Wbinvd
            | M::Lfence
            | M::Mfence
            | M::Pause
            | M::Swapgs
            | M::Hlt
            | M::Xsave
            | M::Xsaveopt
            | M::Xrstor => 7,
            M::Movntdqa | M::Vmovntdqa => 8,
            _ if instruction.has_lock_prefix() => 7,
            _ if is_float(instruction) => 5,
            _ => self.memory_class(instruction),
        }
    }

    fn memory_class(&mut self, instruction: &Instruction) -> usize {
        let info = self.info.info(instruction);
        let mut class = 0;
        for memory in info.used_memory() {
            match memory.access() {
                OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
                    return 1;
                }
                OpAccess::Write | OpAccess::CondWrite => class = 2,
                _ => {}
            }
        }
        class
    }
}

fn is_float(instruction: &Instruction) -> bool {
    let register = instruction.op0_register();
    register.is_vector_register() || register.is_st()
}
