//! Static properties of an instruction form (paper section V.B): "the instruction class, ISA, family and category,
//! types, numbers, sizes and attributes of operands", memory access and packing.
//!
//! Mnemonics are those of the Intel manuals in upper case, one for each instruction: of synonyms the one that the SDM
//! lists first for the condition (JE, not JZ), with operand sizes where the manual has them (MOVSB, CMPXCHG16B), without
//! prefixes.
//! Everything is computed once for each form, not for each instruction.

use iced_x86::{Code, EncodingKind, Instruction, Mnemonic, OpKind, Register};

use super::category::{Category, Legacy, category, strip_encoding};
use super::dimension::Dimension;
use super::extension::extension;
use super::level::{NO_LEVEL, level};
use super::operands::{Packing, element, flops, form};
use hbbp_code::blocks::{Flow, Form, memory_access};
use hbbp_decode::Modern;

/// The static properties of an instruction form.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Class {
    /// Mnemonic.
    pub mnemonic: String,
    /// Instruction set extension.
    pub extension: String,
    /// What it does.
    pub category: Category,
    /// How a vector instruction treats the elements.
    pub packing: Packing,
    /// Width in bits of the widest explicit data operand, registers and memory; 0 without one or for control transfers.
    pub width: usize,
    /// Memory access; the stack is memory, as in Pin (`INS_IsMemoryRead`).
    pub memory: Memory,
    /// Control flow.
    pub flow: Flow,
    /// Whether it locks its memory operand.
    pub lock: Lock,
    /// Lowest x86-64 level that has it.
    pub level: &'static str,
    /// Type of its data elements.
    pub element: &'static str,
    /// Mnemonic and kinds of operands.
    pub form: String,
    /// Floating-point operations of one execution.
    pub flops: u32,
}

/// What an instruction does with memory.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Memory {
    /// Nothing; also for LEA, NOP and prefetches, which only compute an address.
    None,
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// It reads and writes.
    ReadWrite,
}

/// Whether an instruction locks its memory operand (SDM vol. 3, 9.1.2).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Lock {
    /// No.
    None,
    /// By the LOCK prefix.
    Prefixed,
    /// Implicitly: XCHG with memory.
    Implied,
}

impl Class {
    /// The class of a form with control flow `flow`. `None` for invalid bytes.
    pub fn of(form: &Form, flow: Flow) -> Option<Self> {
        let mut class = Self::new(&form.decoded()?, flow);
        if let Some(modern) = form.modern() {
            class.become_modern(modern);
        }
        Some(class)
    }

    /// Sets what differs from the instruction that iced-x86 knows.
    fn become_modern(&mut self, modern: Modern) {
        self.extension = modern.extension.to_string();
        let by_name = modern.mnemonic.map_or(Category::Other, category);
        if by_name != Category::Other && by_flow(self.flow).is_none() {
            // The nearest one is a comparison or a move, which have other categories.
            self.category = by_name;
        }
        self.element = by_mnemonic(modern.mnemonic).unwrap_or(self.element);
        // No level has it (System V ABI, AMD64 supplement 1.0, table 3.1).
        self.level = NO_LEVEL;
        let operands = self.form.split_once(' ').map_or("", |(_, operands)| operands);
        let destination = operands.split(", ").find(|operand| operand.starts_with('R'));
        let destination = destination.map_or_else(|| format!("R{}", self.width), str::to_owned);
        let destination = modern.has_new_destination.then_some(destination.as_str());
        let mnemonic = modern
            .mnemonic
            .map_or_else(|| self.mnemonic.clone(), str::to_owned);
        let operands: Vec<&str> = destination
            .into_iter()
            .chain([operands])
            .filter(|text| !text.is_empty())
            .collect();
        self.form = format!("{mnemonic} {}", operands.join(", "))
            .trim_end()
            .to_owned();
        self.mnemonic = mnemonic;
    }

    /// The class of a decoded instruction.
    pub(super) fn new(instruction: &Instruction, flow: Flow) -> Self {
        let code = instruction.code();
        let mnemonic = name(code.mnemonic());
        let coding = strip_encoding(&mnemonic, legacy(code));
        let packing = packing(instruction, coding);
        let width = if flow.ends_block() { 0 } else { width(instruction) };
        Self {
            extension: extension(code),
            category: by_flow(flow).unwrap_or_else(|| kind(instruction, coding)),
            packing,
            width,
            memory: memory(instruction),
            flow,
            lock: lock(instruction),
            level: level(code),
            element: element(instruction),
            form: form(&mnemonic, instruction),
            flops: flops(instruction, coding, packing, width),
            mnemonic,
        }
    }

    /// The value of a dimension that is a static property; `None` for the others.
    pub fn value(&self, dimension: Dimension) -> Option<String> {
        let value = match dimension {
            Dimension::Mnemonic => self.mnemonic.clone(),
            Dimension::Extension => self.extension.clone(),
            Dimension::Category => self.category.name().to_owned(),
            Dimension::Packing => self.packing.name().to_owned(),
            Dimension::Width => self.width.to_string(),
            Dimension::Memory => self.memory.name().to_owned(),
            Dimension::ControlFlow => flow_name(self.flow).to_owned(),
            Dimension::Lock => self.lock.name().to_owned(),
            Dimension::Level => self.level.to_owned(),
            Dimension::Element => self.element.to_owned(),
            Dimension::Form => self.form.clone(),
            _ => return None,
        };
        Some(value)
    }
}

