//! The period of one counter, changed a little at drains, so that samples do not keep step with a loop of the workload.
//!
//! The ioctl that changes a period forgets how far the counter had come in the old one (kernel/events/core.c,
//! `__perf_event_period`): a new period begins with the change, and what was counted since the last sample has none.
//! So the samples that are due are known exactly if the count is read while the counter is stopped, and each change
//! costs half a period on average. It is therefore made only after enough samples for this to be little.
//!
//! A budget of CPU time changes the nominal period as well, between two profiles ([`Sampler::set_period`]).

use std::io;

use super::perf::Perf;
use super::source::Source;
use hbbp_model::snapshot::run::{Counter, EventUnit, Period, is_prime};

/// A counter that samples.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// The perf event.
    pub perf: Perf,
    unit: EventUnit,
    /// Its period, where it may change; `None` where the kernel chooses it, or the counter follows tasks: those that a
    /// task creates would keep the old one.
    stride: Option<Stride>,
    /// What it had counted when that was taken last.
    taken: Counter,
    /// Whether its CPU went offline: the kernel has stopped it for good.
    has_ended: bool,
}

impl Sampler {
    /// A new counter of a source.
    pub(crate) fn new(perf: Perf, source: &Source) -> Self {
        let stride = match (perf.cpu(), source.unit, source.request.period) {
            (None, ..) | (_, _, Period::Frequency(_)) => None,
            // A clock keeps step with no loop.
            (_, EventUnit::Nanoseconds, Period::Fixed(period) | Period::Between(period, _)) => {
                Some(Stride::even(period))
            }
            (Some(cpu), _, Period::Fixed(period) | Period::Between(period, _)) => {
                Some(Stride::new(period, cpu))
            }
        };
        Self {
            stride,
            perf,
            unit: source.unit,
            taken: Counter::default(),
            has_ended: false,
        }
    }

    /// Whether its period may be set.
    pub(crate) const fn is_adaptable(&self) -> bool {
        self.stride.is_some()
    }

    /// Leaves it as it is: its CPU went offline, and the kernel stopped it for good.
    pub(crate) const fn leave(&mut self) {
        self.has_ended = true;
        if let Some(stride) = &mut self.stride {
            stride.ended = true;
        }
    }

    /// Whether its CPU went offline.
    pub(crate) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Samples every `period` units, or near it, from now on. To be called after [`Self::take`], while it is still stopped.
    pub(crate) fn set_period(&mut self, period: u64) -> io::Result<()> {
        let Some(stride) = self.stride.as_mut().filter(|_| !self.has_ended) else {
            return Ok(());
        };
        let count = match counted(&self.perf, self.unit) {
            // It lost its counter, and is left to `take`.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?.count,
        };
        stride.nominal = period;
        let next = if stride.ended { period } else { stride.next() };
        self.perf.set_period(next)?;
        stride.change(count, next);
        self.taken = self.read()?;
        Ok(())
    }

    /// Changes the period of a counter that runs, if there have been enough samples since the last change.
    /// A kernel that refuses leaves the period as it was; an event that lost its counter is left to [`Self::read`].
    pub(crate) fn vary(&mut self) -> io::Result<()> {
        let Some(stride) = self.stride.as_mut().filter(|stride| !stride.ended) else {
            return Ok(());
        };
        if !counted(&self.perf, self.unit).is_ok_and(|counter| stride.is_long(counter.count)) {
            return Ok(());
        }
        self.renew()
    }

    /// Samples every `period` units, or near it, from now on, while it runs. A counter that follows tasks stays as it is.
    pub(crate) fn adapt(&mut self, period: u64) -> io::Result<()> {
        match self.stride.as_mut().filter(|_| !self.has_ended) {
            Some(stride) => stride.nominal = period,
            None => return Ok(()),
        }
        self.renew()
    }

    /// Begins a new period of a counter that runs.
    fn renew(&mut self) -> io::Result<()> {
        let Some(stride) = &mut self.stride else {
            return Ok(());
        };
        self.perf.disable()?;
        if let Ok(counter) = counted(&self.perf, self.unit) {
            let next = if stride.ended {
                stride.nominal
            } else {
                stride.next()
            };
            match self.perf.set_period(next) {
                Ok(()) => stride.change(counter.count, next),
                Err(_) => stride.ended = true,
            }
        }
        self.perf.enable()
    }

    /// What it counted since the last call; `period` is its nominal period. To be called while it is stopped.
    pub(crate) fn take(&mut self, period: u64) -> io::Result<Counter> {
        let counter = self.read()?;
        let taken = std::mem::replace(&mut self.taken, counter);
        Ok(counter.since(&taken, period))
    }

