//! The hybrid rule as data: a classification tree, written down as lines of which the first that holds decides.
//!
//! ```text
//! # a comment
//! name paper
//! lbr if instructions <= 18
//! ebs
//! ```
//!
//! A line names a source and the conditions for it, joined by `and`; the last line has none.
//! `streams balanced` has the streams balanced where there is a bias (see `balance`); without it they count as recorded.
//! A condition compares a feature of the block with a number, by `<=` or `>`, as a tree does at each node.

use std::fmt;
use std::str::FromStr;

use super::Source;

/// What serves unless the user asks for another: the paper's rule, on balanced streams.
pub const DEFAULT: &str = include_str!("hybrid.rule");

/// The rule of the paper, section IV.B: block length decides.
pub const PAPER: &str = include_str!("paper.rule");

/// A rule with the bias flag and sample counts as further features, which the paper found to matter less.
pub const BIAS: &str = include_str!("bias.rule");

/// The rules that can be asked for by name.
pub const NAMED: [(&str, &str); 3] = [("hybrid", DEFAULT), ("paper", PAPER), ("bias", BIAS)];

/// How streams count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Weighing {
    /// Each as often as it was recorded (paper section III.B).
    Recorded,
    /// Balanced by what leads to them and by eventing IPs, where branches sit in the oldest slot out of proportion.
    Balanced,
}

/// What a rule can ask of a block (paper section IV.B: "block lengths, ... execution counts and bias flags").
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Feature {
    /// Length of the block in instructions.
    Instructions,
    /// 1 where the branch that ends the block is biased, else 0.
    Biased,
    /// Samples of eventing IPs in the block.
    EbsHits,
    /// Streams that passed the block.
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

/// A line of a rule: its source is taken where all conditions hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The source.
    pub source: Source,
    /// The conditions.
    pub conditions: Vec<Condition>,
}

/// A rule that chooses a source for each block.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its name, for the report.
    pub name: String,
    /// How streams count.
    pub streams: Weighing,
    /// Its lines; the last has no condition.
    pub lines: Vec<Line>,
}

/// What is wrong with the text of a rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BadRule {
    /// Line of the text, counted from 1; 0 where the rule as a whole is meant.
    pub line: usize,
    /// The complaint.
    pub problem: String,
}

impl Rule {
    /// The source for a block, and the index of the line that chose it.
    pub fn choose(&self, features: &Features) -> (Source, usize) {
        let holds = |line: &Line| line.conditions.iter().all(|c| c.holds(features));
        let chosen = self.lines.iter().enumerate().find(|(_, line)| holds(line));
        chosen.map_or((Source::Lbr, self.lines.len()), |(n, line)| (line.source, n))
    }
}

impl Condition {
    fn holds(&self, features: &Features) -> bool {
        let value = match self.feature {
            Feature::Instructions => features.instructions,
            Feature::Biased => features.biased,
            Feature::EbsHits => features.ebs_hits,
            Feature::LbrHits => features.lbr_hits,
        };
        match self.side {
            Side::AtMost => value <= self.bound,
            Side::Above => self.bound < value,
        }
    }
}

impl FromStr for Rule {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<Self, BadRule> {
        let mut name = "unnamed".to_owned();
        let mut streams = Weighing::Recorded;
        let mut lines: Vec<Line> = Vec::new();
        for (n, raw) in text.lines().enumerate() {
            let bad = |problem: String| BadRule { line: n + 1, problem };
            let stated = raw.split('#').next().unwrap_or_default().trim();
            if stated.is_empty() {
                continue;
            }
            if let Some(given) = stated.strip_prefix("name ") {
                given.trim().clone_into(&mut name);
                continue;
            }
            if let Some(given) = stated.strip_prefix("streams ") {
                streams = match given.trim() {
                    "recorded" => Weighing::Recorded,
                    "balanced" => Weighing::Balanced,
                    other => {
                        return Err(bad(format!(
                            "unknown stream weighting `{other}`; expected one of recorded, balanced"
                        )));
                    }
                };
                continue;
            }
            if lines.last().is_some_and(|line| line.conditions.is_empty()) {
                return Err(bad("unreachable line: the line above has no condition".to_owned()));
            }
            lines.push(parse_line(stated).map_err(bad)?);
        }
        match lines.last() {
            Some(line) if line.conditions.is_empty() => Ok(Self { name, streams, lines }),
            _ => Err(BadRule {
                line: 0,
                problem: "the last line must be unconditional".to_owned(),
            }),
        }
    }
}