impl Memory {
    pub(super) const ALL: [Self; 4] = [Self::None, Self::Read, Self::Write, Self::ReadWrite];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Read => "read",
            Self::Write => "write",
            Self::ReadWrite => "read-write",
        }
    }
}

impl Lock {
    pub(super) const ALL: [Self; 3] = [Self::None, Self::Prefixed, Self::Implied];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Prefixed => "locked",
            Self::Implied => "locked (implied)",
        }
    }
}

/// The type of the data elements of an instruction of AVX10.2, whose nearest one may have another.
fn by_mnemonic(mnemonic: Option<&str>) -> Option<&'static str> {
    let mnemonic = mnemonic?;
    match mnemonic {
        _ if mnemonic.ends_with("BF16") => Some("bfloat16"),
        "VMINMAXPH" | "VMINMAXSH" => Some("float16"),
        _ => None,
    }
}

/// The name of a mnemonic as in the Intel manuals.
pub(super) fn name(mnemonic: Mnemonic) -> String {
    format!("{mnemonic:?}").to_uppercase()
}

fn legacy(code: Code) -> Legacy {
    if code.encoding() == EncodingKind::Legacy {
        Legacy::Yes
    } else {
        Legacy::No
    }
}

pub(super) const fn flow_name(flow: Flow) -> &'static str {
    match flow {
        Flow::Next => "next",
        Flow::Idle => "idle",
        Flow::Conditional => "conditional branch",
        Flow::Jump => "jump",
        Flow::IndirectJump => "indirect jump",
        Flow::Call | Flow::CallNext => "call",
        Flow::IndirectCall => "indirect call",
        Flow::Return => "return",
        Flow::InterruptReturn => "interrupt return",
        Flow::SystemCall => "system call",
        Flow::Trap => "trap",
        Flow::Invalid => "invalid",
    }
}

const fn by_flow(flow: Flow) -> Option<Category> {
    match flow {
        Flow::Conditional => Some(Category::ConditionalBranch),
        Flow::Jump | Flow::IndirectJump => Some(Category::Jump),
        Flow::Call | Flow::CallNext | Flow::IndirectCall => Some(Category::Call),
        Flow::Return | Flow::InterruptReturn => Some(Category::Return),
        Flow::SystemCall => Some(Category::SystemCall),
        Flow::Trap => Some(Category::Trap),
        Flow::Next | Flow::Idle | Flow::Invalid => None,
    }
}

/// MOVSD and CMPSD name both a string instruction and one of SSE2; the operands decide.
fn kind(instruction: &Instruction, coding: &str) -> Category {
    match instruction.mnemonic() {
        Mnemonic::Movsd | Mnemonic::Cmpsd if !has_vector(instruction) => Category::String,
        _ => category(coding),
    }
}

fn has_vector(instruction: &Instruction) -> bool {
    registers(instruction).any(|r| r.is_vector_register() || r.is_mm())
}

/// The registers that are operands by themselves, not parts of an address.
fn registers(instruction: &Instruction) -> impl Iterator<Item = Register> {
    (0..instruction.op_count())
        .filter(|&operand| instruction.op_kind(operand) == OpKind::Register)
        .map(|operand| instruction.op_register(operand))
}

/// Scalar floating point ends in SS, SD or SH, or converts from or to one value; whole registers and integer vectors,
/// whose names begin with P, are packed. Moves of a single element between register files are scalar.
fn packing(instruction: &Instruction, coding: &str) -> Packing {
    if !has_vector(instruction) {
        return Packing::None;
    }
    let begins = |with: &[&str]| with.iter().any(|beginning| coding.starts_with(beginning));
    let element = ["MOVD", "MOVQ", "MOVW"].contains(&coding) || begins(&["PINSR", "PEXTR", "EXTRACTPS"]);
    let ends = ["SS", "SD", "SH"].iter().any(|end| coding.ends_with(end)) && !begins(&["P", "BROADCAST"]);
    let converts = ["SS2", "SD2", "SH2"].iter().any(|part| coding.contains(part)) && begins(&["CVT"]);
    if element || ends || converts {
        Packing::Scalar
    } else {
        Packing::Packed
    }
}

fn width(instruction: &Instruction) -> usize {
    let registers = registers(instruction).map(|r| r.size() * 8).max();
    let memory = instruction.memory_size().size() * 8;
    registers.unwrap_or(0).max(memory)
}

fn memory(instruction: &Instruction) -> Memory {
    let access = memory_access(instruction);
    match (access.reads, access.writes) {
        (false, false) => Memory::None,
        (true, false) => Memory::Read,
        (false, true) => Memory::Write,
        (true, true) => Memory::ReadWrite,
    }
}

fn lock(instruction: &Instruction) -> Lock {
    let in_memory = instruction.op_kinds().any(|kind| kind == OpKind::Memory);
    match instruction.mnemonic() {
        _ if instruction.has_lock_prefix() => Lock::Prefixed,
        Mnemonic::Xchg if in_memory => Lock::Implied,
        _ => Lock::None,
    }
}

#[cfg(test)]
mod tests;
