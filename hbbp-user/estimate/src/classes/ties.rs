//! What the counts of classes take off the variances of sums over blocks.
//!
//! A sum that is a class in all but a few blocks is known nearly as well as the class; one that has nothing to do with any is known
//! no better than before. With y what a block adds to the sum, the variance y' V y becomes y' V y - y' V A' (A V A' + R)^-1
//! A V y. The share that is left is taken of the variance that bootstrap replicates show, which knows of the blocks
//! that run together what V does not.

use super::least_squares::{Factor, Row, by_block};
use crate::sums::at;

/// The ties between blocks and classes; none if nothing was counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ties {
    /// Of A V A' + R.
    factor: Factor,
    /// What each block adds to which class.
    of_block: Vec<Vec<(usize, f64)>>,
    /// Of the executions of each block, before they were tied.
    variances: Vec<f64>,
}

/// A sum over blocks, as far as its ties go.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TiedSum {
    /// y' V y.
    own: f64,
    /// A V y.
    with_classes: Vec<f64>,
}

impl Ties {
    pub(super) fn new(factor: Factor, variances: Vec<f64>, rows: &[Row]) -> Self {
        Self {
            of_block: by_block(rows, variances.len()),
            factor,
            variances,
        }
    }

    /// Adds `times` the executions of a block to a sum.
    pub(crate) fn add(&self, sum: &mut TiedSum, block: usize, times: f64) {
        let Some(classes) = self.of_block.get(block) else {
            return;
        };
        let variance = at(&self.variances, block);
        sum.own += times * times * variance;
        if !classes.is_empty() {
            sum.with_classes.resize(self.factor.len(), 0.0);
        }
        for (class, per_execution) in classes {
            if let Some(with) = sum.with_classes.get_mut(*class) {
                *with += times * per_execution * variance;
            }
        }
    }

    /// The share of the variance of a sum that its ties leave, 0 to 1.
    pub(crate) fn left(&self, sum: &TiedSum) -> f64 {
        if sum.with_classes.is_empty() || sum.own <= 0.0 {
            return 1.0;
        }
        let explained = self.factor.squared(&sum.with_classes) / sum.own;
        (1.0 - explained).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Figure;

    #[test]
    fn a_sum_that_is_a_class_is_as_certain_as_its_count() {
        // Two blocks in a class whose count is known to a tenth of what chance leaves, and one in none.
        let row = Row {
            terms: vec![(0, 1.0), (1, 1.0)],
            counted: Figure::new(200.0, 2.0),
        };
        let variances = vec![100.0, 100.0, 100.0];
        let rows = [row];
        let ties = Ties::new(Factor::of(&variances, &rows), variances, &rows);
        let left = |blocks: &[usize]| {
            let mut sum = TiedSum::default();
            blocks.iter().for_each(|block| ties.add(&mut sum, *block, 3.0));
            ties.left(&sum)
        };
        assert!((left(&[0, 1]) - 2.0 / 202.0).abs() < 1e-9);
        assert!((left(&[0]) - (1.0 - 100.0 / 202.0)).abs() < 1e-9);
        assert_eq!((left(&[2]), left(&[])), (1.0, 1.0));
        assert_eq!(Ties::default().left(&TiedSum::default()), 1.0);
    }
}
