//! Which branches occur in one another's stacks.

use hashbrown::HashMap;

/// Branches in older slots of stacks, by trigger.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    /// By trigger and older branch: stacks, each shared equally between its older branches.
    pairs: HashMap<(u32, u32), f64>,
}

/// The same, in a fixed order, so that sums of fractions are the same in each run.
pub(super) struct Pairs {
    pairs: Vec<(usize, usize, f64)>,
    /// By branch: stacks that it triggered and that have older branches.
    triggered: Vec<f64>,
    /// By branch: stacks in whose older slots it is, as shares of these.
    pub(super) seen: Vec<f64>,
}

/// Distinct pairs that are kept: the same number as of an interval.
const CAPACITY: usize = 1 << 22;

impl Neighbours {
    /// Adds a share of stacks, unless the pair is new and there are too many.
    pub(super) fn add(&mut self, trigger: u32, older: u32, stacks: f64) {
        let pair = (trigger, older);
        if self.pairs.len() < CAPACITY || self.pairs.contains_key(&pair) {
            *self.pairs.entry(pair).or_default() += stacks;
        }
    }

    /// The pairs of `n` branches.
    pub(super) fn into_pairs(self, n: usize) -> Pairs {
        let index = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        let pairs = self.pairs.into_iter();
        let mut pairs: Vec<_> = pairs.map(|((a, b), n)| (index(a), index(b), n)).collect();
        pairs.sort_unstable_by_key(|(trigger, older, _)| (*trigger, *older));
        let sums = |of: fn(&(usize, usize, f64)) -> usize| {
            let mut sums = vec![0.0; n];
            for pair in &pairs {
                add(&mut sums, of(pair), pair.2);
            }
            sums
        };
        Pairs {
            triggered: sums(|pair| pair.0),
            seen: sums(|pair| pair.1),
            pairs,
        }
    }
}

fn add(sums: &mut [f64], n: usize, amount: f64) {
    if let Some(sum) = sums.get_mut(n) {
        *sum += amount;
    }
}

fn at(numbers: &[f64], n: usize) -> f64 {
    numbers.get(n).copied().unwrap_or_default()
}

impl Pairs {
    /// The share of branches in older slots, where `weights` gives the weight of a stack for its trigger.
    pub(super) fn shares(&self, weights: &[f64]) -> Vec<f64> {
        let mut shares = vec![0.0; weights.len()];
        for (trigger, older, stacks) in &self.pairs {
            add(&mut shares, *older, stacks * at(weights, *trigger));
        }
        shares
    }

    /// The mean of `values` over the stacks in whose older slots a branch is; 0 if there are none.
    pub(super) fn in_older_slots(&self, values: &[f64]) -> Vec<f64> {
        let shares = self.shares(values).into_iter().zip(&self.seen);
        let mean = |(share, seen): (f64, &f64)| if 0.0 < *seen { share / seen } else { 0.0 };
        shares.map(mean).collect()
    }

    /// The mean of `values` over the stacks of triggers whose stacks have the same older branches, and so on, `steps`
    /// times. Each step weights triggers by their stacks, so the mean over all stacks is unchanged.
    pub(super) fn means(&self, values: &[f64], steps: usize) -> Vec<f64> {
        let mut values = values.to_vec();
        for _ in 0..steps {
            let of_older = self.in_older_slots(&values);
            let mut sums = vec![0.0; values.len()];
            for (trigger, older, stacks) in &self.pairs {
                add(&mut sums, *trigger, stacks * at(&of_older, *older));
            }
            for ((value, sum), stacks) in values.iter_mut().zip(sums).zip(&self.triggered) {
                if 0.0 < *stacks {
                    *value = sum / stacks;
                }
            }
        }
        values
    }
}