    /// What it counted so far, with the samples that were due where its period has changed.
    pub(crate) fn read(&self) -> io::Result<Counter> {
        let counter = counted(&self.perf, self.unit)?;
        let changed = self.stride.as_ref().filter(|stride| 0 < stride.n_changes);
        Ok(Counter {
            due: changed.map(|stride| stride.due(counter.count)),
            ..counter
        })
    }
}

/// What a counter counted, without the samples that were due.
///
/// A clock counts its enabled time, also where the kernel stopped its timer: it does so after as many samples as it
/// allows from one clock tick to the next, and an idle CPU has no ticks (kernel/events/core.c,
/// `__perf_event_account_interrupt`). The kernel's own count is stopped then, so the samples would not be missed.
fn counted(perf: &Perf, unit: EventUnit) -> io::Result<Counter> {
    let counter = perf.read()?;
    Ok(match unit {
        EventUnit::Nanoseconds => Counter {
            count: counter.running,
            ..counter
        },
        _ => counter,
    })
}

/// The periods of one counter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Stride {
    /// The period that was asked for.
    nominal: u64,
    /// The period in force.
    current: u64,
    /// The count at which it came into force.
    since: u64,
    /// Samples that were due until then.
    before: u64,
    n_changes: u64,
    /// Where it begins in the sequence of periods. Each CPU begins elsewhere, so that not all of them keep step with a loop at a
    /// time.
    first: u64,
    /// No more changes.
    ended: bool,
}

impl Stride {
    /// Samples between two changes at the least: what a change loses is then one part in two thousand at the most.
    const LONG: u64 = 1_000;

    /// Periods stay within this part of the nominal one, on either side. That is enough for a loop in step with one of
    /// them to be out of step with the next after a few samples. It is too little to matter for the number of samples.
    const PART: u64 = 128;

    fn new(period: u64, cpu: u32) -> Self {
        Self {
            nominal: period,
            current: period,
            since: 0,
            before: 0,
            n_changes: 0,
            first: u64::from(cpu),
            ended: period < Self::PART,
        }
    }

    /// One whose period is changed by [`Sampler::set_period`] alone.
    fn even(period: u64) -> Self {
        Self {
            ended: true,
            ..Self::new(period, 0)
        }
    }

    const fn is_long(&self, count: u64) -> bool {
        Self::LONG <= count.saturating_sub(self.since) / self.current
    }

    /// Samples that are due at a count.
    const fn due(&self, count: u64) -> u64 {
        self.before + count.saturating_sub(self.since) / self.current
    }

    const fn change(&mut self, count: u64, period: u64) {
        self.before = self.due(count);
        self.since = count;
        self.current = period;
        self.n_changes += 1;
    }

    /// A prime near the nominal period, another one each time: the multiples of the golden ratio are spread evenly and
    /// never come back (Knuth, The Art of Computer Programming, volume 3, section 6.4, theorem S).
    fn next(&self) -> u64 {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let fraction = (self.first + self.n_changes + 1).wrapping_mul(GOLDEN) >> 32;
        let spread = u128::from(self.nominal / Self::PART * 2);
        let offset = u64::try_from((spread * u128::from(fraction)) >> 32).unwrap_or(0);
        let least = (self.nominal - self.nominal / Self::PART).saturating_add(offset);
        (least..).find(|n| is_prime(*n)).unwrap_or(self.nominal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_span_has_its_own_samples() {
        let mut stride = Stride::new(1_009, 0);
        assert_eq!(
            (stride.is_long(1_008_999), stride.is_long(1_009_000)),
            (false, true)
        );
        // 1000 samples and half a period, which is lost.
        stride.change(1_009_500, 1_013);
        assert_eq!(stride.due(1_009_500 + 1_012), 1_000);
        assert_eq!(stride.due(1_009_500 + 2 * 1_013), 1_002);
        assert!(!stride.is_long(1_009_500 + 1_000));
    }

    #[test]
    fn cpus_change_to_different_periods() {
        let [first, second] = [0, 1].map(|cpu| Stride::new(100_003, cpu));
        assert_ne!(first.next(), second.next());
    }

    #[test]
    fn periods_are_primes_nearby_and_not_the_same() {
        for nominal in [1_009, 100_003, 1_000_037, 100_000_007] {
            let mut stride = Stride::new(nominal, 3);
            let mut seen = Vec::new();
            for n in 0..20 {
                let next = stride.next();
                assert!(is_prime(next) && next.abs_diff(nominal) <= nominal / 64, "{next}");
                assert!(!seen.contains(&next) || nominal < 10_000, "{next} again");
                seen.push(next);
                stride.change(n * nominal * 1_000, next);
            }
        }
        // Too short to have primes nearby.
        assert!(Stride::new(101, 0).ended);
    }
}
