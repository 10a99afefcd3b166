//! Which changes are more than chance.
//!
//! The difference of two independent estimates with standard errors is compared with the normal distribution. Of thousands of
//! rows one in twenty differs "at 95 %" by chance alone, so the p-values are adjusted for the number of comparisons.
//! The adjustment is the step-up procedure of Benjamini and Hochberg (Journal of the Royal Statistical Society B 57, 1995, pages
//! 289 to 300): of the rows that are called changed at an adjusted value of 0.05, one in twenty is by chance on average.

use std::f64::consts::SQRT_2;

/// Adjusted p-values up to this one are called significant.
pub const LEVEL: f64 = 0.05;

/// Two-sided p-value of a difference with this standard error; 1 of no difference, 0 of one without any error.
pub(super) fn p_value(difference: f64, std_error: f64) -> f64 {
    if difference == 0.0 {
        1.0
    } else if std_error <= 0.0 {
        0.0
    } else {
        libm::erfc(difference.abs() / std_error / SQRT_2)
    }
}

/// The p-values adjusted for their number, in their order: the least false discovery rate at which each is still called
/// significant.
pub(super) fn adjusted(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    let p = |at: usize| p_values.get(at).copied().unwrap_or(1.0);
    order.sort_by(|a, b| p(*b).total_cmp(&p(*a)));
    let n = p_values.len() as f64;
    let mut adjusted = vec![1.0; p_values.len()];
    let mut least = 1.0_f64;
    for (at, rank) in order.into_iter().zip((1..=p_values.len()).rev()) {
        // Rounding must not make it less than the p-value itself.
        least = least.min((p(at) * n / rank as f64).max(p(at)));
        if let Some(adjusted) = adjusted.get_mut(at) {
            *adjusted = least;
        }
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn p_values_are_those_of_the_normal_distribution() {
        for (z, p) in [
            (0.0, 1.0),
            (1.0, 0.317_310_5),
            (1.959_964, 0.05),
            (-3.0, 0.002_699_796),
            (8.0, 1.244e-15),
        ] {
            let found = p_value(z * 7.0, 7.0);
            assert!((found / p - 1.0).abs() < 1e-3, "{z}: {found}");
        }
        assert_eq!((p_value(0.0, 0.0), p_value(1.0, 0.0)), (1.0, 0.0));
    }

    #[test]
    fn p_values_are_adjusted_as_in_the_paper() {
        // The example of the paper (table 1): of 15 p-values, four are significant at 0.05.
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719,
            0.6528, 0.7590, 1.000,
        ];
        let found = adjusted(&p);
        assert_eq!(found.iter().filter(|p| **p <= LEVEL).count(), 4);
        assert!((found[3] - 0.0095 * 15.0 / 4.0).abs() < 1e-12);
        assert_eq!(adjusted(&[]), Vec::<f64>::new());
    }

    proptest! {
        #[test]
        fn adjusted_values_keep_the_order(p in prop::collection::vec(0.0f64..=1.0, 0..40)) {
            let found = adjusted(&p);
            for (a, b) in p.iter().zip(&found) {
                prop_assert!(a <= b && *b <= 1.0);
            }
            for (i, j) in (0..p.len()).flat_map(|i| (0..p.len()).map(move |j| (i, j))) {
                prop_assert!(p[i] >= p[j] || found[i] <= found[j]);
            }
        }
    }
}
