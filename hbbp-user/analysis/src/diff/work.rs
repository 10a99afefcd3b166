//! Units of work: what the amounts of two profiles are divided by, so that runs of different lengths can be compared.

use std::fmt;
use std::str::FromStr;

use super::change::Figure;
use crate::annotate::{Query, find, hottest};
use crate::mix::Estimated;
use hbbp_code::blocks::BlockId;
use hbbp_estimate::Unit;
use hbbp_model::addr::ImageAddr;
use hbbp_model::advice::{Advice, Advised};
use hbbp_model::snapshot::{EventUnit, ModuleIdx, SourceLocations};

/// What amounts are counted per.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Per {
    /// A thousand instructions that were executed.
    Instructions,
    /// A second of the measurement.
    Second,
    /// A call of this function.
    Count(String),
}

/// How much work a profile did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Its units.
    pub units: Figure,
}

/// Why a profile has no such units of work.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PerError {
    /// The name of a unit that does not exist.
    #[error("unknown unit of work `{0}`; expected instructions, second or count:FUNCTION")]
    Unknown(String),
    /// Instructions were neither counted nor estimated.
    #[error("instructions were not counted")]
    NoInstructions,
    /// The length of the run is not known.
    #[error("the length of the run is not known")]
    NoTime,
    /// Counts of blocks are samples.
    #[error("calls can only be counted where instructions or branches were sampled")]
    NoExecutions,
    /// The function cannot be counted.
    #[error("{0}")]
    Function(String),
}

impl From<PerError> for Advised {
    fn from(why: PerError) -> Self {
        let advice = match why {
            PerError::NoInstructions | PerError::NoExecutions => Some(Advice::PerSecond),
            PerError::NoTime => Some(Advice::PerInstructions),
            PerError::Unknown(_) | PerError::Function(_) => None,
        };
        Self::new(why.to_string(), advice)
    }
}

impl FromStr for Per {
    type Err = PerError;

    fn from_str(text: &str) -> Result<Self, PerError> {
        match text {
            "instructions" => Ok(Self::Instructions),
            "second" => Ok(Self::Second),
            _ => match text
                .strip_prefix("count:")
                .filter(|function| !function.is_empty())
            {
                Some(function) => Ok(Self::Count(function.to_owned())),
                None => Err(PerError::Unknown(text.to_owned())),
            },
        }
    }
}

impl fmt::Display for Per {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instructions => f.write_str("1000 instructions"),
            Self::Second => f.write_str("second"),
            Self::Count(function) => write!(f, "call of {function}"),
        }
    }
}

impl Work {
    /// The work of a profile, over all its runs.
    pub fn of(per: &Per, runs: &[Estimated<'_>]) -> Result<Self, PerError> {
        let of_run = |run: &Estimated<'_>| match per {
            Per::Instructions => instructions(run).ok_or(PerError::NoInstructions),
            Per::Second => seconds(run).ok_or(PerError::NoTime),
            Per::Count(function) => calls(run, function),
        };
        let mut units = Figure::default();
        for run in runs {
            let Figure { value, std_error } = of_run(run)?;
            units.value += value;
            units.std_error = units.std_error.hypot(std_error);
        }
        Ok(Self { units })
    }
}

const fn exact(value: f64) -> Figure {
    Figure {
        value,
        std_error: 0.0,
    }
}

/// Thousands of instructions: as counted by an event, else as estimated.
fn instructions(run: &Estimated<'_>) -> Option<Figure> {
    const THOUSAND: f64 = 1000.0;

    let events = run.snapshot.run.events.iter();
    let counters = events
        .filter(|event| event.unit == EventUnit::Instructions)
        .flat_map(|event| &event.counters);
    // A counter that shared its hardware is scaled to the time that it was enabled.
    let counted: f64 = counters
        .map(|counter| match counter.running {
            0 => 0.0,
            running => counter.count as f64 * counter.enabled as f64 / running as f64,
        })
        .sum();
    if 0.0 < counted {
        return Some(exact(counted / THOUSAND));
    }
    let counts = run.counts();
    let estimated: f64 = counts
        .blocks
        .iter()
        .map(|block| block.chosen().count * f64::from(block.instructions))
        .sum();
    let executions = counts.assignment.unit == Unit::Executions;
    (executions && 0.0 < estimated).then(|| exact(estimated / THOUSAND))
}

fn seconds(run: &Estimated<'_>) -> Option<Figure> {
    let duration = run.snapshot.run.duration;
    (0 < duration).then(|| exact(duration as f64 / 1e9))
}

/// How often the first block of a function was executed.
fn calls(run: &Estimated<'_>, function: &str) -> Result<Figure, PerError> {
    if !matches!(
        run.counts().assignment.unit,
        Unit::Executions | Unit::RelativeExecutions
    ) {
        return Err(PerError::NoExecutions);
    }
    let Ok(query) = function.parse::<Query>();
    let found = find(run.snapshot, &hottest(run), &query, &SourceLocations::new());
    let code = found.map_err(|why| PerError::Function(why.to_string()))?.code;
    let calls = entries(run, code.module, code.start);
    match calls {
        Some(calls) if 0.0 < calls.value => Ok(calls),
        _ => Err(PerError::Function(format!(
            "`{function}` was never seen to be called"
        ))),
    }
}

/// The counts of the blocks that begin at an address, over all text versions.
fn entries(run: &Estimated<'_>, module: ModuleIdx, start: ImageAddr) -> Option<Figure> {
    let counts = &run.counts().blocks;
    let mut sum: Option<Figure> = None;
    for (text, idx) in run.map.texts.iter().zip((0..).map(hbbp_code::locate::TextIdx)) {
        let Some(at) = text.find(start).ok().filter(|_| text.module == module) else {
            continue;
        };
        let block = BlockId {
            text: idx,
            block: text.block_of(at),
        };
        let found = counts.binary_search_by_key(&block, |count| count.block).ok();
        if let Some(count) = found
            .and_then(|found| counts.get(found))
            .map(|count| count.chosen())
        {
            let before = sum.unwrap_or_default();
            sum = Some(Figure {
                value: before.value + count.count,
                std_error: before.std_error.hypot(count.std_error),
            });
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_work_have_names() {
        assert_eq!("instructions".parse(), Ok(Per::Instructions));
        assert_eq!("count:std::f".parse(), Ok(Per::Count("std::f".to_owned())));
        for wrong in ["minute", "count:", ""] {
            assert_eq!(wrong.parse::<Per>(), Err(PerError::Unknown(wrong.to_owned())));
        }
    }
}
