//! Hybrid basic block profiling: for each block the method that the rule names (paper section IV).
//!
//! The other method serves where the named one has no data, by a test that does not favour large counts.
//! Taking it for every block that the named one has not seen would add up: of a thousand blocks that are too rare to be
//! seen often, each method sees some, and the sum of both is too much.
//! So zero samples count as zero unless the other method saw the block often enough to rule out chance (P < 1/22,000).
//! A single EBS sample in a cold block would imply dozens of streams, so the test uses the other method's lower confidence
//! bound, not its point estimate.

use super::tree::{Features, Rule};
use crate::stages::Stage;
use crate::{Estimate, Method, Reason};

/// Expected samples of a method in a block, by the count of the other, from which on zero samples are no chance.
/// A Poisson count with this mean is zero once in 22 000 blocks.
const EXPECTED: f64 = 10.0;

/// Standard errors from the other method's count to its lower confidence bound: about one Poisson count in 40 is further
/// above its mean than that.
const SIGMAS: f64 = 2.0;

/// What is known of one block before the choice. A method is `None` if it has no data of the ring at all.
pub(crate) struct Case {
    /// For the rule.
    pub(crate) features: Features,
    /// EBS.
    pub(crate) ebs: Option<Estimate>,
    /// LBR.
    pub(crate) lbr: Option<Estimate>,
    /// Expected samples of EBS by the count of LBR.
    pub(crate) ebs_expected: f64,
    /// Expected streams of LBR by the count of EBS.
    pub(crate) lbr_expected: f64,
}

/// Chooses the method of one block.
pub(crate) fn choose(rule: &Rule, case: &Case) -> (Method, Reason) {
    let falls_back = |method: &Estimate, other: &Estimate, expected| {
        rule.stages.run(Stage::Fallback) && saw_nothing(method, other, expected)
    };
    match (case.ebs, case.lbr) {
        (_, None) => (Method::Ebs, Reason::OnlyMethod),
        (None, _) => (Method::Lbr, Reason::OnlyMethod),
        (Some(ebs), Some(lbr)) => match rule.choose(&case.features) {
            (Method::Ebs, _) if falls_back(&ebs, &lbr, case.ebs_expected) => (Method::Lbr, Reason::Fallback),
            (Method::Lbr, _) if falls_back(&lbr, &ebs, case.lbr_expected) => (Method::Ebs, Reason::Fallback),
            (method, line) => (method, Reason::Rule(line)),
        },
    }
}

/// Whether a method has nothing of a block in which `expected` samples are expected by the count of the other.
pub(crate) fn saw_nothing(method: &Estimate, other: &Estimate, expected: f64) -> bool {
    let sure = other.count - SIGMAS * other.std_error;
    method.hits <= 0.0 && 0.0 < sure && EXPECTED * other.count <= expected * sure
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::PAPER;

    fn estimate(hits: f64) -> Option<Estimate> {
        Some(Estimate {
            hits,
            count: hits,
            std_error: hits.sqrt(),
        })
    }

    #[test]
    fn fallback_needs_more_than_chance() {
        let rule: Rule = PAPER.parse().unwrap();
        let case = |instructions, ebs, lbr, ebs_expected, lbr_expected| {
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
                    ebs_expected,
                    lbr_expected,
                },
            )
        };
        assert_eq!(
            case(5.0, estimate(2.0), estimate(1.0), 0.0, 0.0),
            (Method::Lbr, Reason::Rule(0))
        );
        assert_eq!(
            case(5.0, estimate(2.0), None, 0.0, 0.0),
            (Method::Ebs, Reason::OnlyMethod)
        );
        assert_eq!(
            case(50.0, None, estimate(2.0), 0.0, 0.0),
            (Method::Lbr, Reason::OnlyMethod)
        );
        assert_eq!(
            case(5.0, estimate(1.0), estimate(0.0), 0.0, 1000.0),
            (Method::Lbr, Reason::Rule(0)),
            "a single sample has no lower bound above zero"
        );
        assert_eq!(
            case(5.0, estimate(16.0), estimate(0.0), 0.0, 19.9),
            (Method::Lbr, Reason::Rule(0)),
            "the lower bound of 16 is half of it"
        );
        assert_eq!(
            case(5.0, estimate(16.0), estimate(0.0), 0.0, 20.0),
            (Method::Ebs, Reason::Fallback)
        );
        assert_eq!(
            case(50.0, estimate(0.0), estimate(16.0), 20.0, 0.0),
            (Method::Lbr, Reason::Fallback)
        );
        assert_eq!(case(50.0, estimate(0.0), estimate(0.0), 0.0, 0.0).0, Method::Ebs);
    }
}
