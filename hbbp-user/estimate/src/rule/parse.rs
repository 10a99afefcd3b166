//! The text of a rule file, read to a tree, or what is wrong with it.

use std::fmt;
use std::str::FromStr;

use super::tree::{Condition, Feature, Line, Rule, Side};
use crate::Method;
use crate::stages::{Stage, Stages};

/// What is wrong with the text of a rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BadRule {
    /// Line of the text, counted from 1; 0 if the rule as a whole is meant.
    pub line: usize,
    /// The complaint.
    pub problem: String,
}

impl FromStr for Rule {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<Self, BadRule> {
        let mut name = "unnamed".to_owned();
        let recorded = Stages::default()
            .without(Stage::Balance)
            .without(Stage::Late)
            .without(Stage::Totals);
        let mut stages = recorded;
        let mut are_weighed = false;
        let mut left_out: Vec<Stage> = Vec::new();
        let mut lines: Vec<Line> = Vec::new();
        for (n, raw) in text.lines().enumerate() {
            let bad = |problem: String| BadRule { line: n + 1, problem };
            let stated = raw.split('#').next().unwrap_or_default().trim();
            if stated.is_empty() {
                continue;
            }
            match stated.split_once(' ') {
                Some(("name", given)) => given.trim().clone_into(&mut name),
                Some(("streams", _)) if are_weighed => {
                    return Err(bad(
                        "there is a `streams` line already: keep one of them".to_owned()
                    ));
                }
                Some(("streams", given)) => {
                    are_weighed = true;
                    stages = match given.trim() {
                        "recorded" => recorded,
                        "balanced" => recorded.with(Stage::Balance).with(Stage::Totals),
                        "on_time" => recorded.with(Stage::Late).with(Stage::Totals),
                        other => {
                            return Err(bad(format!(
                                "unknown stream weighting `{other}`; expected one of recorded, balanced, on_time"
                            )));
                        }
                    }
                }
                Some(("without", given)) => left_out.push(parse_stage(given.trim()).map_err(bad)?),
                _ if lines.last().is_some_and(|line| line.conditions.is_empty()) => {
                    return Err(bad("unreachable line: the line above has no condition".to_owned()));
                }
                _ => lines.push(parse_line(stated).map_err(bad)?),
            }
        }
        stages = left_out.into_iter().fold(stages, Stages::without);
        match lines.last() {
            Some(line) if line.conditions.is_empty() => Ok(Self { name, stages, lines }),
            _ => Err(BadRule {
                line: 0,
                problem: "the last line must be unconditional".to_owned(),
            }),
        }
    }
}

fn parse_stage(name: &str) -> Result<Stage, String> {
    Stage::named(name).ok_or_else(|| {
        let names: Vec<&str> = Stage::ALL.iter().map(|stage| stage.name()).collect();
        format!("unknown stage `{name}`; expected one of {}", names.join(", "))
    })
}

fn parse_line(stated: &str) -> Result<Line, String> {
    let (method, conditions) = match stated.split_once(" if ") {
        Some((method, conditions)) => (method, conditions.split(" and ").map(parse_condition).collect()),
        None => (stated, Ok(Vec::new())),
    };
    let method = match method.trim() {
        "ebs" => Method::Ebs,
        "lbr" => Method::Lbr,
        other => return Err(format!("unknown method `{other}`; expected one of ebs, lbr")),
    };
    Ok(Line {
        method,
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
    let feature = Feature::named(feature).ok_or_else(|| {
        let names = Feature::NAMED.map(|(name, _)| name).join(", ");
        format!("unknown feature `{feature}`; expected one of {names}")
    })?;
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
    use super::super::tree::Features;
    use super::super::{BIAS, LATE, PAPER};
    use super::*;

    fn block(instructions: f64) -> Features {
        Features {
            instructions,
            ..Features::default()
        }
    }

    #[test]
    fn paper_rule_divides_at_18_instructions() {
        let rule: Rule = PAPER.parse().unwrap();
        assert_eq!(rule.name, "paper");
        assert_eq!(rule.choose(&block(18.0)), (Method::Lbr, 0));
        assert_eq!(rule.choose(&block(19.0)), (Method::Ebs, 1));
    }

    #[test]
    fn bias_rule_takes_well_sampled_biased_blocks_from_ebs() {
        let rule: Rule = BIAS.parse().unwrap();
        let biased = Features {
            biased: 1.0,
            ebs_hits: 101.0,
            ..block(3.0)
        };
        assert_eq!(rule.choose(&biased).0, Method::Ebs);
        assert_eq!(
            rule.choose(&Features {
                ebs_hits: 100.0,
                ..biased
            })
            .0,
            Method::Lbr
        );
    }

    #[test]
    fn stages_are_left_out_by_name() {
        let rule: Rule = "streams balanced\nwithout skid\nlbr".parse().unwrap();
        let runs = |stage| rule.stages.run(stage);
        assert!(runs(Stage::Balance) && !runs(Stage::Skid) && runs(Stage::Fallback));
        let paper: Rule = PAPER.parse().unwrap();
        assert!(!paper.stages.run(Stage::Balance) && !paper.stages.run(Stage::Late));
        assert!(runs(Stage::Totals) && !paper.stages.run(Stage::Totals));
        // Whatever the order of the lines.
        let before: Rule = "without balance\nstreams balanced\nlbr".parse().unwrap();
        assert!(!before.stages.run(Stage::Balance) && before.stages.run(Stage::Totals));
        let late: Rule = LATE.parse().unwrap();
        assert!(!late.stages.run(Stage::Balance) && late.stages.run(Stage::Late));
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
            ("lbr\nwithout much", 2),
            ("streams balanced\nstreams on_time\nlbr", 2),
        ];
        for (text, line) in cases {
            assert_eq!(text.parse::<Rule>().unwrap_err().line, line, "{text}");
        }
    }
}
