//! Blocks: straight runs of guest instructions as the emulator cut them, kept for the whole run.
//!
//! The emulator forgets and re-makes its translations; a block here is found again by its address and
//! bytes, so that its count goes on. Blocks are never freed: translated code points at them.

use std::cell::Cell;
use std::collections::HashMap;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use kernel_tests::classes::{self, Class};
use kernel_tests::durations::Durations;
use kernel_tests::reference::KERNEL;

use crate::timer::Interrupts;

/// The block ends with a branch.
pub(crate) const BRANCH: u32 = 1;
/// The branch is taken whenever it retires.
pub(crate) const ALWAYS: u32 = 2;
/// The branch is a near one, which the branch counter counts.
pub(crate) const NEAR: u32 = 4;
/// The last instruction is a string instruction with a REP prefix.
pub(crate) const REP: u32 = 8;
/// The block begins at an interrupt gate.
pub(crate) const GATE: u32 = 16;
/// The last instruction raises a software interrupt or a breakpoint.
pub(crate) const SOFT_INT: u32 = 32;
/// The last instruction is IRET.
pub(crate) const IRET: u32 = 64;
/// Any of these takes the careful path when it begins or ends.
pub(crate) const ODD: u32 = REP | GATE | SOFT_INT | IRET;

/// One block. What the fast path needs of it is in one line of the cache: a third of its time were misses.
#[repr(C, align(64))]
pub(crate) struct Block {
    /// Address of the first instruction.
    pub(crate) start: u64,
    /// Address after the last instruction.
    pub(crate) fall: u64,
    /// Address of the last instruction.
    pub(crate) last: u64,
    /// Executions by `owner` in marked spans that are not yet accounted.
    pub(crate) count: Cell<u64>,
    /// Whose executions `count` holds.
    pub(crate) owner: Cell<u32>,
    /// Instructions.
    pub(crate) n: u32,
    /// [`BRANCH`] and so on.
    pub(crate) flags: u32,
    /// 0 user, 1 kernel.
    pub(crate) ring: u32,
    /// Cycles of all instructions.
    pub(crate) cycles: u32,
    /// Gate number, if [`GATE`].
    pub(crate) vector: u8,
    /// Offset of each instruction from `start`.
    pub(crate) offsets: Vec<u16>,
    /// Cycles from the start of the block to the end of each instruction.
    pub(crate) ends: Vec<u32>,
    /// Instructions of each class; of branches that are not taken, those that may be.
    pub(crate) classes: [u64; classes::N],
    /// The classes of each instruction, one bit for each.
    pub(crate) classes_of: Vec<u8>,
    /// The instructions that turn interrupts on or off, by index.
    pub(crate) interrupts: Vec<(u32, Interrupts)>,
    /// The code.
    pub(crate) bytes: Vec<u8>,
}

impl Block {
    /// Address of one instruction; of the end for an index past the last.
    pub(crate) fn address(&self, index: u32) -> u64 {
        self.offsets
            .get(index as usize)
            .map_or(self.fall, |offset| self.start + u64::from(*offset))
    }

    /// Cycles that the instructions before this one take together.
    pub(crate) fn cycles_before(&self, index: u32) -> u32 {
        let before = (index as usize)
            .checked_sub(1)
            .and_then(|before| self.ends.get(before));
        before.copied().unwrap_or(0)
    }

    /// Index of the instruction at this address.
    pub(crate) fn index_of(&self, address: u64) -> Option<u32> {
        let offset = u16::try_from(address.checked_sub(self.start)?).ok()?;
        self.offsets.binary_search(&offset).ok().map(|index| index as u32)
    }
}

/// All blocks that were ever translated.
pub(crate) struct Blocks {
    known: HashMap<(u64, Vec<u8>), &'static Block>,
    durations: Durations,
}

impl Blocks {
    pub(crate) fn new(durations: Durations) -> Self {
        Self {
            known: HashMap::new(),
            durations,
        }
    }

