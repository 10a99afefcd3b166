//! The part of a period that a ring has where each ring has an event of its own.

use hbbp_model::addr::Ring;
use hbbp_model::snapshot::run::{Period, is_prime};

/// The shortest period of a ring, as a part of the one for both: what a ring takes at most where it suddenly runs much more than
/// before, until the next look.
pub(crate) const SHORTEST: f64 = 0.25;

/// By how much a period must differ from the one that it should have before it is changed: each change loses half a period.
const NEAR: f64 = 0.2;

/// Least effective number of stacks of `all` for shares to be used: an idle machine runs nothing but the kernel, and what comes then would be
/// sampled four times as often as it should.
const ENOUGH: u64 = 1_000;

/// What the period of a ring is to be, as a part of the one for both, where it counted `own` taken branches of `all`:
/// both together take as many stacks as one event for both. `None` where too little was executed to decide.
pub(super) fn part_of_period(own: u64, all: u64, period: u64) -> Option<f64> {
    let tells = ENOUGH.saturating_mul(period) <= all;
    let share = tells.then(|| own as f64 / all.max(1) as f64)?;
    let other = (1.0 - share).max(0.0);
    if of_share(other) < SHORTEST {
        // What the other ring takes at its shortest period is fewer than it should have, and leaves more to this one.
        return Some(share / (1.0 - other / SHORTEST));
    }
    Some(of_share(share).max(SHORTEST))
}

/// The part of the period of a ring that runs this share of the branches, so that it has stacks in proportion to the root of it.
fn of_share(share: f64) -> f64 {
    share + (share * (1.0 - share)).max(0.0).sqrt()
}

/// What the period of a ring is at the start, as a part of the one for both. Of most loads the kernel runs less, and what of it runs
/// once runs at the start: processes are started, files read and pages filled.
pub(super) const fn first_part(ring: Option<Ring>) -> f64 {
    match ring {
        Some(Ring::Kernel) => SHORTEST,
        Some(Ring::User) | None => 1.0,
    }
}

/// A part of a period, or a little more: a prime, as the whole is one, so that it keeps step with no loop. The kernel's own stays as
/// it is.
pub(super) fn part_of(period: Period, part: f64) -> Period {
    match period {
        Period::Fixed(whole) if part < 1.0 => {
            let least = scaled(whole, part).max(1);
            Period::Fixed((least..whole).find(|n| is_prime(*n)).unwrap_or(least))
        }
        Period::Fixed(whole) => Period::Fixed(whole),
        Period::Frequency(_) | Period::Between(..) => period,
    }
}

/// Whether a part is so far from the one in force that the period is to be changed.
pub(super) fn is_off(wanted: f64, now: f64) -> bool {
    NEAR < (wanted / now - 1.0).abs()
}

/// A period times a scale.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a product of positive numbers, cut off at the largest"
)]
pub(crate) const fn scaled(period: u64, scale: f64) -> u64 {
    (period as f64 * scale) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_rings_together_take_as_many_stacks_as_one_event() {
        for own in [0_u64, 1, 30, 100, 150, 500, 800] {
            let stacks = |own: u64| own as f64 / part_of_period(own, 1000, 1).unwrap();
            let all = stacks(own) + stacks(1000 - own);
            assert!((all - 1000.0).abs() < 1e-9, "{own}: {all}");
            if own < 100 {
                continue;
            }
            // In proportion to the root of their activity.
            let ratio = stacks(own) / stacks(1000 - own);
            let roots = (own as f64 / (1000 - own) as f64).sqrt();
            assert!((ratio - roots).abs() < 1e-9, "{own}: {ratio}");
        }
    }

    #[test]
    fn a_ring_that_hardly_runs_has_no_shorter_period_than_is_safe() {
        assert_eq!(part_of_period(0, 1000, 1), Some(SHORTEST));
        assert_eq!(part_of_period(1, 1000, 1), Some(SHORTEST));
        assert_eq!(part_of_period(1000, 1000, 1), Some(1.0));
        assert_eq!(part_of_period(0, 999, 1), None);
    }

    #[test]
    fn a_part_of_a_prime_is_a_prime() {
        let first = |ring| part_of(Period::Fixed(1_009), first_part(ring));
        assert_eq!(first(Some(Ring::Kernel)), Period::Fixed(257));
        assert_eq!(first(Some(Ring::User)), Period::Fixed(1_009));
        assert_eq!(part_of(Period::Fixed(2), SHORTEST), Period::Fixed(1));
    }

    #[test]
    fn periods_stay_where_they_are_nearly_right() {
        assert!(!is_off(1.0, 1.1) && !is_off(0.3, 0.3));
        assert!(is_off(0.25, 1.0) && is_off(1.0, 0.8));
    }
}
