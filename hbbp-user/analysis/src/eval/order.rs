//! Whether a method has the hottest functions in the right order.
//!
//! In "Establishing a Base of Trust with Performance Counters for Enterprise Workloads" (ATC 2015, section 5.2) no method has
//! that of its largest program.

use std::cmp::Ordering;

use super::amounts::{Amounts, FunctionKey, Method, UNKNOWN};
use super::evaluation::{Evaluation, HottestFunctions, Order};

/// Functions that are looked at, as in the paper.
const HOTTEST: usize = 10;

impl HottestFunctions {
    /// Of known modules; none if the reference has no addresses.
    pub(super) fn new(evaluation: &Evaluation) -> Self {
        if evaluation.addresses.is_empty() {
            return Self::default();
        }
        let mut sums = vec![Amounts::default(); evaluation.locations.len()];
        for ((location, _), amounts) in &evaluation.mnemonics {
            if let Some(sum) = sums.get_mut(*location) {
                sum.add(amounts);
            }
        }
        let functions = evaluation.locations.iter().cloned().zip(sums);
        Self::of(functions.filter(|(function, _)| function.module != UNKNOWN))
    }

    fn of(functions: impl Iterator<Item = (FunctionKey, Amounts)>) -> Self {
        let mut functions: Vec<_> = functions.collect();
        functions.sort_by(|(a, of_a), (b, of_b)| {
            let falling = of_b.reference.total_cmp(&of_a.reference);
            falling.then_with(|| a.cmp(b))
        });
        let all = functions.iter().map(|(_, amounts)| *amounts).collect();
        functions.truncate(HOTTEST);
        functions.retain(|(_, amounts)| 0.0 < amounts.reference);
        Self { functions, all }
    }

    /// How a method orders them; `None` if there are none, or the method has seen no function.
    pub fn order(&self, method: Method) -> Option<Order> {
        let mut by_method: Vec<&Amounts> = self.all.iter().collect();
        // Stable: functions of one amount stay in the order of the reference.
        by_method.sort_by(|a, b| b.by(method).total_cmp(&a.by(method)));
        let is_seen = by_method.first().is_some_and(|most| 0.0 < most.by(method));
        if self.functions.is_empty() || !is_seen {
            return None;
        }
        let hottest = || self.functions.iter().map(|(_, amounts)| amounts);
        let place = |amounts: &Amounts| {
            let amount = amounts.by(method);
            let hotter = by_method.partition_point(|it| amount < it.by(method));
            (0.0 < amount).then_some(hotter + 1)
        };
        let exact: Vec<f64> = hottest().map(|it| it.reference).collect();
        let measured: Vec<f64> = hottest().map(|it| it.by(method)).collect();
        let mut both = exact.iter().zip(&by_method);
        Some(Order {
            places: hottest().map(place).collect(),
            rank_correlation: correlation(&ranks(&exact), &ranks(&measured)),
            is_right: both.all(|(exact, by_method)| exact.total_cmp(&by_method.reference).is_eq()),
        })
    }
}

/// The rank of each amount, the largest first; equal ones share the mean of their ranks.
fn ranks(amounts: &[f64]) -> Vec<f64> {
    let rank = |amount: &f64| {
        let count = |order| amounts.iter().filter(|it| it.total_cmp(amount) == order).count() as f64;
        count(Ordering::Greater) + f64::midpoint(count(Ordering::Equal), 1.0)
    };
    amounts.iter().map(rank).collect()
}

/// Pearson's correlation of two lists of ranks, which is Spearman's of what they rank; `None` if a list has one rank alone.
fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    // Equal ones share the mean of their ranks, so the mean of all is that of 1 to n.
    let mean = f64::midpoint(a.len() as f64, 1.0);
    let covariance = |a: &[f64], b: &[f64]| -> f64 {
        let products = a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean));
        products.sum()
    };
    let variances = covariance(a, a) * covariance(b, b);
    (0.0 < variances).then(|| covariance(a, b) / variances.sqrt())
}

#[cfg(test)]
mod tests {
    use hbbp_model::addr::Ring;
    use proptest::prelude::*;

    use super::*;

    fn functions(amounts: &[(f64, f64)]) -> Vec<(FunctionKey, Amounts)> {
        let function = |(nth, (reference, hybrid)): (usize, &(f64, f64))| {
            let key = FunctionKey {
                ring: Ring::User,
                module: "program".to_owned(),
                function: format!("f{nth}"),
            };
            let amounts = Amounts {
                reference: *reference,
                hybrid: *hybrid,
                ..Amounts::default()
            };
            (key, amounts)
        };
        amounts.iter().enumerate().map(function).collect()
    }

