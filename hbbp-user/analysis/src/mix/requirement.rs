//! Requirements: statements on the share of some instructions, such as `extension=AVX512*>1%`, tested against a mix.
//!
//! A requirement fails where the data contradict it: where even the confidence bound on the allowed side is beyond the
//! limit. So a requirement that holds fails with at most the probability that the level of confidence leaves.
//!
//! An estimate with standard error s of a share p has the information of h = (p/s)^2 independent samples, whose number
//! has a Poisson distribution. Its exact one-sided bounds (Garwood, Biometrika 28, 1936) are taken by Byar's
//! approximation (Breslow and Day, Statistical Methods in Cancer Research II, 1987, equation 2.10): upper = g (1 -
//! 1/(9g) + z/(3 sqrt g))^3 with g = h + 1, and lower = h (1 - 1/(9h) - z/(3 sqrt h))^3. Of n samples that show
//! nothing, the exact upper bound is -ln(1 - confidence) / n: three in n at 95 %.

use std::fmt;
use std::sync::Arc;

use super::filter::{Filter, FilterError};
use super::limit::{Limit, Side};
use super::query::Query;
use super::taxonomy::Taxonomy;
use super::{Cell, Mix};

/// A statement on a share.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    /// As the user wrote it.
    pub text: String,
    filters: Vec<Filter>,
    /// The allowed side; from 0 to 1.
    limit: Limit,
}

/// Level of confidence of a statement, between 0.5 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Confidence(f64);

/// What the data say of a requirement.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The requirement, as the user wrote it.
    pub text: String,
    /// What follows.
    pub outcome: Outcome,
    /// The estimated share, 0 to 1.
    pub share: f64,
    /// Its standard error; `None` if nothing was seen.
    pub std_error: Option<f64>,
    /// Lower and upper confidence bound of the share. Each holds on its own at the confidence level.
    pub bounds: (f64, f64),
    /// Samples or branch stacks of the measurement.
    pub samples: f64,
    /// Level of confidence of each bound.
    pub confidence: f64,
}

/// The outcome of a requirement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The data show that it holds.
    Passed,
    /// The data do not contradict it, and are too few to show that it holds.
    Undecided,
    /// The data contradict it.
    Failed,
}

/// Why a text is not a requirement.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RequirementError {
    /// It has no limit.
    #[error(
        "`{0}` is not a requirement; expected FILTER>SHARE% or FILTER<SHARE%, e.g. 'extension=AVX512*>1%'"
    )]
    Form(String),
    /// One of its filters is wrong.
    #[error(transparent)]
    Filter(#[from] FilterError),
}

/// A level of confidence that cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not a level of confidence; expected percent from 50 to below 100, e.g. 95")]
pub struct ConfidenceError(String);

impl Default for Confidence {
    fn default() -> Self {
        Self(0.95)
    }
}

impl std::str::FromStr for Confidence {
    type Err = ConfidenceError;

    fn from_str(text: &str) -> Result<Self, ConfidenceError> {
        let percent: Option<f64> = text.trim_end_matches('%').trim().parse().ok();
        let level = percent.map(|percent| percent / 100.0);
        let level = level.filter(|level| (0.5..1.0).contains(level));
        level.map(Self).ok_or_else(|| ConfidenceError(text.to_owned()))
    }
}

impl Requirement {
    /// Parses filters that are joined by `&&`, `<` or `>`, and a share in percent.
    pub fn parse(text: &str, taxonomies: &[Arc<Taxonomy>]) -> Result<Self, RequirementError> {
        let form = || RequirementError::Form(text.to_owned());
        let (filters, limit) = Limit::split(text)
            .filter(|(_, limit)| (0.0..=1.0).contains(&limit.value))
            .ok_or_else(form)?;
        Ok(Self {
            text: text.to_owned(),
            filters: Filter::parse_all(filters, taxonomies)?,
            limit,
        })
    }

    /// The query whose total is the share that the requirement is about.
    pub fn query(&self) -> Query {
        Query::share_of(&self.filters)
    }

    /// Tests the requirement on the answer to its query; the mix rests on `samples` samples or branch stacks.
    pub fn test(&self, mix: &Mix, samples: f64, confidence: Confidence) -> Verdict {
        let Cell {
            amount, std_error, ..
        } = mix.total;
        let all = mix.all.amount;
        let share = if 0.0 < all { amount / all } else { 0.0 };
        let std_error = std_error.filter(|_| 0.0 < share).map(|error| error / all);
        let bounds = bounds(share, std_error.unwrap_or(0.0), samples, confidence);
        let (low, high) = bounds;
        let limit = self.limit.value;
        let outcome = match self.limit.side {
            _ if samples <= 0.0 => Outcome::Undecided,
            Side::Above if limit < low => Outcome::Passed,
            Side::Above if high <= limit => Outcome::Failed,
            Side::Below if high < limit => Outcome::Passed,
            Side::Below if limit <= low => Outcome::Failed,
            Side::Above | Side::Below => Outcome::Undecided,
        };
        Verdict {
            text: self.text.clone(),
            outcome,
            share,
            std_error,
            bounds,
            samples,
            confidence: confidence.0,
        }
    }
}

