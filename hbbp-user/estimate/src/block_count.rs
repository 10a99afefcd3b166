//! What is estimated of one block: by each method, which of them counts and why, and each process image's part in it.

use super::sources::oldest_slot::Occurrences;
use hbbp_code::blocks::BlockId;
use hbbp_model::addr::Ring;
use hbbp_model::snapshot::ProcessIdx;

/// How the executions of a block are estimated.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Method {
    /// Eventing IPs (paper section III.A).
    Ebs,
    /// Streams between the entries of branch stacks (paper section III.B).
    Lbr,
}

/// Why a block's estimate comes from its method.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Reason {
    /// The line of the rule with this index names it.
    Rule(usize),
    /// The other method has no data at all of this ring.
    OnlyMethod,
    /// The rule names the other method, which saw nothing where it should have seen the block often.
    Fallback,
}

/// One method's estimate for a block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Samples in the block, or streams that executed it; a stream that executed half of it counts one half.
    pub hits: f64,
    /// How often the block ran, in the unit of the estimate: the amount of each of its instructions. Of samples, the mean of
    /// these amounts.
    pub count: f64,
    /// Standard error of `count`.
    pub std_error: f64,
}

/// The result for one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockCount {
    /// The block.
    pub block: BlockId,
    /// Its ring.
    pub ring: Ring,
    /// Its length in instructions.
    pub instructions: u32,
    /// By eventing IPs; `None` if this ring has none.
    pub ebs: Option<Estimate>,
    /// By streams; `None` if this ring has none.
    pub lbr: Option<Estimate>,
    /// How often the branch that ends it was recorded; `None` if it was not.
    pub branch: Option<Occurrences>,
    /// Whether that branch sits in the oldest slot out of proportion, so that `lbr` is suspect.
    pub biased: bool,
    /// Which of the two counts.
    pub method: Method,
    /// Why.
    pub reason: Reason,
    /// The estimate of that method, tied by the counts of classes of instructions; `None` if it was not.
    pub tied: Option<Estimate>,
}

/// The part of one process image in the count of a block, by the block's method. Of samples, there is one for each instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Index in [`crate::BlockCounts::blocks`].
    pub block: usize,
    /// The process image.
    pub process: ProcessIdx,
    /// The one instruction of the block that it is of, where figures are samples; `None` where each of them ran as often.
    pub instruction: Option<u32>,
    /// As [`Estimate::hits`].
    pub hits: f64,
    /// As [`Estimate::count`], of each of its instructions.
    pub count: f64,
}

impl Part {
    /// The number of its instructions.
    pub fn instructions(&self, block: &BlockCount) -> f64 {
        self.instruction.map_or(f64::from(block.instructions), |_| 1.0)
    }

    /// Whether it is of the instruction with this index in the block.
    pub fn is_of(&self, instruction: u32) -> bool {
        self.instruction.is_none_or(|own| own == instruction)
    }
}

impl BlockCount {
    /// The estimate of the chosen method, tied by counts of classes where there were any.
    pub fn chosen(&self) -> Estimate {
        self.tied.or(self.of(self.method)).unwrap_or_default()
    }

    /// A block that no method saw: nothing of it was executed, as far as that is known.
    pub const fn unseen(block: BlockId, ring: Ring, instructions: u32) -> Self {
        Self {
            block,
            ring,
            instructions,
            ebs: None,
            lbr: None,
            branch: None,
            biased: false,
            method: Method::Lbr,
            reason: Reason::OnlyMethod,
            tied: None,
        }
    }

    /// The estimate of one method, where it has data of the ring.
    pub const fn of(&self, method: Method) -> Option<Estimate> {
        match method {
            Method::Ebs => self.ebs,
            Method::Lbr => self.lbr,
        }
    }
}

impl Method {
    /// Stable name, used in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ebs => "EBS",
            Self::Lbr => "LBR",
        }
    }
}

impl Reason {
    /// Stable name, used in JSON.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Rule(_) => "rule",
            Self::OnlyMethod => "only_source",
            Self::Fallback => "other_is_blind",
        }
    }
}
