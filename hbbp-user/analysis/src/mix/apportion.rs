//! Apportionment: samples are spread over instructions as fractions, and rounded to whole numbers that add up.

/// Rounds `amounts` to whole numbers that keep their proportions and add up to `total`, by the largest remainder
/// (Hamilton's method); of equal remainders the first in order wins.
///
/// Negative and non-finite amounts count as zero. If all amounts are zero, all parts are zero, whatever the total.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "floors of quotas between 0 and the total"
)]
pub fn apportion(amounts: &[f64], total: u64) -> Vec<u64> {
    let clean = |amount: f64| if amount.is_finite() { amount.max(0.0) } else { 0.0 };
    let sum: f64 = amounts.iter().copied().map(clean).sum();
    let mut parts = vec![0; amounts.len()];
    if sum <= 0.0 || !sum.is_finite() {
        return parts;
    }
    let mut left = total;
    let mut remainders: Vec<(f64, usize)> = Vec::with_capacity(amounts.len());
    for (i, (part, amount)) in parts.iter_mut().zip(amounts).enumerate() {
        let quota = clean(*amount) / sum * total as f64;
        *part = (quota.floor() as u64).min(left);
        left -= *part;
        if 0.0 < clean(*amount) {
            remainders.push((quota - quota.floor(), i));
        }
    }
    remainders.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    // Rounding of huge totals can leave more than one for each part.
    let n = remainders.len() as u64;
    for ((_, i), order) in remainders.into_iter().zip(0u64..) {
        if let Some(part) = parts.get_mut(i) {
            *part += left / n + u64::from(order < left % n);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn apportion_gives_the_remainder_to_the_largest_fractions() {
        assert_eq!(apportion(&[1.4, 1.4, 2.2], 5), [2, 1, 2]);
        assert_eq!(apportion(&[1.0, 0.0, 1.0], 3), [2, 0, 1]);
        assert_eq!(apportion(&[0.0], 7), [0]);
        assert_eq!(apportion(&[], 7), Vec::<u64>::new());
    }

    proptest! {
        #[test]
        fn apportion_sums_to_the_total_within_one_of_each_quota(
            amounts in prop::collection::vec(0.0f64..1e6, 1..60),
            total in 0u64..1_000_000,
        ) {
            let sum: f64 = amounts.iter().sum();
            prop_assume!(0.0 < sum);
            let parts = apportion(&amounts, total);
            prop_assert_eq!(parts.iter().sum::<u64>(), total);
            for (part, amount) in parts.iter().zip(&amounts) {
                prop_assert!((*part as f64 - amount / sum * total as f64).abs() < 1.0 + 1e-6);
            }
        }
    }
}