/// One-sided confidence bounds of a share.
fn bounds(share: f64, std_error: f64, samples: f64, confidence: Confidence) -> (f64, f64) {
    if samples <= 0.0 {
        return (0.0, 1.0);
    }
    if share <= 0.0 {
        return (0.0, (-(1.0 - confidence.0).ln() / samples).min(1.0));
    }
    if std_error <= 0.0 {
        return (share, share);
    }
    let z = quantile(confidence.0);
    let hits = (share / std_error).powi(2);
    let byar = |hits: f64, z: f64| {
        hits * (1.0 - 1.0 / (9.0 * hits) + z / (3.0 * hits.sqrt()))
            .max(0.0)
            .powi(3)
    };
    let of_share = |bound: f64| (share * bound / hits).clamp(0.0, 1.0);
    (of_share(byar(hits, -z)), of_share(byar(hits + 1.0, z)))
}

/// Quantile of the standard normal distribution for a probability from 0.5 to below 1, to 4.5e-4 (Abramowitz and Stegun,
/// formula 26.2.23).
fn quantile(probability: f64) -> f64 {
    let t = (-2.0 * (1.0 - probability).ln()).sqrt();
    let numerator = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let denominator = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - numerator / denominator
}

impl Outcome {
    /// Stable name, used in text and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Undecided => "undecided",
            Self::Failed => "failed",
        }
    }
}

/// A share in percent: two decimals, or three digits of small ones.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of decimals from 2 to 12"
)]
fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    let decimals = (2.0 - percent.log10().floor()).clamp(2.0, 12.0) as usize;
    format!("{percent:.decimals$} %")
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, outcome, .. } = self;
        write!(f, "{} `{text}`: ", outcome.name())?;
        let level = 100.0 * self.confidence;
        let (low, high) = self.bounds;
        match self.std_error {
            _ if self.samples <= 0.0 => write!(f, "there are no samples"),
            None => write!(
                f,
                "nothing seen in {:.0} samples, so at most {} at {level} % confidence",
                self.samples,
                percent(high)
            ),
            Some(error) => write!(
                f,
                "{} ± {}; at least {} and at most {}, each at {level} % confidence",
                percent(self.share),
                percent(error),
                percent(low),
                percent(high)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Requirement, RequirementError> {
        Requirement::parse(text, &Taxonomy::built_in())
    }

    #[test]
    fn requirements_have_filters_and_a_limit() {
        let requirement = parse("ring=kernel && extension=AVX512_VNNI>1%").unwrap();
        assert_eq!(
            (requirement.filters.len(), requirement.limit.side),
            (2, Side::Above)
        );
        assert_eq!(requirement.limit.value, 0.01);
        assert_eq!(parse("lock=locked<0.1%").unwrap().limit.side, Side::Below);
        assert_eq!(parse("function=f<int>*>2 %").unwrap().limit.value, 0.02);
        for wrong in [
            "",
            "lock=locked",
            "lock=locked>1",
            "lock=locked>x%",
            "lock=locked>101%",
        ] {
            assert_eq!(parse(wrong), Err(RequirementError::Form(wrong.to_owned())));
        }
        assert!(matches!(
            parse("lokc=locked>1%"),
            Err(RequirementError::Filter(_))
        ));
    }

    #[test]
    fn bounds_are_those_of_poisson_counts() {
        // Exact one-sided 95 % bounds (Garwood): of 1: 0.0513 and 4.744; of 10: 5.425 and 16.96; of 100: 84.14 and 118.1.
        for (hits, low, high) in [
            (1.0f64, 0.0513, 4.744),
            (10.0, 5.425, 16.96),
            (100.0, 84.14, 118.1),
        ] {
            let share = hits / 1e6;
            let found = bounds(share, share / hits.sqrt(), 1e6, Confidence::default());
            assert!(
                (found.0 * 1e6 - low).abs() < 0.06 * low.max(1.0),
                "{hits}: {found:?}"
            );
            assert!((found.1 * 1e6 - high).abs() < 0.02 * high, "{hits}: {found:?}");
        }
        let nothing = bounds(0.0, 0.0, 1000.0, Confidence::default());
        assert!((nothing.1 - 0.002_996).abs() < 1e-6, "{nothing:?}");
        assert_eq!(bounds(0.0, 0.0, 0.0, Confidence::default()), (0.0, 1.0));
    }

    #[test]
    fn confidence_is_percent() {
        assert_eq!("95".parse(), Ok(Confidence(0.95)));
        assert_eq!("75%".parse(), Ok(Confidence(0.75)));
        for wrong in ["", "0.95", "100", "x", "49"] {
            assert!(wrong.parse::<Confidence>().is_err(), "{wrong}");
        }
        assert!((quantile(0.95) - 1.6449).abs() < 5e-4 && quantile(0.5).abs() < 5e-4);
    }
}
