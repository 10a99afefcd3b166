//! Control of the CPU time that a measurement takes: how much longer its periods should be than those it began with.
//!
//! Pure: from what was spent until when to a scale. The scale changes only from one interval to the next,
//! so that all samples of an event in an interval have one period, but for jitter. An interval ends early where its samples
//! cost much more than planned ([`Control::is_urgent`]), as at the begin of a storm. What user space spends comes in lumps, on
//! the interval before, and is judged over whole intervals alone.
//!
//! Where samples have only the least part left and all together still takes more, what is done again and again is done less
//! often ([`Control::pace`]). It begins with the slowest: in the first minute every text and every name is new.
//! Where that is not enough either, intervals become longer ([`Control::lengthening`]) and have no more samples than before. Each
//! interval and each sample costs time to resolve, write and merge, which is then spent less often.
//!
//! The target is [`AIM`] of the budget, or less: no future minute may take more than [`LIMIT`] of the budget at a constant rate,
//! and a minute includes what was spent in it already.

use std::collections::VecDeque;

/// CPU time in ns, since any time before the measurement.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Spent {
    /// Threads of this program, and the kernel's records of processes: what longer periods do not spare.
    pub(crate) user: u64,
    /// Samples: programs in the kernel and interrupts.
    pub(crate) sampling: u64,
}

/// Controls the scale of the periods.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    /// ns of CPU time for each ns of time.
    budget: f64,
    /// By what the periods are longer than at the start.
    scale: f64,
    /// What was spent in the last minute, in steps of a second at least: end of each, and ns.
    minute: VecDeque<(u64, f64)>,
    /// Start of the interval, and what had been spent then.
    began: (u64, Spent),
    /// The last time that is in `minute`, and what had been spent then.
    seen: (u64, Spent),
    /// ns of user space for each ns of the last interval that was not cut short.
    user: f64,
    /// Since when, and from what on, samples have cost more than planned, and by how many ns.
    excess: (u64, u64, f64),
    /// Whether the interval is to end early.
    urgent: bool,
    /// Factor by which the time between two polls is longer than usual.
    pace: u32,
    /// By what intervals are longer than asked for.
    lengthening: u32,
    /// Whether the interval before was whole and its scale that of the one before it: user space works on an interval in the
    /// next one, so that only then what it takes is known.
    settled: bool,
}

/// The target, as a part of the budget. The remainder allows for minutes that cost more than others.
const AIM: f64 = 0.7;

/// The part of the budget that no minute is planned to exceed.
const LIMIT: f64 = 0.8;

/// The part of the target that samples may take in any case, in an interval of the requested length. A daemon whose user space
/// left nothing for samples would be useless as well.
const SAMPLES: f64 = 0.25;

/// The time over which a budget is kept, in ns.
const MINUTE: u64 = 60 * SECOND;

/// An interval ends early when its samples have cost as much as this time of the whole budget more than planned.
const BEYOND: f64 = 1e9;

/// Shorter intervals would cost more than the samples that are spared.
const SHORTEST: u64 = SECOND / 4;

/// Below this part of the target, periods become shorter. Between the two nothing changes.
const TOO_LITTLE: f64 = 0.7;

/// The part of the target that shorter periods are expected to reach.
const ENOUGH: f64 = 0.9;

/// Samples that take no more than this many times their least part leave nothing to spare.
const LEAST: f64 = 1.5;

/// The longest time between two polls, in usual ones: 0.4 s between two readings of records, 16 s between two drains.
const SLOWEST: u32 = 8;

/// The longest interval, in those that were requested.
const LONGEST: u32 = 16;

/// Below this part of the target, intervals become half as long, and then polls come twice as often.
const SLACK: f64 = 0.4;

/// The longest steps to longer and to shorter periods.
const LONGER: f64 = 8.0;
const SHORTER: f64 = 2.0;

/// The largest scale: of a thousand samples a second, four are left.
pub(crate) const MOST: f64 = 256.0;

const SECOND: u64 = 1_000_000_000;

impl Control {
    /// Control within `share` of the time of `n_cpus` CPUs, from `now` on, in ns.
    pub(crate) fn new(share: f64, n_cpus: u32, now: u64, spent: Spent) -> Self {
        Self {
            budget: share * f64::from(n_cpus.max(1)),
            scale: 1.0,
            minute: VecDeque::new(),
            began: (now, spent),
            seen: (now, spent),
            user: 0.0,
            excess: (now, spent.sampling, 0.0),
            urgent: false,
            pace: SLOWEST,
            lengthening: 1,
            settled: false,
        }
    }

    /// Factor by which the time between two polls is longer than usual: 1 to [`SLOWEST`].
    pub(crate) const fn pace(&self) -> u32 {
        self.pace
    }

    /// Factor by which intervals are longer than requested: 1 to [`LONGEST`].
    pub(crate) const fn lengthening(&self) -> u32 {
        self.lengthening
    }

    /// The scale now.
    pub(crate) const fn scale(&self) -> f64 {
        self.scale
    }

