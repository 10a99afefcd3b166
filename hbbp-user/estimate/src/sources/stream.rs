//! A stream of the recorded stacks, as the estimate counts it.

use hbbp_code::locate::TextIdx;
use hbbp_model::snapshot::ProcessIdx;

/// A straight line of instructions that was executed `hits` times in the recorded stacks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// Their text.
    pub text: TextIdx,
    /// The process image that ran.
    pub process: ProcessIdx,
    /// Index of the first instruction.
    pub first: u32,
    /// Index after the last instruction; `first` where an interrupt struck at once.
    pub end: u32,
    /// Index of the instruction that was recorded as the source of the next branch: the last one, or the one after it
    /// where an interrupt ended the stream.
    pub source: u32,
    /// Occurrences.
    pub hits: u64,
    /// Executions: the sum of period / (N-1) over the stacks of N entries that held it. Where executions are relative, it
    /// is scaled so that its sum over all streams is that of their occurrences. Balanced where the estimate balances.
    pub weight: f64,
}