fn parse_line(stated: &str) -> Result<Line, String> {
    let (source, conditions) = match stated.split_once(" if ") {
        Some((source, conditions)) => (source, conditions.split(" and ").map(parse_condition).collect()),
        None => (stated, Ok(Vec::new())),
    };
    let source = match source.trim() {
        "ebs" => Source::Ebs,
        "lbr" => Source::Lbr,
        other => return Err(format!("unknown method `{other}`; expected one of ebs, lbr")),
    };
    Ok(Line {
        source,
        conditions: conditions?,
    })
}

fn parse_condition(stated: &str) -> Result<Condition, String> {
    let mut words = stated.split_whitespace();
    let (Some(feature), Some(side), Some(bound), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(format!(
            "invalid condition `{stated}`; expected FEATURE <= NUMBER or FEATURE > NUMBER"
        ));
    };
    let feature = match feature {
        "instructions" => Feature::Instructions,
        "biased" => Feature::Biased,
        "ebs_hits" => Feature::EbsHits,
        "lbr_hits" => Feature::LbrHits,
        other => {
            return Err(format!(
                "unknown feature `{other}`; expected one of instructions, biased, ebs_hits, lbr_hits"
            ));
        }
    };
    let side = match side {
        "<=" => Side::AtMost,
        ">" => Side::Above,
        other => return Err(format!("unknown operator `{other}`; expected one of <=, >")),
    };
    let number = bound.parse::<f64>().ok().filter(|b| b.is_finite());
    let bound = number.ok_or_else(|| format!("invalid number `{bound}`"))?;
    Ok(Condition { feature, side, bound })
}

impl fmt::Display for BadRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "invalid rule: {}", self.problem),
            line => write!(f, "invalid rule, line {line}: {}", self.problem),
        }
    }
}

impl std::error::Error for BadRule {}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(instructions: f64) -> Features {
        Features {
            instructions,
            ..Features::default()
        }
    }

    #[test]
    fn the_paper_cuts_at_18_instructions() {
        let rule: Rule = PAPER.parse().unwrap();
        assert_eq!(rule.name, "paper");
        assert_eq!(rule.choose(&block(18.0)), (Source::Lbr, 0));
        assert_eq!(rule.choose(&block(19.0)), (Source::Ebs, 1));
    }

    #[test]
    fn bias_sends_well_sampled_blocks_to_ebs() {
        let rule: Rule = BIAS.parse().unwrap();
        let biased = Features {
            biased: 1.0,
            ebs_hits: 101.0,
            ..block(3.0)
        };
        assert_eq!(rule.choose(&biased).0, Source::Ebs);
        assert_eq!(
            rule.choose(&Features {
                ebs_hits: 100.0,
                ..biased
            })
            .0,
            Source::Lbr
        );
    }

    #[test]
    fn bad_rules_are_refused_by_line() {
        let cases = [
            ("", 0),
            ("lbr if instructions <= 18", 0),
            ("ebs\nlbr", 2),
            ("pebs", 1),
            ("# fine\nlbr if length <= 18\nebs", 2),
            ("lbr if instructions < 18\nebs", 1),
            ("lbr if instructions <= inf\nebs", 1),
            ("lbr if instructions <= 18 and\nebs", 1),
        ];
        for (text, line) in cases {
            assert_eq!(text.parse::<Rule>().unwrap_err().line, line, "{text}");
        }
    }
}