    /// Notes what was spent; whether the interval should end now, as its samples cost much more than planned.
    pub(crate) fn is_urgent(&mut self, now: u64, spent: Spent) -> bool {
        let (last, before) = self.seen;
        self.note(now, spent);
        // What user space leaves, and a part that it cannot use.
        let least = self.least();
        let planned = (self.aim(now) - self.user).max(least) * now.saturating_sub(last) as f64;
        self.excess.2 += since(spent.sampling, before.sampling) - planned;
        if self.excess.2 <= 0.0 {
            self.excess = (now, spent.sampling, 0.0);
        }
        let (start, at_start, excess) = self.excess;
        // Where samples take no more than their part, longer periods would spare nothing.
        let can_spare = 1.2 * least * (now.saturating_sub(start) as f64) < since(spent.sampling, at_start);
        self.urgent = SHORTEST <= now.saturating_sub(self.began.0)
            && self.scale < MOST
            && can_spare
            && BEYOND * self.budget < excess;
        self.urgent
    }

    /// Ends an interval, and returns the scale of the next one.
    pub(crate) fn next(&mut self, now: u64, spent: Spent) -> f64 {
        self.note(now, spent);
        let (began, before) = std::mem::replace(&mut self.began, (now, spent));
        let elapsed = now.saturating_sub(began).max(1) as f64;
        let was_urgent = std::mem::take(&mut self.urgent);
        if !was_urgent {
            self.user = since(spent.user, before.user) / elapsed;
        }
        let (start, at_start, _) = std::mem::replace(&mut self.excess, (now, spent.sampling, 0.0));
        let sampling = if was_urgent {
            since(spent.sampling, at_start) / now.saturating_sub(start).max(1) as f64
        } else {
            since(spent.sampling, before.sampling) / elapsed
        };
        let rate = self.user + sampling;
        // Where all of the minute has been spent, only the longest step is left.
        let ratio = rate / self.aim(now).max(self.budget / 1e3);
        let is_settled = std::mem::replace(&mut self.settled, !was_urgent) && !was_urgent;
        let of_samples = sampling / self.least();
        // A minute is not made up for by longer intervals.
        let of_budget = rate / (AIM * self.budget);
        let has_spared_all = of_samples <= LEAST || MOST <= self.scale;
        if 1.0 < ratio && has_spared_all && !was_urgent {
            if self.pace < SLOWEST {
                self.pace = (2 * self.pace).min(SLOWEST);
            } else if 1.0 < of_budget && is_settled && self.lengthening < LONGEST {
                self.lengthening *= 2;
                self.settled = false;
                self.scale = (self.scale * (2.0 * of_samples).clamp(1.0, 2.0)).min(MOST);
                return self.scale;
            }
        } else if ratio < SLACK && is_settled && 1 < self.lengthening.max(self.pace) {
            // Shorter periods wait until this is seen.
            if 1 < self.lengthening {
                self.lengthening /= 2;
            } else {
                self.pace /= 2;
            }
            self.settled = false;
            return self.scale;
        }
        let step = if 1.0 < ratio && 1.0 < of_samples {
            ratio.min(of_samples).min(LONGER)
        } else if ratio.min(of_samples) < TOO_LITTLE && is_settled {
            (ratio.min(of_samples) / ENOUGH).clamp(1.0 / SHORTER, 1.0)
        } else {
            return self.scale;
        };
        let scale = (self.scale * step).clamp(1.0, MOST);
        self.settled &= scale.to_bits() == self.scale.to_bits();
        self.scale = scale;
        scale
    }

    /// What samples may take in any case, in ns for each ns: a longer interval has as many of them.
    fn least(&self) -> f64 {
        SAMPLES * AIM * self.budget / f64::from(self.lengthening)
    }

    /// Adds what was spent since the last time to the minute.
    fn note(&mut self, now: u64, spent: Spent) {
        let (last, before) = std::mem::replace(&mut self.seen, (now, spent));
        let more = since(spent.user, before.user) + since(spent.sampling, before.sampling);
        match self.minute.back_mut() {
            // The step began where the one before ended.
            Some((end, ns)) if last == *end && *end % SECOND != 0 && *end / SECOND == now / SECOND => {
                (*end, *ns) = (now, *ns + more);
            }
            _ => self.minute.push_back((now, more)),
        }
        while self.minute.front().is_some_and(|(end, _)| end + MINUTE <= now) {
            self.minute.pop_front();
        }
    }

    /// The rate to aim at, in ns for each ns.
    fn aim(&self, now: u64) -> f64 {
        let limit = LIMIT * self.budget * MINUTE as f64;
        let mut spent: f64 = self.minute.iter().map(|(_, ns)| ns).sum();
        let mut aim = AIM * self.budget;
        for (end, ns) in &self.minute {
            // Until this step is a minute ago, all of the later ones count as well.
            let left = (end + MINUTE).saturating_sub(now).max(1);
            aim = aim.min((limit - spent) / left as f64);
            spent -= ns;
        }
        aim.max(0.0)
    }
}

fn since(now: u64, before: u64) -> f64 {
    now.saturating_sub(before) as f64
}

#[cfg(test)]
mod tests;
