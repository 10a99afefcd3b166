//! Generalised least squares: the counts that are nearest to what was sampled, by its variances, and to what classes count.
//!
//! ```text
//! x' = x + V A' (A V A' + R)^-1 (c - A x)        V' = V - V A' (A V A' + R)^-1 A V
//! ```
//!
//! x are executions with variances V, taken as independent; each row of A is what one execution adds to a class, c what
//! was counted of the classes, and R its variances. Equivalently it is the calibration estimator of survey sampling with
//! uncertain totals (Deville and Särndal, Journal of the American Statistical Association 87, 1992). There are some
//! tens of classes at most, so that the system is tiny, and solved by a Cholesky factor.
//!
//! Where what was counted is off by more than V and R explain, the samples are biased. V is then scaled until it explains
//! that (Birge, Physical Review 40, 1932): counts of classes have no such bias. The variances that are left are of chance
//! alone.
//!
//! Executions are not negative: those that would be are 0, and the others bear what they lack.

use crate::Figure;
use crate::sums::at;

/// A class: the sum of the terms, block and times, was counted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// By rising number of the block.
    pub(crate) terms: Vec<(usize, f64)>,
    pub(crate) counted: Figure,
}

/// What fits best, with how much less is left to chance.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fit {
    pub(crate) values: Vec<f64>,
    pub(crate) variances: Vec<f64>,
    /// The factor of A V A' + R, and V, for sums of blocks.
    pub(crate) factor: Factor,
    pub(crate) prior: Vec<f64>,
}

/// Rounds in which executions that would be negative become 0. Each fixes all of them; more come only as others bear their part.
const ROUNDS: usize = 16;

/// The best fit; where the numbers overflow, what was sampled.
pub(crate) fn fit(values: &[f64], variances: &[f64], rows: &[Row]) -> Fit {
    let (mut x, mut v) = (values.to_vec(), variances.to_vec());
    for _ in 0..ROUNDS {
        let factor = Factor::of(&v, rows);
        let fitted = adjusted(&x, &v, rows, &factor);
        if !fitted.iter().all(|value| value.is_finite()) {
            break;
        }
        let negative: Vec<usize> = (0..fitted.len())
            .filter(|block| at(&fitted, *block) < 0.0)
            .collect();
        if negative.is_empty() {
            return Fit {
                values: fitted,
                variances: left(&v, rows, &factor),
                factor,
                prior: v,
            };
        }
        for block in negative {
            if let (Some(x), Some(v)) = (x.get_mut(block), v.get_mut(block)) {
                (*x, *v) = (0.0, 0.0);
            }
        }
    }
    Fit {
        values: values.to_vec(),
        variances: variances.to_vec(),
        factor: Factor::default(),
        prior: Vec::new(),
    }
}

/// x + V A' (A V A' + R)^-1 (c - A x), where V is scaled until it explains what the counts are off by.
fn adjusted(x: &[f64], v: &[f64], rows: &[Row], factor: &Factor) -> Vec<f64> {
    let off: Vec<f64> = rows.iter().map(|row| row.counted.value - row.sum(x)).collect();
    let beyond = (factor.squared(&off) / factor.rank()).max(1.0);
    let scaled: Vec<f64> = v.iter().map(|v| v * beyond).collect();
    let weights = Factor::of(&scaled, rows).solve(&off);
    let mut fitted = x.to_vec();
    for (row, weight) in rows.iter().zip(&weights) {
        for (block, times) in &row.terms {
            if let Some(value) = fitted.get_mut(*block) {
                *value += at(&scaled, *block) * times * weight;
            }
        }
    }
    fitted
}

/// The variances that are left of V.
fn left(v: &[f64], rows: &[Row], factor: &Factor) -> Vec<f64> {
    let of_blocks = by_block(rows, v.len());
    let left = v.iter().zip(&of_blocks).map(|(variance, of_block)| {
        let explained = variance * variance * factor.squared(&dense(of_block, rows.len()));
        (variance - explained).max(0.0)
    });
    left.collect()
}

impl Row {
    pub(crate) fn sum(&self, x: &[f64]) -> f64 {
        self.terms
            .iter()
            .map(|(block, times)| times * at(x, *block))
            // From a positive zero: that of no terms is none.
            .fold(0.0, |sum, term| sum + term)
    }

    /// The variance of the sum of independent values with these variances.
    pub(crate) fn variance(&self, variances: &[f64]) -> f64 {
        let terms = self.terms.iter();
        terms
            .map(|(block, times)| times * times * at(variances, *block))
            .fold(0.0, |sum, term| sum + term)
    }
}

