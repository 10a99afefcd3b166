//! Where control goes from an instruction.

use hbbp_decode::Decoder;
use iced_x86::{Code, FlowControl, Instruction as Decoded, Mnemonic, OpKind};

use hbbp_model::addr::ImageAddr;

/// Control flow of an instruction.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Flow {
    /// To the next instruction.
    Next,
    /// To the next instruction, after waiting for an interrupt or a write (HLT, MWAIT, MONITOR).
    Idle,
    /// To its target or to the next instruction (Jcc, LOOP, JRCXZ, XBEGIN, XABORT).
    Conditional,
    /// To its target.
    Jump,
    /// To a target that is computed.
    IndirectJump,
    /// To its target; the next instruction is the return address.
    Call,
    /// To the next instruction, whose address it pushes (CALL $+5): a branch that CPUs with architectural LBR do not
    /// record (Intel SDM vol. 3B, chapter "Last Branch Records").
    CallNext,
    /// To a target that is computed; the next instruction is the return address.
    IndirectCall,
    /// To the caller.
    Return,
    /// To code that was interrupted or that called the system (IRET, SYSRET, SYSEXIT, RSM).
    InterruptReturn,
    /// To the system or the hypervisor, which comes back to the next instruction (SYSCALL, INT n, VMCALL).
    SystemCall,
    /// Nowhere: it raises an exception (UD2).
    Trap,
    /// Invalid bytes.
    Invalid,
}

impl Flow {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Next,
        Self::Idle,
        Self::Conditional,
        Self::Jump,
        Self::IndirectJump,
        Self::Call,
        Self::CallNext,
        Self::IndirectCall,
        Self::Return,
        Self::InterruptReturn,
        Self::SystemCall,
        Self::Trap,
        Self::Invalid,
    ];

    /// Whether a basic block ends with it. Calls end a block, as Pin and SDE have it (the paper's reference).
    pub const fn ends_block(self) -> bool {
        !matches!(self, Self::Next | Self::Idle)
    }

    /// Whether the processor can record it as the source of a taken branch.
    pub const fn is_branch(self) -> bool {
        !matches!(self, Self::Next | Self::Idle | Self::Trap | Self::Invalid)
    }

    /// Whether control never falls through to the next instruction, so that no stream runs past it.
    /// System calls do not stop a stream: a stack of user branches lacks the branches in the kernel.
    pub const fn stops_stream(self) -> bool {
        match self {
            Self::Next | Self::Idle | Self::Conditional | Self::CallNext | Self::SystemCall => false,
            Self::Jump | Self::IndirectJump | Self::Call | Self::IndirectCall => true,
            Self::Return | Self::InterruptReturn | Self::Trap | Self::Invalid => true,
        }
    }
}

/// The target of a direct near branch.
pub(super) fn target(instruction: &Decoded) -> Option<ImageAddr> {
    match instruction.op0_kind() {
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
            Some(ImageAddr(instruction.near_branch_target()))
        }
        _ => None,
    }
}

/// The target of the direct near branch whose bytes are at `addr`.
pub fn direct_target(bits: u32, bytes: &[u8], addr: ImageAddr) -> Option<ImageAddr> {
    let mut decoder = Decoder::try_with_ip(bits, bytes, addr.0).ok()?;
    target(&decoder.decode())
}

/// Control flow of all instructions of an opcode; of a call to the next instruction, [`Flow::Call`].
pub(super) fn flow(instruction: &Decoded) -> Flow {
    match instruction.flow_control() {
        FlowControl::Next => match instruction.mnemonic() {
            Mnemonic::Hlt | Mnemonic::Mwait | Mnemonic::Mwaitx | Mnemonic::Monitor | Mnemonic::Monitorx => {
                Flow::Idle
            }
            _ => Flow::Next,
        },
        FlowControl::UnconditionalBranch => Flow::Jump,
        FlowControl::IndirectBranch => Flow::IndirectJump,
        FlowControl::ConditionalBranch => Flow::Conditional,
        FlowControl::Return => match instruction.mnemonic() {
            Mnemonic::Ret | Mnemonic::Retf => Flow::Return,
            _ => Flow::InterruptReturn,
        },
        // The others of these, such as VMCALL, are calls of a system.
        FlowControl::Call if instruction.mnemonic() == Mnemonic::Call => Flow::Call,
        FlowControl::Call => Flow::SystemCall,
        FlowControl::IndirectCall => Flow::IndirectCall,
        FlowControl::Interrupt => Flow::SystemCall,
        // XEND ends a transaction without a jump; XBEGIN and XABORT may go to the fallback.
        FlowControl::XbeginXabortXend if instruction.code() == Code::Xend => Flow::Next,
        FlowControl::XbeginXabortXend => Flow::Conditional,
        FlowControl::Exception => Flow::Trap,
    }
}
