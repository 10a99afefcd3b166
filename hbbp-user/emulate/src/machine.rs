//! The state of a thread, and the steps that it takes.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hbbp_decode::Decoder;
use iced_x86::{FlowControl, Instruction, Mnemonic};

use crate::end::End;
use crate::memory::Memory;
use crate::value::Value;
use crate::vector::Vector;

/// A thread of which a burst is emulated: registers of a sample, and the memory that was read.
#[derive(Clone, Debug)]
pub struct Machine {
    /// RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 to R15, in the order of their encoding.
    pub registers: [Value; 16],
    /// The address of the next instruction.
    pub rip: u64,
    /// RFLAGS.
    pub flags: Value,
    /// ZMM0 to ZMM31.
    pub vectors: [Vector; 32],
    /// The mask registers K0 to K7.
    pub masks: [Value; 8],
    /// The address that FS begins at: that of the thread's own data.
    pub fs_base: u64,
    /// The address that GS begins at.
    pub gs_base: u64,
    /// The memory of its process.
    pub memory: Memory,
    branches: Vec<Branch>,
    /// Text is not written, so that an instruction stays what it is.
    decoded: HashMap<u64, Instruction, FixedState>,
}

/// A branch that was taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Branch {
    /// The address of the branch instruction.
    pub from: u64,
    /// The address that it led to.
    pub to: u64,
}

/// How long a burst may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Taken branches, of this burst in all.
    pub branches: usize,
    /// Steps of this run.
    pub steps: u64,
}

impl Machine {
    /// A thread at an instruction. All registers are unknown.
    pub fn new(rip: u64) -> Self {
        Self {
            registers: [Value::UNKNOWN; 16],
            rip,
            flags: Value::UNKNOWN,
            vectors: [Vector::UNKNOWN; 32],
            masks: [Value::UNKNOWN; 8],
            fs_base: 0,
            gs_base: 0,
            memory: Memory::default(),
            branches: Vec::new(),
            decoded: HashMap::default(),
        }
    }

    /// The branches that were taken, the oldest first.
    pub fn branches(&self) -> &[Branch] {
        &self.branches
    }

    /// Takes steps until there is a reason to end.
    pub fn run(&mut self, limits: Limits) -> End {
        for _ in 0..limits.steps {
            if limits.branches <= self.branches.len() {
                return End::Branches;
            }
            if let Err(end) = self.step() {
                return end;
            }
        }
        End::Steps
    }

    /// Executes an instruction, or one repetition of a string instruction, as a single step of the processor does.
    ///
    /// # Errors
    /// When the burst ends before it. What the instruction has changed up to then stays, except for its address.
    pub fn step(&mut self) -> Result<(), End> {
        let instruction = self.fetch()?;
        self.rip = instruction.next_ip();
        let result = self.execute(&instruction);
        if result.is_err() {
            self.rip = instruction.ip();
        }
        result
    }

    /// The instruction at the present address.
    ///
    /// # Errors
    /// When its text was not read, or is not one that can be emulated.
    pub fn fetch(&mut self) -> Result<Instruction, End> {
        if let Some(instruction) = self.decoded.get(&self.rip) {
            return Ok(*instruction);
        }
        let (text, n) = self.memory.text(self.rip);
        let mut decoder = Decoder::try_with_ip(64, &text[..n], self.rip).map_err(|_| End::NoInstruction)?;
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            let is_cut = n < text.len();
            let end = self.rip.wrapping_add(n as u64);
            return Err(if is_cut {
                End::TextNotRead(end)
            } else {
                End::NoInstruction
            });
        }
        if decoder.modern().is_some() || is_ambiguous(&instruction, &text) {
            return Err(End::NotEmulated);
        }
        self.decoded.insert(self.rip, instruction);
        Ok(instruction)
    }

    /// Takes a branch.
    pub(crate) fn jump(&mut self, from: &Instruction, to: Value) -> Result<(), End> {
        let to = to.get(64).ok_or(End::UnknownBranch)?;
        self.branches.push(Branch {
            from: from.ip(),
            to: canonical(to)?,
        });
        self.rip = to;
        Ok(())
    }
}

/// Whether processors differ in what a branch with these prefixes does: those of AMD have targets of 16 bits after 66, unless
/// REX.W follows, and prefixes of repetition change the condition of LOOPE. Compilers write neither.
fn is_ambiguous(instruction: &Instruction, text: &[u8]) -> bool {
    if instruction.flow_control() == FlowControl::Next {
        return false;
    }
    let prefixes = text.iter().take_while(|byte| {
        matches!(
            **byte,
            0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x40..0x50
        )
    });
    let prefixes = &text[..prefixes.count()];
    let is_wide = prefixes.last().is_some_and(|rex| matches!(rex, 0x48..0x50));
    let is_repeated = prefixes.iter().any(|byte| matches!(byte, 0xf2 | 0xf3));
    let is_conditional = matches!(instruction.mnemonic(), Mnemonic::Loope | Mnemonic::Loopne);
    prefixes.contains(&0x66) && !is_wide || is_repeated && is_conditional
}

/// An address as it is, if pointers may have it: bits 48 to 63 equal bit 47 (SDM vol. 1, 3.3.7.1).
pub(crate) fn canonical(address: u64) -> Result<u64, End> {
    let extended = (address.cast_signed() << 16) >> 16;
    if extended.cast_unsigned() == address {
        Ok(address)
    } else {
        Err(End::Fault)
    }
}
