//! Hybrid basic block profiling: for each block the source that the rule names (paper section IV).
//!
//! Where the other source must step in, it does so by a test that does not favour large counts.
//! Taking the other source for every block that the chosen one has not seen would add up: of a thousand blocks that are
//! too rare to be seen often, each source sees some, and the sum of both is too much.
//! So no samples are taken for what they are, unless the other source has seen the block so often that chance cannot
//! explain them: then the chosen source is blind there.
//! Chance is on both sides: one eventing IP in a block that hardly ever runs stands for dozens of streams that are not
//! there. What the other source is sure of counts, not what it says.

use super::rule::{Features, Rule};
use super::{Figure, Source};

/// Samples that a source should have of a block, by the count of the other, from which on having none is no chance.
/// A Poisson count with this mean is zero once in 22 000 blocks.
const BLIND: f64 = 10.0;

/// Standard errors that are taken off the other source's count before it is believed: about one Poisson count in 40 is
/// further above its mean than that.
const SIGMAS: f64 = 2.0;

/// Why a block's figure comes from its source.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Reason {
    /// The line of the rule with this index names it.
    Rule(usize),
    /// The other source has no data at all of this ring.
    OnlySource,
    /// The rule names the other source, which saw nothing where it should have seen the block often.
    OtherIsBlind,
}

/// What is known of one block before the choice. A source is `None` where it has no data of the ring at all.
pub(super) struct Case {
    /// For the rule.
    pub(super) features: Features,
    /// EBS.
    pub(super) ebs: Option<Figure>,
    /// LBR.
    pub(super) lbr: Option<Figure>,
    /// Samples that EBS should have by the count of LBR.
    pub(super) ebs_due: f64,
    /// Streams that LBR should have by the count of EBS.
    pub(super) lbr_due: f64,
}

/// Chooses the source of one block.
pub(super) fn choose(rule: &Rule, case: &Case) -> (Source, Reason) {
    match (case.ebs, case.lbr) {
        (_, None) => (Source::Ebs, Reason::OnlySource),
        (None, _) => (Source::Lbr, Reason::OnlySource),
        (Some(ebs), Some(lbr)) => match rule.choose(&case.features) {
            (Source::Ebs, _) if is_blind(&ebs, &lbr, case.ebs_due) => (Source::Lbr, Reason::OtherIsBlind),
            (Source::Lbr, _) if is_blind(&lbr, &ebs, case.lbr_due) => (Source::Ebs, Reason::OtherIsBlind),
            (source, line) => (source, Reason::Rule(line)),
        },
    }
}

/// Whether a source has nothing of a block of which `due` samples are due to it by the count of the other.
fn is_blind(source: &Figure, other: &Figure, due: f64) -> bool {
    let sure = other.count - SIGMAS * other.std_error;
    source.hits <= 0.0 && 0.0 < sure && BLIND * other.count <= due * sure
}

impl Reason {
    /// Stable name, used in JSON.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Rule(_) => "rule",
            Self::OnlySource => "only_source",
            Self::OtherIsBlind => "other_is_blind",
        }
    }

    /// Why, to be read after the name of the source.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Rule(_) => "chosen by the rule",
            Self::OnlySource => "the other method has no data for this ring",
            Self::OtherIsBlind => "the other method missed a block that it should have seen often",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::rule::PAPER;

    fn figure(hits: f64) -> Option<Figure> {
        Some(Figure {
            hits,
            count: hits,
            std_error: hits.sqrt(),
        })
    }

    #[test]
    fn the_other_source_serves_only_where_chance_cannot_explain_the_gap() {
        let rule: Rule = PAPER.parse().unwrap();
        let case = |instructions, ebs, lbr, ebs_due, lbr_due| {
            let features = Features {
                instructions,
                ..Features::default()
            };
            choose(
                &rule,
                &Case {
                    features,
                    ebs,
                    lbr,
                    ebs_due,
                    lbr_due,
                },
            )
        };
        assert_eq!(
            case(5.0, figure(2.0), figure(1.0), 0.0, 0.0),
            (Source::Lbr, Reason::Rule(0))
        );
        assert_eq!(
            case(5.0, figure(2.0), None, 0.0, 0.0),
            (Source::Ebs, Reason::OnlySource)
        );
        assert_eq!(
            case(50.0, None, figure(2.0), 0.0, 0.0),
            (Source::Lbr, Reason::OnlySource)
        );
        assert_eq!(
            case(5.0, figure(1.0), figure(0.0), 0.0, 1000.0),
            (Source::Lbr, Reason::Rule(0)),
            "a single sample is sure of nothing"
        );
        assert_eq!(
            case(5.0, figure(16.0), figure(0.0), 0.0, 19.9),
            (Source::Lbr, Reason::Rule(0)),
            "half of 16 is sure"
        );
        assert_eq!(
            case(5.0, figure(16.0), figure(0.0), 0.0, 20.0),
            (Source::Ebs, Reason::OtherIsBlind)
        );
        assert_eq!(
            case(50.0, figure(0.0), figure(16.0), 20.0, 0.0),
            (Source::Lbr, Reason::OtherIsBlind)
        );
        assert_eq!(case(50.0, figure(0.0), figure(0.0), 0.0, 0.0).0, Source::Ebs);
    }
}
