//! Annotated code: the versions of a function, with what is known of each of their instructions.

use std::ops::Range;

use super::code::Code;
use hbbp_code::blocks::Flow;
use hbbp_estimate::{Estimate, Figure, Method, Reason};
use hbbp_model::addr::ImageAddr;

/// The annotated code of one function.
#[derive(Clone, Debug, PartialEq)]
pub struct Annotated {
    /// Which code.
    pub code: Code,
    /// Instructions that it executed, in the unit of the estimates.
    pub amount: f64,
    /// The same, over all code of the profile.
    pub total: f64,
    /// Samples of eventing IPs in it.
    pub samples: u64,
    /// Text versions, in the order of time.
    pub versions: Vec<Version>,
}

/// One text version of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    /// When these bytes were valid, in ns since the start of the first interval.
    pub valid: Vec<Range<u64>>,
    /// Instructions that were executed in it, in the unit of the estimates.
    pub amount: f64,
    /// Its instructions, by address; where some text is not known, addresses are missing.
    pub instructions: Vec<Line>,
    /// Branches from one of its instructions to another.
    pub branches: Vec<Branch>,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its address.
    pub addr: ImageAddr,
    /// The executed bytes.
    pub bytes: Vec<u8>,
    /// Disassembly, in the syntax of the Intel manuals.
    pub text: String,
    /// Its control flow.
    pub flow: Flow,
    /// The block that begins here.
    pub block: Option<Block>,
    /// How often it was executed: the count of its block.
    pub executions: Figure,
    /// Samples of eventing IPs at it.
    pub samples: u64,
    /// Time spent at it; `None` if only executions were sampled.
    pub time: Option<Figure>,
    /// Time for each execution; `None` if executions are too few to divide by.
    pub cpi: Option<Figure>,
    /// How a taken branch was predicted, as recorded by the processor; `None` if it recorded no predictions.
    pub predictions: Option<Predictions>,
    /// Where it is in the source.
    pub source: Option<SourceLine>,
    /// What the static image has instead of these bytes, at the first of the instructions that differ; empty if it has
    /// the same, or is not known.
    pub linked: Vec<String>,
}

/// A line of source code.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceLine {
    /// Its file and number, as debug information has them.
    pub place: String,
    /// What the file has there; `None` if it was not found, or was not looked for.
    pub text: Option<String>,
}

/// What is known of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Block {
    /// The estimate that counts, with its method and the reason; `None` if no method saw the block.
    pub chosen: Option<(Estimate, Method, Reason)>,
    /// By eventing IPs.
    pub ebs: Option<Estimate>,
    /// By streams.
    pub lbr: Option<Estimate>,
    /// Whether the branch that ends it is in the oldest slot too often, so that `lbr` is suspect.
    pub biased: bool,
}

/// Predictions of a taken branch, from branch stacks. Branches that were not taken are in no stack.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Predictions {
    /// Occurrences whose prediction is known.
    pub known: u64,
    /// Those of them that were mispredicted.
    pub wrong: u64,
}

/// A branch within one version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Branch {
    /// Address of the branch instruction.
    pub from: ImageAddr,
    /// Its target.
    pub to: ImageAddr,
    /// Occurrences in branch stacks; `None` if it is only known from the code.
    pub taken: Option<u64>,
}
