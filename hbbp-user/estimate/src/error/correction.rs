//! How far off corrections of the streams may leave a count.
//!
//! Streams are balanced where branches stick to the oldest slot ([`crate::Bias`]), and stacks that were read late
//! show other streams than they should ([`crate::Late`]). Both corrections rest on a model of what the processor does,
//! and remove a part of the bias. What they leave has one direction for all that a correction moved alike. So it does not shrink with
//! more samples, and cancels in a sum as the corrections do. Its size is not known, but that of the correction is. With a correction
//! `k` to each count `c`,
//!
//! ```text
//! Var(sum of c)  =  variance by chance  +  (PART x sum of k)^2
//! ```
//!
//! Samples of eventing IPs had their part in the balance: where it changed a sum by more than they could be off, they are what says how far
//! off it still is. Both are joined as two measurements are.
//!
//! Late stacks leave their bias in the figures where the rule does not weigh streams for it; the error is told all the same.
//! A run without bias has no corrections, and its errors are those of chance.

use crate::sources::SeenBlocks;

/// The part of a balance that may be wrong: a standard deviation. With these parts, 93 to 97 % of the mnemonics of 0.1
/// % or more are within two standard errors on biased hardware profiles. By the sampling error alone it is 44 to 76 %
/// (kernel-tests/results/statistics.txt, 4).
const OF_BALANCE: f64 = 0.75;

/// The same of what late stacks make, as the time until they were read is estimated.
const OF_LATE: f64 = 0.5;

/// How far samples of eventing IPs are off in a sum besides chance, as a share: they skid. On the emulated machine 5 to 9 % of the mix in the
/// mean (kernel-tests/results/accuracy.txt).
const OF_SAMPLES: f64 = 0.1;

/// The relative standard error of executions whose scale is the time that a model of a core gives to bursts. Shares of blocks of
/// seven programs were off by 15 % of themselves in the mean: a distance of 7.6 % is half the sum of all differences
/// (kernel-tests/experiments/bursts.py). That is 0.8 standard errors of a normal distribution.
const OF_MODEL: f64 = 0.19;

/// What corrections added to a count, negative where they took away: executions of a block, or instructions of a sum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Correction {
    balance: f64,
    late: f64,
}

impl Correction {
    /// Variance of what it may have left.
    pub(crate) fn variance(&self) -> f64 {
        self.of_balance() + self.of_late()
    }

    /// The same of a sum of this amount that eventing IPs sampled `hits` times. They had their part in the balance, which leaves at
    /// most what they leave.
    pub(crate) fn beside_samples(&self, hits: f64, amount: f64) -> f64 {
        let of_samples = amount * amount * (1.0 / hits + OF_SAMPLES * OF_SAMPLES);
        let balance = self.of_balance();
        let left = match of_samples.is_finite() && 0.0 < balance {
            true => balance * of_samples / (balance + of_samples),
            false => balance,
        };
        left + self.of_late()
    }

    fn of_balance(&self) -> f64 {
        (OF_BALANCE * self.balance).powi(2)
    }

    fn of_late(&self) -> f64 {
        (OF_LATE * self.late).powi(2)
    }

    /// Adds that of a part of a sum.
    pub(crate) fn add(&mut self, other: Self, times: f64) {
        self.balance += other.balance * times;
        self.late += other.late * times;
    }
}

/// The corrections of the counts of all blocks, by their numbers; of none where streams are as recorded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Corrections {
    balance: Vec<f64>,
    late: Vec<f64>,
    /// Executed instructions in all, where a model of a core is their scale; else 0.
    modelled: f64,
}

impl Corrections {
    /// Takes what a balance changed the weight of each stream by.
    pub(crate) fn balanced(&mut self, seen: &SeenBlocks, changes: impl Iterator<Item = f64>) {
        self.balance = seen.executions(changes);
    }

    /// Takes what the weight of each stream changes by if it is weighed for the time until stacks were read.
    pub(crate) fn late(&mut self, seen: &SeenBlocks, changes: impl Iterator<Item = f64>) {
        self.late = seen.executions(changes);
    }

    /// Takes how many instructions were executed in all, by a scale that a model of a core gives.
    pub(crate) fn modelled(&mut self, instructions: f64) {
        self.modelled = instructions;
    }

    /// The variance that the model of a core leaves of an amount of instructions: its scale is off against that of all others.
    pub(crate) fn of_model(&self, amount: f64) -> f64 {
        match 0.0 < self.modelled {
            true => (OF_MODEL * amount * (1.0 - amount / self.modelled)).powi(2),
            false => 0.0,
        }
    }

    /// That of the block with this number.
    pub(crate) fn of_block(&self, block: usize) -> Correction {
        let of = |changes: &[f64]| changes.get(block).copied().unwrap_or_default();
        Correction {
            balance: of(&self.balance),
            late: of(&self.late),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrections_of_opposite_directions_cancel_in_a_sum() {
        let of = |balance, late| Correction { balance, late };
        let mut sum = Correction::default();
        sum.add(of(8.0, 0.0), 3.0);
        assert_eq!(sum.variance(), 18.0 * 18.0);
        sum.add(of(-4.0, 2.0), 6.0);
        assert_eq!(sum, of(0.0, 12.0));
        assert_eq!(sum.variance(), 36.0);
        let large = of(100.0, 0.0);
        let [none, few, many] = [0.0, 4.0, 1e6].map(|hits| large.beside_samples(hits, 100.0).sqrt());
        assert_eq!(none, 75.0);
        assert!(
            (few - 42.1).abs() < 0.1 && (many - 9.9).abs() < 0.1,
            "{few} {many}"
        );
        assert_eq!(Corrections::default().of_block(7), Correction::default());
    }

    #[test]
    fn a_model_is_off_by_its_part_of_a_share_and_not_in_all() {
        let mut corrections = Corrections::default();
        assert_eq!(corrections.of_model(7.0), 0.0);
        corrections.modelled(1000.0);
        let errors = [1.0, 500.0, 1000.0].map(|amount| corrections.of_model(amount).sqrt());
        assert!((errors[0] - 0.19).abs() < 1e-3, "{errors:?}");
        assert!((errors[1] - 47.5).abs() < 1e-9 && errors[2] == 0.0, "{errors:?}");
    }
}
