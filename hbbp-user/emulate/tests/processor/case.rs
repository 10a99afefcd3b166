//! One step of a random instruction, compared.

use std::collections::BTreeMap;

use hbbp_emulate::{End, Machine};
use iced_x86::{CpuidFeature, Instruction, Mnemonic};

use crate::shared_memory::{AREA, AREA_BYTES, Shared};
use crate::state::State;
use crate::stepped::{Area, FLAGS, Stepped, Stop, differences, in_order, vector_differences};

/// What came of the steps.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) compared: u64,
    /// Of steps from known states: those after which all is known, and all, by mnemonic.
    pub(crate) known: BTreeMap<String, (u64, u64)>,
    pub(crate) faults: u64,
    pub(crate) ends: BTreeMap<End, u64>,
    /// The first difference of each instruction, and their number.
    pub(crate) differences: BTreeMap<String, (String, u64)>,
}

impl Outcome {
    fn differs(&mut self, it: &Instruction, case: String) {
        let entry = self.differences.entry(format!("{:?}", it.code()));
        entry.or_insert((case, 0)).1 += 1;
    }
}

/// Whether all that a step wrote is known, except for flags that are undefined.
fn is_known(machine: &Machine, it: &Instruction) -> bool {
    let undefined = undefined_flags(it);
    let flags = machine.flags.known | undefined;
    let mut bytes = [0; 64];
    let mut memory = machine.memory.clone();
    let parts = (0..AREA_BYTES as u64).step_by(64);
    machine.registers.iter().all(|value| value.known == u64::MAX)
        && machine.masks.iter().all(|value| value.known == u64::MAX)
        && machine.vectors.iter().all(|vector| vector.known == u64::MAX)
        && flags & FLAGS == FLAGS
        && parts
            .into_iter()
            .all(|at| memory.load(AREA + at, &mut bytes) == u64::MAX)
}

/// The flags that an instruction leaves undefined, at their bits of RFLAGS.
fn undefined_flags(it: &Instruction) -> u64 {
    use iced_x86::RflagsBits as F;
    let bits = [
        (F::CF, 0),
        (F::PF, 2),
        (F::AF, 4),
        (F::ZF, 6),
        (F::SF, 7),
        (F::OF, 11),
    ];
    let undefined = bits.iter().filter(|(flag, _)| it.rflags_undefined() & flag != 0);
    undefined.fold(0, |all, (_, bit)| all | 1 << bit)
}

/// Whether an instruction is integer code without vectors.
fn is_integer(it: &Instruction) -> bool {
    it.cpuid_features().iter().all(|feature| {
        matches!(
            feature,
            CpuidFeature::INTEL8086
                | CpuidFeature::INTEL186
                | CpuidFeature::INTEL386
                | CpuidFeature::INTEL486
                | CpuidFeature::X64
                | CpuidFeature::CMOV
                | CpuidFeature::POPCNT
                | CpuidFeature::LZCNT
                | CpuidFeature::BMI1
                | CpuidFeature::BMI2
                | CpuidFeature::ADX
                | CpuidFeature::MOVBE
                | CpuidFeature::CX8
                | CpuidFeature::CMPXCHG16B
        )
    })
}

/// A step to compare.
pub(crate) struct Case {
    pub(crate) state: State,
    pub(crate) instruction: Instruction,
    pub(crate) code: Vec<u8>,
    /// Where parts of the state are unknown to the emulator.
    pub(crate) machine: Machine,
    pub(crate) is_partly: bool,
}

impl Case {
    fn sentence(&self) -> String {
        let it = &self.instruction;
        let bytes = &self.code[..it.len()];
        format!("{it} ({:?}, {bytes:x?}), partly {}", it.code(), self.is_partly)
    }

    pub(crate) fn compare(
        mut self,
        child: &Stepped,
        shared: &Shared,
        area: &mut Area,
        outcome: &mut Outcome,
    ) {
        let it = self.instruction;
        let emulated = self.machine.step();
        if let Err(end) = emulated {
            *outcome.ends.entry(end).or_default() += 1;
            if end != End::Fault {
                return;
            }
        }
        let has_vectors = !is_integer(&it);
        if has_vectors {
            area.set_vectors(&self.state.vectors);
            child.set_area(area);
        }
        child.set_registers(&self.state.registers);
        let stop = child.step();
        if stop != Stop::Signal(libc::SIGTRAP) {
            assert_ne!(stop, Stop::Ended, "{}", self.sentence());
            // Addresses outside of the area are not mapped; a division faults where it is emulated to.
            let is_division = matches!(it.mnemonic(), Mnemonic::Div | Mnemonic::Idiv);
            let is_read = self.machine.memory.missing().next().is_none();
            let divided = emulated.is_ok() && !self.is_partly && is_read && is_division;
            if divided && stop == Stop::Signal(libc::SIGFPE) {
                outcome.differs(&it, format!("{}: the processor faults", self.sentence()));
            }
            outcome.faults += 1;
            return;
        }
        if emulated.is_err() {
            outcome.differs(&it, format!("{}: the processor does not fault", self.sentence()));
            return;
        }
        let mut found = differences(&self.machine, &child.registers());
        if has_vectors {
            found.extend(vector_differences(&self.machine, &child.area().vectors()));
        }
        found.extend(memory_differences(&mut self.machine, &shared.area(), &it));
        if !found.is_empty() {
            let before = in_order(&self.state.registers);
            let flags = self.state.registers.eflags;
            outcome.differs(
                &it,
                format!("{}\n{before:x?}\n{flags:x}\n{found:#?}", self.sentence()),
            );
        }
        outcome.compared += 1;
        if !self.is_partly {
            let (known, all) = outcome.known.entry(format!("{:?}", it.mnemonic())).or_default();
            *known += u64::from(is_known(&self.machine, &it));
            *all += 1;
        }
    }
}

fn memory_differences(machine: &mut Machine, real: &[u8; AREA_BYTES], it: &Instruction) -> Vec<String> {
    let mut found = Vec::new();
    for begin in (0..AREA_BYTES).step_by(64) {
        let mut bytes = [0; 64];
        let known = machine.memory.load(AREA + begin as u64, &mut bytes);
        for at in (0..64).filter(|at| known >> at & 1 != 0) {
            let real = real[begin + at];
            // Flags that are pushed have the trap flag of the step.
            let is_trap =
                matches!(it.mnemonic(), Mnemonic::Pushf | Mnemonic::Pushfq) && real ^ bytes[at] == 1;
            if real != bytes[at] && !is_trap {
                found.push(format!(
                    "byte {:x} {:x}, is {real:x}",
                    AREA + (begin + at) as u64,
                    bytes[at]
                ));
            }
        }
    }
    found
}
