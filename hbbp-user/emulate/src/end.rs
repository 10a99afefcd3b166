//! Why emulation ends.

use thiserror::Error;

/// Why a burst ends. Each is a kind of its own, to be counted; the sentence is for reports.
#[derive(Clone, Copy, Debug, Eq, Error, Hash, Ord, PartialEq, PartialOrd)]
pub enum End {
    /// The limit of branches.
    #[error("the burst has its full length of branches")]
    Branches,
    /// The limit of steps.
    #[error("the burst has its full length of instructions")]
    Steps,
    /// The kernel goes on.
    #[error("a system call")]
    SystemCall,
    /// Breakpoints, software interrupts and undefined instructions.
    #[error("a trap")]
    Trap,
    /// Jumps, calls and returns to another segment.
    #[error("a far branch")]
    FarBranch,
    /// Only the kernel may execute it; input and output too.
    #[error("a privileged instruction")]
    Privileged,
    /// Divisions, misaligned vectors, and addresses that no pointer may have.
    #[error("an instruction that faults")]
    Fault,
    /// The direction or target of a branch is unknown, or the number of repetitions of a string instruction.
    #[error("a branch depends on a value that is unknown")]
    UnknownBranch,
    /// The address of a store is unknown.
    #[error("a store's address depends on a value that is unknown")]
    UnknownAddress,
    /// The page of this address has the next instruction; emulation may go on with [`Memory::add_text`](crate::memory::Memory::add_text).
    #[error("the text at {0:#x} was not read")]
    TextNotRead(u64),
    /// Text that changes itself.
    #[error("a store to text")]
    WroteText,
    /// More pages than a burst may write.
    #[error("stores to too many pages")]
    TooManyPages,
    /// The bytes are not an instruction.
    #[error("bytes that are not an instruction")]
    NoInstruction,
    /// Effects that are not bounded by registers and operands, and registers that no burst has (APX).
    #[error("an instruction that is not emulated")]
    NotEmulated,
}
