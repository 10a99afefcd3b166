//! What the methods err by beside chance.

use super::bias::Bias;
use super::error::Corrections;
use super::flow::late::Late;
use super::flow::per_branch::Untied;
use super::landing::Skid;

/// What was found of the biases of the methods, and taken out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Biases {
    /// Where streams were balanced, what for.
    pub flow: Option<Bias>,
    /// Where eventing IPs served alone and were traced back, what was found of their skid.
    pub skid: Option<Skid>,
    /// Where branch stacks were read late, and streams weighed for it, when.
    pub late: Option<Late>,
    /// Where streams were tied to what was counted, how far they were from it.
    pub untied: Option<Untied>,
    /// What the corrections for flow and late stacks changed, or would have.
    pub corrections: Corrections,
}