/// What each block adds to which rows.
pub(super) fn by_block(rows: &[Row], n: usize) -> Vec<Vec<(usize, f64)>> {
    let mut by_block = vec![Vec::new(); n];
    for (number, row) in rows.iter().enumerate() {
        for (block, times) in &row.terms {
            if let Some(of_block) = by_block.get_mut(*block) {
                of_block.push((number, *times));
            }
        }
    }
    by_block
}

/// The lower factor L of a positive definite matrix L L', row by row.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Factor {
    rows: Vec<Vec<f64>>,
}

impl Factor {
    /// Of A V A' + R.
    pub(super) fn of(variances: &[f64], rows: &[Row]) -> Self {
        let mut matrix: Vec<Vec<f64>> = (0..rows.len()).map(|n| vec![0.0; n + 1]).collect();
        for (block, of_block) in by_block(rows, variances.len()).iter().enumerate() {
            let variance = at(variances, block);
            for (n, a) in of_block {
                for (m, b) in of_block.iter().filter(|(m, _)| m <= n) {
                    if let Some(entry) = matrix.get_mut(*n).and_then(|row| row.get_mut(*m)) {
                        *entry += variance * a * b;
                    }
                }
            }
        }
        for (n, row) in rows.iter().enumerate() {
            if let Some(entry) = matrix.get_mut(n).and_then(|row| row.get_mut(n)) {
                *entry += row.counted.std_error * row.counted.std_error;
            }
        }
        Self::factored(matrix)
    }

    /// Number of rows that are not left out; 1 at least.
    fn rank(&self) -> f64 {
        let pivots = self.rows.iter().filter_map(|row| row.last());
        (pivots.filter(|pivot| pivot.is_finite()).count() as f64).max(1.0)
    }

    /// Number of rows.
    pub(super) const fn len(&self) -> usize {
        self.rows.len()
    }

    /// b' (L L')^-1 b.
    pub(super) fn squared(&self, b: &[f64]) -> f64 {
        self.forward(b).iter().map(|y| y * y).sum()
    }

    /// The factor of a matrix by its lower half. A row without variance of its own, whose pivot is 0 or less by rounding, is left
    /// out: its weight becomes 0.
    fn factored(mut matrix: Vec<Vec<f64>>) -> Self {
        for n in 0..matrix.len() {
            let (above, rest) = matrix.split_at_mut(n);
            let Some(row) = rest.first_mut() else { break };
            let scale = at(row, n);
            for m in 0..n {
                let Some(other) = above.get(m) else { continue };
                let dot: f64 = row.iter().zip(other).take(m).map(|(a, b)| a * b).sum();
                let pivot = at(other, m);
                if let Some(entry) = row.get_mut(m) {
                    *entry = if pivot.is_finite() {
                        (*entry - dot) / pivot
                    } else {
                        0.0
                    };
                }
            }
            let squares: f64 = row.iter().take(n).map(|a| a * a).sum();
            let pivot = scale - squares;
            if let Some(entry) = row.get_mut(n) {
                *entry = if scale * f64::EPSILON < pivot {
                    pivot.sqrt()
                } else {
                    f64::INFINITY
                };
            }
        }
        Self { rows: matrix }
    }

    /// The solution y of L y = right.
    fn forward(&self, right: &[f64]) -> Vec<f64> {
        let mut y: Vec<f64> = Vec::with_capacity(right.len());
        for (n, row) in self.rows.iter().enumerate() {
            let dot: f64 = row.iter().zip(&y).map(|(a, b)| a * b).sum();
            y.push((at(right, n) - dot) / at(row, n));
        }
        y
    }

    /// The solution x of L L' x = right.
    fn solve(&self, right: &[f64]) -> Vec<f64> {
        let mut x = self.forward(right);
        for n in (0..x.len()).rev() {
            let below = self.rows.iter().zip(&x).skip(n + 1);
            let dot: f64 = below.map(|(row, x)| at(row, n) * x).sum();
            let pivot = self.rows.get(n).map_or(1.0, |row| at(row, n));
            if let Some(value) = x.get_mut(n) {
                *value = (*value - dot) / pivot;
            }
        }
        x
    }
}

