//! The period of each event, by the expected length of the run.

use std::time::Duration;

use super::choice::Choice;
use super::source::Source;
use hbbp_model::snapshot::run::{EventUnit, Period, is_prime};

/// The period of a source: what the user said, else the default of its unit.
pub(super) fn period(source: &Source, choice: &Choice) -> Period {
    /// About a thousand samples a second on each CPU, and a prime number of ns, so that the samples do not keep step
    /// with anything that happens every millisecond.
    const CLOCK: u64 = 1_000_003;
    if let Some(slices) = choice.slices {
        return in_slice(source, choice, slices.length);
    }
    let by_duration = PERIODS
        .iter()
        .find(|(until, ..)| choice.duration.is_some_and(|d| d < *until));
    let (_, instructions, branches) = by_duration.unwrap_or(&LONG);
    if source.request.stack.is_some() {
        return Period::Fixed(choice.branch_period.unwrap_or(*branches));
    }
    choice.period.unwrap_or(Period::Fixed(match source.unit {
        EventUnit::Nanoseconds => CLOCK,
        EventUnit::Cycles => CYCLES,
        _ => *instructions,
    }))
}

/// The period where slices of this length are distinguished: a prime that gives each of them [`IPS_IN_SLICE`] samples and
/// [`STACKS_IN_SLICE`] branch stacks, unless the user said another.
fn in_slice(source: &Source, choice: &Choice, slice: u64) -> Period {
    let prime = |least: u64| (least..).find(|n| is_prime(*n)).unwrap_or(least);
    if source.request.stack.is_some() {
        let wanted = slice / BRANCHES_OF / STACKS_IN_SLICE;
        return Period::Fixed(
            choice
                .branch_period
                .unwrap_or_else(|| prime(wanted.max(LEAST_BRANCHES))),
        );
    }
    let least = match source.unit {
        EventUnit::Nanoseconds => LEAST_CLOCK,
        _ => LEAST_INSTRUCTIONS,
    };
    let period = || Period::Fixed(prime((slice / IPS_IN_SLICE).max(least)));
    choice.period.unwrap_or_else(period)
}

/// Samples of instruction pointers in a slice: its borders are then a thousandth of it off at the most.
const IPS_IN_SLICE: u64 = 1_000;
/// Branch stacks in a slice. The expected distance of a vector of `k` equal blocks from the exact one is the root of
/// `2 k / (pi n)` for `n` independent streams: 5 % for fifty blocks and the 12,000 streams of 400 stacks of 31. Stacks that
/// the period spreads evenly over a loop do better.
const STACKS_IN_SLICE: u64 = 500;
/// Instructions to a taken branch: no more than in most programs, so that there are stacks enough.
const BRANCHES_OF: u64 = 8;
/// The shortest periods that are chosen: some million samples a second on each CPU are more than any kernel takes.
const LEAST_INSTRUCTIONS: u64 = 1_009;
/// As [`LEAST_INSTRUCTIONS`].
const LEAST_BRANCHES: u64 = 101;
/// The same in ns: ten thousand samples a second.
const LEAST_CLOCK: u64 = 100_003;

/// Cycles between two samples: about a thousand a second on each CPU at 3 GHz, prime.
pub const CYCLES: u64 = 3_000_017;

/// Periods of instructions and taken branches by the length of the run (paper section V.A, Table 4).
const PERIODS: [(Duration, u64, u64); 2] = [
    (Duration::from_secs(60), 1_000_037, 100_003),
    (Duration::from_secs(180), 10_000_019, 1_000_037),
];
/// For runs of many minutes, and for those of unknown length.
const LONG: (Duration, u64, u64) = (Duration::MAX, 100_000_007, 10_000_019);

#[cfg(test)]
mod tests {
    use super::super::perf::{Request, Stack};
    use super::super::source::clock;
    use super::*;

    #[test]
    fn periods_follow_the_papers_table() {
        let source = |unit, stack| Source {
            unit,
            request: Request {
                stack,
                ..clock().request
            },
            ..clock()
        };
        let lasting = |seconds| Choice {
            duration: Some(Duration::from_secs(seconds)),
            ..Choice::default()
        };
        let branches = source(EventUnit::TakenBranches, Some(Stack::Full));
        let instructions = source(EventUnit::Instructions, None);
        assert_eq!(period(&branches, &lasting(10)), Period::Fixed(100_003));
        assert_eq!(period(&instructions, &lasting(10)), Period::Fixed(1_000_037));
        assert_eq!(period(&instructions, &lasting(90)), Period::Fixed(10_000_019));
        assert_eq!(period(&branches, &Choice::default()), Period::Fixed(10_000_019));
        let said = Choice {
            period: Some(Period::Fixed(7)),
            branch_period: Some(11),
            ..Choice::default()
        };
        assert_eq!(period(&instructions, &said), Period::Fixed(7));
        assert_eq!(period(&branches, &said), Period::Fixed(11));
    }
}
