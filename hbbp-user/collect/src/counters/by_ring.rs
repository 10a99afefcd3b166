//! Branch stacks of each ring by an event of its own, so that the ring that runs less has as many of them as it needs.
//!
//! With one event for both, a ring has stacks in proportion to its taken branches: of a load that computes, kernel code has some
//! hundredths, and its figures are off by chance several times as much. With n stacks in all, and a share p of the branches in a
//! ring, errors of both rings weigh alike where the ring has stacks in proportion to the root of p (Neyman's allocation; Cochran,
//! Sampling Techniques, section 5.5). Both events ask for all branches in their stacks, so that processors with one filter for
//! all events take both (LBR_SELECT, SDM vol. 3, 18.4.2); each stack counts with the period that it was taken at.

use anyhow::{Context as _, bail};

use super::super::event::{Source, settle};
use super::super::stride::Sampler;
use super::sampled::Sampled;
use super::{Counters, scaled};
use hbbp_model::addr::Ring;
use hbbp_model::advice::{Advice, Advised};
use hbbp_model::snapshot::run::{Period, is_prime};

/// Whether each ring has an event with branch stacks of its own.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum StackEvents {
    /// One event counts both.
    #[default]
    ForBothRings,
    /// One for each.
    ForEachRing,
}

/// The shortest period of a ring, as a part of the one for both: what a ring takes at most where it suddenly runs much more than
/// before, until the next look.
pub(crate) const SHORTEST: f64 = 0.25;

/// By how much a period must differ from the one that it should have before it is changed: each change loses half a period.
const NEAR: f64 = 0.2;

/// What is said where there are no events for each ring.
const REFUSED: &str = "branch stacks of each ring cannot be sampled apart";

/// These sources with two in place of each that has branch stacks: for user code, and for the kernel.
pub(crate) fn apart(sources: Vec<Source>) -> anyhow::Result<Vec<Source>> {
    if sources.iter().all(|source| source.request.stack.is_none()) {
        let why = format!("{REFUSED}: this machine has no branch stacks");
        bail!(Advised::new(why, Advice::LeaveOutRingsApart));
    }
    let mut all = Vec::new();
    for source in sources {
        if source.request.stack.is_none() {
            all.push(source);
            continue;
        }
        for ring in [Ring::User, Ring::Kernel] {
            let mut of_ring = source.clone();
            of_ring.name.push_str(match ring {
                Ring::Kernel => ":k",
                Ring::User => ":u",
            });
            of_ring.request.ring = Some(ring);
            all.push(settle(of_ring).context(Advised::new(REFUSED, Advice::LeaveOutRingsApart))?);
        }
    }
    Ok(all)
}

/// Stacks that `all` must be worth for shares to be told: an idle machine runs nothing but the kernel, and what comes then would be
/// sampled four times as often as it should.
const ENOUGH: u64 = 1_000;

/// What the period of a ring is to be, as a part of the one for both, where it counted `own` taken branches of `all`: both together
/// take as many stacks as one event for both. `None` where less ran than can tell.
fn part_of_period(own: u64, all: u64, period: u64) -> Option<f64> {
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
fn is_off(wanted: f64, now: f64) -> bool {
    NEAR < (wanted / now - 1.0).abs()
}

impl Counters {
    /// Whether each ring has branch stacks by an event of its own.
    pub(crate) fn has_rings_apart(&self) -> bool {
        self.events.iter().any(|event| event.ring().is_some())
    }

    /// Has each ring with an event of its own take stacks by what it ran since totals were taken last, while the events run.
    pub(crate) fn share_out(&mut self) -> anyhow::Result<()> {
        let [kernel, user] = self.ran_since();
        let scale = self.scale;
        for event in self.events.iter_mut().filter(|event| event.is_adaptable()) {
            let own = match event.ring() {
                Some(Ring::Kernel) => kernel,
                Some(Ring::User) => user,
                None => continue,
            };
            let wanted = part_of_period(own, kernel.saturating_add(user), event.of_both());
            if let Some(part) = wanted.filter(|part| is_off(*part, event.part)) {
                event.set_part(part, scale)?;
            }
        }
        Ok(())
    }

    /// Taken branches of the kernel and of user code since totals were taken last, of events that count one ring.
    fn ran_since(&self) -> [u64; 2] {
        let ran = self.ran();
        [0, 1].map(|ring| ran[ring].saturating_sub(self.ran_before[ring]))
    }

    /// The same since the events were opened. What lost its counter is told when totals are taken.
    pub(super) fn ran(&self) -> [u64; 2] {
        let mut ran = [0_u64; 2];
        for event in self.events.iter().filter(|event| event.is_used) {
            let [kernel, user] = &mut ran;
            let of_ring = match event.ring() {
                Some(Ring::Kernel) => kernel,
                Some(Ring::User) => user,
                None => continue,
            };
            let counts = event.counters.iter().filter_map(|counter| counter.read().ok());
            *of_ring = counts.fold(*of_ring, |sum, counter| sum.saturating_add(counter.count));
        }
        ran
    }
}

impl Sampled {
    /// Whether its period may change: counters that follow tasks keep the first one.
    fn is_adaptable(&self) -> bool {
        self.is_used && self.counters.iter().all(Sampler::is_adaptable)
    }

    /// The period that it would have for both rings, at the start.
    const fn of_both(&self) -> u64 {
        match self.source.request.period {
            Period::Fixed(period) | Period::Between(period, _) => period,
            Period::Frequency(_) => 1,
        }
    }

    /// Samples every `part` of the period for both rings, or near it, from now on, while it runs.
    fn set_part(&mut self, part: f64, scale: f64) -> anyhow::Result<()> {
        let Period::Fixed(of_both) = self.source.request.period else {
            return Ok(());
        };
        let before = self.nominal_period();
        let period = scaled(of_both, scale * part).max(1);
        for counter in &mut self.counters {
            counter
                .adapt(period)
                .context("failed to set the period of a perf event")?;
        }
        let (shortest, longest) = self.periods;
        self.periods = (shortest.min(before).min(period), longest.max(before).max(period));
        self.part = part;
        self.period = Period::Fixed(period);
        Ok(())
    }
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
            // In proportion to the root of what they ran.
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
