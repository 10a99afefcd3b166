//! Conditions on a difference, such as `extension=AVX512*:share>+1%`: a change that fails a build.
//!
//! A condition is met where the change is beyond its limit even at the confidence bound that is nearest to it, one-sided at
//! 95 %: so where nothing changed beyond the limit, one comparison in twenty fails at the most.

use std::fmt;
use std::sync::Arc;

use super::change::{Figure, change};
use crate::mix::{Filter, FilterError, Limit, Query, Side, Taxonomy};

/// A condition on the change of some instructions.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// As the user wrote it.
    pub text: String,
    filters: Vec<Filter>,
    /// What is compared.
    pub measure: Measure,
    /// For shares the difference, from 0 to 1; for amounts the ratio minus 1.
    limit: Limit,
}

/// What is compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Measure {
    /// The share of all, in percentage points.
    Share,
    /// The amount per unit of work, in percent of the first profile's.
    Amount,
}

/// Why a text is not a condition.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ConditionError {
    /// It has another form.
    #[error(
        "`{0}` is not a condition; expected FILTER:share>+N% or FILTER:amount>+N%, e.g. 'extension=AVX512*:share>+1%'"
    )]
    Form(String),
    /// One of its filters is wrong.
    #[error(transparent)]
    Filter(#[from] FilterError),
}

/// What a difference says of a condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// The condition, as the user wrote it.
    pub text: String,
    /// The measure of both profiles.
    pub figures: [Figure; 2],
    /// The change: of shares the difference, of amounts the ratio less 1.
    pub change: Figure,
    /// Whether the condition is met, so that the comparison fails.
    pub failed: bool,
}

/// 95 % of a normal distribution are below this many standard deviations.
const ONE_SIDED: f64 = 1.644_853_6;

impl Condition {
    /// Parses filters that are joined by `&&`, a measure, `<` or `>`, and a signed number of percent.
    pub fn parse(text: &str, taxonomies: &[Arc<Taxonomy>]) -> Result<Self, ConditionError> {
        let form = || ConditionError::Form(text.to_owned());
        let (what, limit) = Limit::split(text).ok_or_else(form)?;
        let (filters, measure) = what.rsplit_once(':').ok_or_else(form)?;
        let measure = match measure.trim() {
            "share" => Measure::Share,
            "amount" => Measure::Amount,
            _ => return Err(form()),
        };
        Ok(Self {
            text: text.to_owned(),
            filters: Filter::parse_all(filters, taxonomies)?,
            measure,
            limit,
        })
    }

    /// The query whose total is what the condition is about.
    pub fn query(&self) -> Query {
        Query::share_of(&self.filters)
    }

    /// Tests the condition on its measure in both profiles.
    pub fn test(&self, figures: [Figure; 2]) -> Gate {
        let [a, b] = figures;
        let change = match self.measure {
            Measure::Share => change(figures),
            Measure::Amount if 0.0 < a.value => Figure {
                value: b.value / a.value - 1.0,
                std_error: (b.std_error / a.value).hypot(b.value * a.std_error / (a.value * a.value)),
            },
            // From nothing to something is more than any ratio.
            Measure::Amount => Figure {
                value: if ONE_SIDED * b.std_error < b.value {
                    f64::MAX
                } else {
                    0.0
                },
                std_error: 0.0,
            },
        };
        let bound = ONE_SIDED * change.std_error;
        let failed = match self.limit.side {
            Side::Above => self.limit.value < change.value - bound,
            Side::Below => change.value + bound < self.limit.value,
        };
        Gate {
            text: self.text.clone(),
            figures,
            change,
            failed,
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = if self.failed { "failed" } else { "passed" };
        let Figure { value, std_error } = self.change;
        let sign = if value < 0.0 { '-' } else { '+' };
        if value == f64::MAX {
            return write!(f, "{outcome} `{}`: not there in A, there in B", self.text);
        }
        write!(
            f,
            "{outcome} `{}`: {sign}{:.3} % ± {:.3} %",
            self.text,
            100.0 * value.abs(),
            100.0 * std_error
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Condition, ConditionError> {
        Condition::parse(text, &Taxonomy::built_in())
    }

    fn figure(value: f64, std_error: f64) -> Figure {
        Figure { value, std_error }
    }

    #[test]
    fn conditions_have_filters_a_measure_and_a_limit() {
        let condition = parse("ring=kernel && extension=AVX512*:share>+1%").unwrap();
        assert_eq!(
            (condition.filters.len(), condition.measure, condition.limit.value),
            (2, Measure::Share, 0.01)
        );
        let condition = parse("function=std::f:amount < -5 %").unwrap();
        assert_eq!(
            (condition.limit.side, condition.limit.value),
            (Side::Below, -0.05)
        );
        for wrong in [
            "",
            "lock=locked",
            "lock=locked:share",
            "lock=locked:size>1%",
            "lock=locked:share>1",
            "lock=locked:share>NaN%",
        ] {
            assert_eq!(
                parse(wrong),
                Err(ConditionError::Form(wrong.to_owned())),
                "{wrong}"
            );
        }
        assert!(matches!(
            parse("lokc=locked:share>1%"),
            Err(ConditionError::Filter(_))
        ));
    }

    #[test]
    fn a_change_fails_beyond_its_limit_and_its_error() {
        let condition = parse("lock=locked:share>+1%").unwrap();
        assert!(condition.test([figure(0.10, 0.001), figure(0.12, 0.001)]).failed);
        assert!(
            !condition.test([figure(0.10, 0.01), figure(0.12, 0.01)]).failed,
            "within the error"
        );
        assert!(
            !condition.test([figure(0.12, 0.001), figure(0.10, 0.001)]).failed,
            "the other way"
        );
        let condition = parse("lock=locked:amount<-10%").unwrap();
        let gate = condition.test([figure(200.0, 1.0), figure(150.0, 1.0)]);
        assert!(gate.failed && (gate.change.value + 0.25).abs() < 1e-12, "{gate}");
        assert!(!condition.test([figure(0.0, 1.0), figure(0.0, 1.0)]).failed);
        assert!(
            parse("lock=locked:amount>+1%")
                .unwrap()
                .test([figure(0.0, 1.0), figure(9.0, 1.0)])
                .failed
        );
    }
}
