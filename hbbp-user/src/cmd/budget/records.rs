//! Control of the cost of records of processes. The kernel writes one for each process, program and mapping that begins or ends,
//! at any sampling period. A storm of short-lived processes would exceed any budget.
//!
//! Pure, as [`super::control`]: what records take is drawn from an account that is filled at a constant rate. Where it
//! is overdrawn, records rest until it is full. Samples go on, and so every total stays true; what is lost is the
//! program of a process that began meanwhile, unless it still runs when it is looked for.

/// The part of the budget for records. Samples and their processing need the remainder. With 0.3, a minute of storm on the
/// emulated machine took 1.26 times the budget.
const SHARE: f64 = 0.2;

/// How long the account is filled, in ns: a compiler's processes of a second are all taken then, and a storm draws as much
/// from any minute as it is filled with in a quarter of it.
const FILLED: f64 = 15e9;

/// The account of one measurement.
#[derive(Clone, Debug)]
pub(crate) struct RecordAccount {
    /// ns of CPU time for each ns of time.
    rate: f64,
    /// ns of CPU time.
    left: f64,
    /// Until when it was filled.
    filled: u64,
    /// Since when records rest.
    resting: Option<u64>,
    /// For how long they rested before, in ns.
    rested: u64,
}

/// What becomes of records.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Change {
    /// They rest from now on.
    Rest,
    /// They are written again.
    Resume,
}

impl RecordAccount {
    /// A full account of a budget, which is in ns of CPU time for each ns of time.
    pub(super) fn new(budget: f64, now: u64) -> Self {
        let rate = SHARE * budget;
        Self {
            rate,
            left: rate * FILLED,
            filled: now,
            resting: None,
            rested: 0,
        }
    }

    /// Draws what records took, in ns of CPU time.
    pub(super) fn draw(&mut self, cost: u64) {
        self.left -= cost as f64;
    }

    /// What is to change now.
    pub(super) fn change(&mut self, now: u64) -> Option<Change> {
        let time = now.saturating_sub(self.filled) as f64;
        self.filled = self.filled.max(now);
        let full = self.rate * FILLED;
        self.left = (self.left + self.rate * time).min(full);
        match self.resting {
            None if self.left < 0.0 => {
                self.resting = Some(now);
                Some(Change::Rest)
            }
            Some(since) if full <= self.left => {
                self.rested += now.saturating_sub(since);
                self.resting = None;
                Some(Change::Resume)
            }
            _ => None,
        }
    }

    /// For how long records have rested until now, in ns.
    pub(super) fn rested(&self, now: u64) -> u64 {
        let lately = self.resting.map_or(0, |since| now.saturating_sub(since));
        self.rested.saturating_add(lately)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;
    /// 0.3 % of two CPUs.
    const BUDGET: f64 = 0.006;

    /// What records took in each tick of a quarter of a second, in ns, where they would take `demand` budgets in each second.
    fn course(demand: &[f64]) -> (Vec<f64>, u64) {
        let mut account = RecordAccount::new(BUDGET, 0);
        let (mut taken, mut follows) = (Vec::new(), true);
        for (tick, demand) in (1..).zip(demand.iter().flat_map(|it| [it; 4])) {
            #[expect(clippy::cast_sign_loss, reason = "a positive number")]
            let cost = if follows {
                (demand * BUDGET * SECOND as f64 / 4.0) as u64
            } else {
                0
            };
            account.draw(cost);
            let change = account.change(tick * SECOND / 4);
            follows = change.map_or(follows, |change| change == Change::Resume);
            taken.push(cost as f64);
        }
        let end = demand.len() as u64 * SECOND;
        (taken, account.rested(end))
    }

    #[test]
    fn what_fits_into_the_share_never_rests() {
        assert_eq!(course(&[0.9 * SHARE; 600]).1, 0);
        // A burst of three seconds, as of a build.
        let burst = [vec![0.0; 20], vec![1.2; 3], vec![0.0; 20]].concat();
        assert_eq!(course(&burst).1, 0);
    }

    #[test]
    fn storm_rests_most_of_the_time_and_ends() {
        let storm = [vec![0.0; 30], vec![15.0; 120], vec![0.0; 60]].concat();
        let (_, rested) = course(&storm);
        assert!((100 * SECOND..=130 * SECOND).contains(&rested), "{rested}");
    }

    proptest! {
        #[test]
        fn no_minute_takes_more_than_its_share(
            demand in prop::collection::vec(prop_oneof![Just(0.0), 0.0..20.0_f64], 200..400),
        ) {
            let (taken, _) = course(&demand);
            let full = SHARE * BUDGET * FILLED;
            // A tick is seen when it is over.
            let tick = 20.0 * BUDGET * SECOND as f64 / 4.0;
            let most = SHARE * BUDGET * 60.0 * SECOND as f64 + full + 2.0 * tick;
            for minute in taken.windows(240) {
                let sum = minute.iter().sum::<f64>();
                prop_assert!(sum <= most, "{} of {}", sum, most);
            }
        }
    }
}