    fn order(amounts: &[(f64, f64)]) -> Option<Order> {
        let functions = functions(amounts);
        HottestFunctions::of(functions.into_iter()).order(Method::Hybrid)
    }

    fn falling(n: u8) -> Vec<(f64, f64)> {
        (0..n)
            .map(|nth| (f64::from(n - nth), 2.0 * f64::from(n - nth)))
            .collect()
    }

    #[test]
    fn right_order_has_the_ranks_of_the_reference() {
        let expected = Order {
            places: (1..=10).map(Some).collect(),
            rank_correlation: Some(1.0),
            is_right: true,
        };
        assert_eq!(order(&falling(12)), Some(expected));
    }

    /// 1 - 6 * 2 / (10 * 99), by the formula for distinct amounts.
    #[test]
    fn neighbours_that_change_ranks_are_the_wrong_order() {
        let mut amounts = falling(12);
        (amounts[3].1, amounts[4].1) = (amounts[4].1, amounts[3].1);
        let found = order(&amounts).unwrap();
        assert_eq!(found.places[2..6], [Some(3), Some(5), Some(4), Some(6)]);
        assert!((found.rank_correlation.unwrap() - (1.0 - 12.0 / 990.0)).abs() < 1e-12);
        assert!(!found.is_right);
    }

    /// The order of the ten is right among them, and one of them is not among the ten hottest.
    #[test]
    fn cold_function_among_the_ten_is_the_wrong_order() {
        let mut amounts = falling(12);
        amounts[11].1 = 1000.0;
        let found = order(&amounts).unwrap();
        assert_eq!(found.places, (2..=11).map(Some).collect::<Vec<_>>());
        assert_eq!((found.rank_correlation, found.is_right), (Some(1.0), false));
    }

    /// What follows the ten does not count, whether it is seen or not.
    #[test]
    fn order_after_the_ten_does_not_count() {
        let mut amounts = falling(14);
        (amounts[11].1, amounts[12].1) = (0.0, 2.5);
        let found = order(&amounts).unwrap();
        assert_eq!((found.rank_correlation, found.is_right), (Some(1.0), true));
    }

    #[test]
    fn equal_functions_may_change_ranks() {
        let found = order(&[(5.0, 9.0), (4.0, 6.0), (4.0, 7.0), (1.0, 0.0)]).unwrap();
        assert_eq!(found.places, [Some(1), Some(3), Some(2), None]);
        assert!(found.is_right);
        // Ranks 1, 2.5, 2.5, 4 and 1, 3, 2, 4.
        assert!((found.rank_correlation.unwrap() - 4.5 / (4.5_f64 * 5.0).sqrt()).abs() < 1e-12);
        // A method with one amount for two functions has not put them into a wrong order either.
        let found = order(&[(5.0, 6.0), (4.0, 6.0), (0.0, 1.0)]).unwrap();
        assert_eq!((found.places, found.is_right), (vec![Some(1), Some(1)], true));
    }

    #[test]
    fn nothing_executed_or_measured_has_no_order() {
        for nothing in [&[][..], &[(0.0, 5.0)], &[(5.0, 0.0)]] {
            assert_eq!(order(nothing), None, "{nothing:?}");
        }
        let one = order(&[(5.0, 1.0)]).unwrap();
        assert_eq!((one.rank_correlation, one.is_right), (None, true));
    }

    proptest! {
        /// By the textbook's formula where no two amounts are equal, and 1 where the order is right.
        #[test]
        fn correlation_is_that_of_the_formula(shuffled in Just((0..10u8).collect::<Vec<_>>()).prop_shuffle()) {
            let amounts: Vec<_> = (0..10u8).zip(&shuffled).map(|(a, b)| (f64::from(20 - a), f64::from(20 - b))).collect();
            let squares: f64 = (0..10u8).zip(&shuffled).map(|(a, b)| (f64::from(a) - f64::from(*b)).powi(2)).sum();
            let found = order(&amounts).unwrap();
            prop_assert!((found.rank_correlation.unwrap() - (1.0 - 6.0 * squares / 990.0)).abs() < 1e-12);
            prop_assert_eq!(found.is_right, squares == 0.0);
            prop_assert_eq!(found.places, shuffled.iter().map(|b| Some(usize::from(*b) + 1)).collect::<Vec<_>>());
        }
    }
}
