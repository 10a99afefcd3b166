//! A rule as a classification tree: lines of conditions on the features of a block. The first line whose conditions hold decides.

use crate::stages::Stages;
use crate::{BlockCount, Method};

/// What a rule can ask of a block (paper section IV.B: "block lengths, ... execution counts and bias flags").
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Feature {
    /// Length of the block in instructions.
    Instructions,
    /// 1 where the branch that ends the block is biased, else 0.
    Biased,
    /// Samples of eventing IPs in the block.
    EbsHits,
    /// Streams that executed the block.
    LbrHits,
}

/// The features of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Features {
    /// Length of the block in instructions.
    pub instructions: f64,
    /// 1 or 0.
    pub biased: f64,
    /// Samples.
    pub ebs_hits: f64,
    /// Streams.
    pub lbr_hits: f64,
}

/// On which side of its bound a feature must lie.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// At most the bound.
    AtMost,
    /// Above the bound.
    Above,
}

/// A condition of a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// What is compared.
    pub feature: Feature,
    /// How.
    pub side: Side,
    /// With what.
    pub bound: f64,
}

/// A line of a rule: its method is taken where all conditions hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The method.
    pub method: Method,
    /// The conditions.
    pub conditions: Vec<Condition>,
}

/// A rule that chooses a method for each block.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its name, for the report.
    pub name: String,
    /// The stages of the estimate that run.
    pub stages: Stages,
    /// Its lines; the last has no condition.
    pub lines: Vec<Line>,
}

impl Rule {
    /// The method for a block, and the index of the line that chose it.
    pub fn choose(&self, features: &Features) -> (Method, usize) {
        let holds = |line: &Line| line.conditions.iter().all(|c| c.holds(features));
        let chosen = self.lines.iter().enumerate().find(|(_, line)| holds(line));
        chosen.map_or((Method::Lbr, self.lines.len()), |(n, line)| (line.method, n))
    }
}

impl Condition {
    fn holds(&self, features: &Features) -> bool {
        let value = features.value(self.feature);
        match self.side {
            Side::AtMost => value <= self.bound,
            Side::Above => self.bound < value,
        }
    }
}

impl Features {
    /// Those of a block.
    pub fn of(block: &BlockCount) -> Self {
        Self {
            instructions: f64::from(block.instructions),
            biased: f64::from(u8::from(block.biased)),
            ebs_hits: block.ebs.unwrap_or_default().hits,
            lbr_hits: block.lbr.unwrap_or_default().hits,
        }
    }

    /// One of them.
    pub const fn value(&self, feature: Feature) -> f64 {
        match feature {
            Feature::Instructions => self.instructions,
            Feature::Biased => self.biased,
            Feature::EbsHits => self.ebs_hits,
            Feature::LbrHits => self.lbr_hits,
        }
    }
}

impl Feature {
    /// All of them, by their names in rule files.
    pub const NAMED: [(&str, Self); 4] = [
        ("instructions", Self::Instructions),
        ("biased", Self::Biased),
        ("ebs_hits", Self::EbsHits),
        ("lbr_hits", Self::LbrHits),
    ];

    pub(super) fn named(name: &str) -> Option<Self> {
        let found = Self::NAMED.iter().find(|(known, _)| *known == name);
        found.map(|(_, feature)| *feature)
    }
}