    /// The block with these instructions (`lengths` in bytes each), made when it is new. `gate` is the
    /// number of the interrupt gate that begins here.
    pub(crate) fn intern(
        &mut self,
        start: u64,
        bytes: Vec<u8>,
        lengths: &[u16],
        gate: Option<u8>,
    ) -> &'static Block {
        if let Some(block) = self.known.get(&(start, bytes.clone())) {
            return block;
        }
        let block: &'static Block = Box::leak(Box::new(self.make(start, bytes.clone(), lengths, gate)));
        self.known.insert((start, bytes), block);
        block
    }

    /// Every block.
    pub(crate) fn all(&self) -> impl Iterator<Item = &'static Block> + '_ {
        self.known.values().copied()
    }

    fn make(&mut self, start: u64, bytes: Vec<u8>, lengths: &[u16], gate: Option<u8>) -> Block {
        let mut offsets = Vec::with_capacity(lengths.len());
        let mut ends = Vec::with_capacity(lengths.len());
        let mut cycles = 0;
        let mut offset: u16 = 0;
        let mut flags = if gate.is_some() { GATE } else { 0 };
        let mut classes_of = Vec::with_capacity(lengths.len());
        let mut interrupts = Vec::new();
        for (index, length) in lengths.iter().enumerate() {
            offsets.push(offset);
            let end = usize::from(offset) + usize::from(*length);
            let code = bytes.get(usize::from(offset)..end).unwrap_or_default();
            let address = start + u64::from(offset);
            let instruction = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
            cycles += self.durations.of(&instruction);
            ends.push(cycles);
            classes_of.push(classes(&instruction));
            interrupts.extend(Interrupts::after(&instruction).map(|after| (index as u32, after)));
            if index + 1 == lengths.len() {
                flags |= ending(&instruction);
            }
            offset += *length;
        }
        let kernel = start >> 63 == 1;
        Block {
            start,
            fall: start + u64::from(offset),
            last: start + offsets.last().map_or(0, |last| u64::from(*last)),
            count: Cell::new(0),
            owner: Cell::new(if kernel { KERNEL } else { 0 }),
            n: lengths.len() as u32,
            flags,
            ring: u32::from(kernel),
            vector: gate.unwrap_or(0),
            offsets,
            ends,
            cycles,
            classes: sums(&classes_of),
            classes_of,
            interrupts,
            bytes,
        }
    }
}

/// The classes of an instruction, one bit for each.
fn classes(instruction: &Instruction) -> u8 {
    let of = Class::ALL.into_iter().filter(|class| class.has(instruction));
    of.fold(0, |all, class| all | 1 << class as u8)
}

/// How many of these instructions are in each class.
pub(crate) fn sums(classes_of: &[u8]) -> [u64; classes::N] {
    std::array::from_fn(|class| {
        let has = |of: &&u8| **of >> class & 1 == 1;
        classes_of.iter().filter(has).count() as u64
    })
}

/// How the last instruction of a block leaves it.
fn ending(instruction: &Instruction) -> u32 {
    let repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    if repeated && instruction.is_string_instruction() {
        return REP;
    }
    match instruction.flow_control() {
        FlowControl::ConditionalBranch => BRANCH | NEAR,
        FlowControl::Return if is_far_return(instruction) => {
            BRANCH | ALWAYS | if is_iret(instruction) { IRET } else { 0 }
        }
        FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::Return
        | FlowControl::IndirectCall => BRANCH | ALWAYS | NEAR,
        FlowControl::Call if instruction.mnemonic() == Mnemonic::Syscall => BRANCH | ALWAYS,
        FlowControl::Call if instruction.mnemonic() == Mnemonic::Call => BRANCH | ALWAYS | NEAR,
        FlowControl::Interrupt => SOFT_INT,
        _ => 0,
    }
}

fn is_iret(instruction: &Instruction) -> bool {
    matches!(instruction.code(), Code::Iretq | Code::Iretd | Code::Iretw)
}

fn is_far_return(instruction: &Instruction) -> bool {
    is_iret(instruction)
        || matches!(
            instruction.code(),
            Code::Retfq
                | Code::Retfd
                | Code::Retfw
                | Code::Sysretq
                | Code::Sysretd
                | Code::Sysexitq
                | Code::Sysexitd
        )
}