/// A sparse column of `n` rows.
fn dense(sparse: &[(usize, f64)], n: usize) -> Vec<f64> {
    let mut dense = vec![0.0; n];
    for (n, value) in sparse {
        if let Some(entry) = dense.get_mut(*n) {
            *entry += value;
        }
    }
    dense
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(terms: &[(usize, f64)], value: f64, std_error: f64) -> Row {
        Row {
            terms: terms.to_vec(),
            counted: Figure { value, std_error },
        }
    }

    #[test]
    fn what_is_less_certain_bears_more() {
        // The measurements are 100 and 100, the second with four times the variance; their sum is exactly 210.
        let fitted = fit(
            &[100.0, 100.0],
            &[1.0, 4.0],
            &[row(&[(0, 1.0), (1, 1.0)], 210.0, 0.0)],
        );
        assert!((fitted.values[0] - 102.0).abs() < 1e-9 && (fitted.values[1] - 108.0).abs() < 1e-9);
        assert!((fitted.variances[0] - 0.8).abs() < 1e-9 && (fitted.variances[1] - 0.8).abs() < 1e-9);
    }

    #[test]
    fn a_count_as_uncertain_as_the_estimate_is_met_half_way() {
        let fitted = fit(&[100.0], &[25.0], &[row(&[(0, 1.0)], 106.0, 5.0)]);
        assert!((fitted.values[0] - 103.0).abs() < 1e-9);
        assert!((fitted.variances[0] - 12.5).abs() < 1e-9);
    }

    #[test]
    fn what_chance_does_not_explain_is_the_samples_bias() {
        // Twenty standard errors of the difference: 400 times the variance of the samples, and the count is as certain as before.
        let fitted = fit(
            &[100.0],
            &[25.0],
            &[row(&[(0, 1.0)], 100.0 + 20.0 * 50.0f64.sqrt(), 5.0)],
        );
        assert!((fitted.values[0] - 100.0 - 20.0 * 50.0f64.sqrt() * 10_000.0 / 10_025.0).abs() < 1e-6);
        assert!((fitted.variances[0] - 12.5).abs() < 1e-9);
    }

    #[test]
    fn nothing_becomes_negative() {
        // The first would be -20, so it is set to 0, and the second takes the whole difference.
        let rows = [row(&[(0, 1.0), (1, 1.0)], 60.0, 0.0)];
        let fitted = fit(&[10.0, 100.0], &[150.0, 100.0], &rows);
        assert_eq!(fitted.values[0], 0.0);
        assert!((fitted.values[1] - 60.0).abs() < 1e-9);
    }

    #[test]
    fn a_class_without_variance_or_blocks_changes_nothing_else() {
        // The first row repeats the second; the third has no block at all.
        let sum = [(0, 1.0), (1, 1.0)];
        let rows = [row(&sum, 22.0, 0.0), row(&sum, 22.0, 0.0), row(&[], 7.0, 0.0)];
        let fitted = fit(&[10.0, 10.0], &[1.0, 1.0], &rows);
        assert!((fitted.values[0] - 11.0).abs() < 1e-9, "{fitted:?}");
        // Where the samples leave nothing to chance, nothing changes.
        let fitted = fit(&[10.0, 10.0], &[0.0, 0.0], &rows);
        assert_eq!(fitted.values, [10.0, 10.0]);
    }

    #[test]
    fn infinite_counts_leave_what_was_sampled() {
        let fitted = fit(&[10.0], &[1.0], &[row(&[(0, 1.0)], f64::INFINITY, 1.0)]);
        assert_eq!(fitted.values, [10.0]);
    }

    proptest! {
        #[test]
        fn sums_close_and_variances_shrink(
            blocks in prop::collection::vec((1.0f64..1e6, 0.01f64..1.0, prop::collection::vec(0u8..3, 4)), 8..40),
            off in prop::collection::vec(-0.02f64..0.02, 4),
        ) {
            let x: Vec<f64> = blocks.iter().map(|(x, ..)| *x).collect();
            let v: Vec<f64> = blocks.iter().map(|(x, error, _)| (x * error).powi(2)).collect();
            let rows: Vec<Row> = (0..4).map(|class| {
                let times = |block: usize| f64::from(blocks[block].2[class]);
                let terms: Vec<(usize, f64)> = (0..blocks.len())
                    .map(|block| (block, times(block)))
                    .filter(|(_, times)| 0.0 < *times)
                    .collect();
                let mut row = row(&terms, 0.0, 0.0);
                // As uncertain as a thousandth of what chance leaves.
                let sum = row.sum(&x);
                row.counted = Figure { value: sum * (1.0 + off[class]), std_error: row.variance(&v).sqrt() / 1e3 };
                row
            }).collect();
            let before: f64 = rows.iter().map(|row| distance(row, &x)).sum();
            let fitted = fit(&x, &v, &rows);
            prop_assert!(fitted.values.iter().all(|x| 0.0 <= *x));
            for (left, v) in fitted.variances.iter().zip(&v) {
                prop_assert!(0.0 <= *left && *left <= v * (1.0 + 1e-9));
            }
            let after: f64 = rows.iter().map(|row| distance(row, &fitted.values)).sum();
            prop_assert!(after <= before + 1e-6, "{before} {after}");
        }
    }

    /// The distance of a sum from its count in standard errors, squared.
    fn distance(row: &Row, x: &[f64]) -> f64 {
        let off = row.counted.value - row.sum(x);
        if off == 0.0 {
            0.0
        } else {
            (off / row.counted.std_error.max(1e-9)).powi(2)
        }
    }
}
