//! The error of a share of samples, from how much it differs between neighbouring time slices.
//!
//! Samples that follow each other are alike, so a share varies more than that of independent samples does. Each of S
//! slices has x of its n samples in a group, and p = X / N holds for all slices together. Successive differences then give
//! (Wolter, Introduction to Variance Estimation, section 8.2)
//!
//! ```text
//! Var(X) = S / (2 (S - 1)) * sum of (d[s] - d[s - 1])^2,   d[s] = x[s] - p n[s]
//! ```
//!
//! A slow drift cancels out, and a phase counts where it begins and ends. The variance is at least that of independent samples with
//! one more success and one more failure (Laplace), which is not 0 where all samples are the same.

/// Fewer slices say too little of a variance.
const FEWEST_SLICES: usize = 4;

/// Differences of one sum between slices.
#[derive(Clone, Debug, Default)]
pub(crate) struct BetweenSlices {
    /// The last slice that has some of it, and what it has.
    last: Option<(usize, f64)>,
    /// Sum of the squared differences.
    squares: f64,
    /// Sum of the differences times those of all samples.
    products: f64,
}

impl BetweenSlices {
    /// Adds what the next slice has that has any of it.
    pub(crate) fn add(&mut self, totals: &[f64], slice: usize, amount: f64) {
        self.skip_to(totals, slice);
        let before = match self.last {
            Some((last, before)) if last + 1 == slice => before,
            _ => 0.0,
        };
        self.difference(totals, slice, amount - before);
        self.last = Some((slice, amount));
    }

    /// Adds the difference to an empty slice after the last one, if one comes before `slice`.
    fn skip_to(&mut self, totals: &[f64], slice: usize) {
        if let Some((last, amount)) = self.last
            && last + 1 < slice
        {
            self.difference(totals, last + 1, -amount);
        }
    }

    /// Adds the difference between a slice and the one before it.
    fn difference(&mut self, totals: &[f64], slice: usize, amount: f64) {
        if let Some(of_all) = difference(totals, slice) {
            self.squares += amount * amount;
            self.products += amount * of_all;
        }
    }

    /// The variance of the sum, which is `amount` over all slices.
    pub(crate) fn variance(&self, totals: &[f64], amount: f64) -> f64 {
        let all: f64 = totals.iter().sum();
        if all <= 0.0 {
            return 0.0;
        }
        let n = totals.len();
        let independent = {
            let share = ((amount + 1.0) / (all + 2.0)).clamp(0.0, 1.0);
            (all + 2.0) * share * (1.0 - share)
        };
        if n < FEWEST_SLICES || self.last.is_none() {
            return independent;
        }
        let mut sums = self.clone();
        sums.skip_to(totals, n);
        let share = amount / all;
        let of_all: f64 = (1..n)
            .filter_map(|slice| difference(totals, slice))
            .map(|it| it * it)
            .sum();
        let differences = sums.squares - 2.0 * share * sums.products + share * share * of_all;
        let n = n as f64;
        independent.max(differences * n / (2.0 * (n - 1.0)))
    }
}

/// Samples of a slice beyond those of the one before it; `None` of the first.
fn difference(totals: &[f64], slice: usize) -> Option<f64> {
    let before = totals.get(slice.checked_sub(1)?)?;
    Some(totals.get(slice)? - before)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The variance of what has the first of these samples of each slice, which has the second.
    fn variance(of: &[(f64, f64)]) -> f64 {
        let totals: Vec<f64> = of.iter().map(|(_, total)| *total).collect();
        let mut between = BetweenSlices::default();
        for (n, (amount, _)) in of.iter().enumerate() {
            if 0.0 < *amount {
                between.add(&totals, n, *amount);
            }
        }
        between.variance(&totals, of.iter().map(|(amount, _)| amount).sum())
    }

    #[test]
    fn neighbours_that_differ_make_the_error() {
        // d is 25, -25, 25, -25: three differences of 50.
        let apart = [(50.0, 50.0), (0.0, 50.0), (50.0, 50.0), (0.0, 50.0)];
        assert!((variance(&apart) - 4.0 / 6.0 * 3.0 * 2500.0).abs() < 1e-9);
        // All of it in the last slices but one: differences of 0, 50, -50.
        let late = [(0.0, 50.0), (0.0, 50.0), (50.0, 50.0), (0.0, 50.0)];
        assert!((variance(&late) - 4.0 / 6.0 * 2.0 * 2500.0).abs() < 1e-9);
    }

    #[test]
    fn slices_of_different_lengths_with_one_share_do_not_differ() {
        let even: Vec<(f64, f64)> = [10.0, 300.0, 40.0, 5000.0].map(|n| (n / 2.0, n)).into();
        let all: f64 = 5350.0;
        assert!((variance(&even) - (all + 2.0) / 4.0).abs() < 1e-6);
    }

    #[test]
    fn no_share_is_known_without_error() {
        for n in [1.0, 2.0, 1000.0] {
            let error = variance(&[(n, n)]).sqrt();
            assert!((0.5..1.0).contains(&error), "{n}: {error}");
        }
        // Of few slices, the differences say nothing.
        let few = [(50.0, 50.0), (0.0, 50.0), (50.0, 50.0)];
        assert!(variance(&few) < 40.0);
    }
}
