//! The classes of instructions that the emulated PMU counts exactly, each with a counting event of a Skylake.
//!
//! Which instructions belong to a class follows from the bytes alone, but for branches that are not taken. So the emulated PMU
//! adds up what a block holds of each class when it is translated, and counts blocks.
//!
//! Sources: Intel's event lists for Skylake (github.com/intel/perfmon), which say what an event counts. What they leave
//! open is settled here as the emulated processor has it: a REP string instruction counts once, whatever its rounds, and
//! whatever an instruction pushes or pops is a store or a load.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
};

use crate::layout::EVENT_CLASSES;
use crate::reference::Block;

/// A class of instructions, in the order of the events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Class {
    /// MEM_INST_RETIRED.ALL_LOADS: at least one load, software prefetches included.
    Loads,
    /// MEM_INST_RETIRED.ALL_STORES: at least one store.
    Stores,
    /// MEM_INST_RETIRED.LOCK_LOADS: a load with locked access.
    Locked,
    /// BR_INST_RETIRED.CONDITIONAL.
    Conditional,
    /// BR_INST_RETIRED.NOT_TAKEN: conditional branches that were not taken.
    NotTaken,
    /// BR_INST_RETIRED.NEAR_CALL: direct and indirect calls.
    Calls,
    /// BR_INST_RETIRED.NEAR_RETURN.
    Returns,
    /// INST_RETIRED.NOP: NOPs of any length, and ENDBR.
    Nops,
}

/// The mnemonics with at most a hundredth of their executions in a class: the counts of classes do not constrain these.
pub fn uncounted<'a>(blocks: impl IntoIterator<Item = &'a Block>) -> BTreeSet<String> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for block in blocks {
        for instruction in Decoder::with_ip(64, &block.bytes, block.start, DecoderOptions::NONE) {
            let name = format!("{:?}", instruction.mnemonic()).to_uppercase();
            let (all, counted) = sums.entry(name).or_default();
            *all += block.executions;
            if Class::ALL.into_iter().any(|class| class.has(&instruction)) {
                *counted += block.executions;
            }
        }
    }
    sums.retain(|_, (all, counted)| 100 * *counted <= *all);
    sums.into_keys().collect()
}

/// Number of classes.
pub const N: usize = Class::ALL.len();

impl Class {
    /// All classes: the n-th has the event `EVENT_CLASSES + n`.
    pub const ALL: [Self; 8] = [
        Self::Loads,
        Self::Stores,
        Self::Locked,
        Self::Conditional,
        Self::NotTaken,
        Self::Calls,
        Self::Returns,
        Self::Nops,
    ];

    /// The class that an event of the layout counts.
    pub fn of_event(event: u32) -> Option<Self> {
        Self::ALL.get(event.checked_sub(EVENT_CLASSES)? as usize).copied()
    }

    /// Its name in the reports of `hbbp-sys`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loads => "loads",
            Self::Stores => "stores",
            Self::Locked => "locked",
            Self::Conditional => "conditional",
            Self::NotTaken => "not_taken",
            Self::Calls => "calls",
            Self::Returns => "returns",
            Self::Nops => "nops",
        }
    }

    /// Whether an instruction belongs to the class. Of branches that are not taken it says which may be.
    pub fn has(self, instruction: &Instruction) -> bool {
        let flow = instruction.flow_control();
        match self {
            Self::Loads => accesses(instruction, &LOADS) || is_prefetch(instruction),
            Self::Stores => accesses(instruction, &STORES),
            Self::Locked => {
                let in_memory = instruction.op_kinds().any(|kind| kind == OpKind::Memory);
                instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg && in_memory
            }
            Self::Conditional | Self::NotTaken => flow == FlowControl::ConditionalBranch,
            Self::Calls => instruction.mnemonic() == Mnemonic::Call,
            Self::Returns => instruction.mnemonic() == Mnemonic::Ret,
            Self::Nops => matches!(
                instruction.mnemonic(),
                Mnemonic::Nop | Mnemonic::Endbr64 | Mnemonic::Endbr32
            ),
        }
    }
}

const LOADS: [OpAccess; 4] = [
    OpAccess::Read,
    OpAccess::CondRead,
    OpAccess::ReadWrite,
    OpAccess::ReadCondWrite,
];
const STORES: [OpAccess; 4] = [
    OpAccess::Write,
    OpAccess::CondWrite,
    OpAccess::ReadWrite,
    OpAccess::ReadCondWrite,
];

fn accesses(instruction: &Instruction, wanted: &[OpAccess]) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(instruction).used_memory();
    used.iter().any(|memory| wanted.contains(&memory.access()))
}

fn is_prefetch(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Prefetchnta
            | Mnemonic::Prefetcht0
            | Mnemonic::Prefetcht1
            | Mnemonic::Prefetcht2
            | Mnemonic::Prefetchw
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(bytes: &[u8]) -> Vec<&'static str> {
        let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        let of = Class::ALL.into_iter().filter(|class| class.has(&instruction));
        of.map(Class::name).collect()
    }

    #[test]
    fn an_instruction_counts_in_each_class_it_belongs_to() {
        // lock incl (%rax)
        assert_eq!(classes(&[0xf0, 0xff, 0x00]), ["loads", "stores", "locked"]);
        // call *(%rax)
        assert_eq!(classes(&[0xff, 0x10]), ["loads", "stores", "calls"]);
        // ret; jne; nopl (%rax); rep movsb; lea (%rax),%rax
        assert_eq!(classes(&[0xc3]), ["loads", "returns"]);
        assert_eq!(classes(&[0x75, 0x00]), ["conditional", "not_taken"]);
        assert_eq!(classes(&[0x0f, 0x1f, 0x00]), ["nops"]);
        assert_eq!(classes(&[0xf3, 0xa4]), ["loads", "stores"]);
        assert_eq!(classes(&[0x48, 0x8d, 0x00]), [""; 0]);
    }

    #[test]
    fn a_mnemonic_is_uncounted_if_nearly_no_form_is_in_a_class() {
        let block = |bytes: &[u8], executions| Block {
            owner: 1,
            n_instructions: 1,
            start: 0x1000,
            executions,
            bytes: bytes.to_vec(),
        };
        // add %eax,%ecx; add %eax,(%rax); lea (%rax),%rax
        let blocks = |in_memory| {
            [
                block(&[0x01, 0xc1], 990),
                block(&[0x01, 0x00], in_memory),
                block(&[0x48, 0x8d, 0x00], 5),
            ]
        };
        assert_eq!(
            uncounted(&blocks(10)).into_iter().collect::<Vec<_>>(),
            ["ADD", "LEA"]
        );
        assert_eq!(uncounted(&blocks(20)).into_iter().collect::<Vec<_>>(), ["LEA"]);
    }
}
