//! Amounts of a few of many sums: of those that one resampled stack or one time slice adds to.

/// Amounts by the number of their sum.
pub(crate) struct TouchedSums {
    amounts: Vec<f64>,
    touched: Vec<usize>,
}

impl TouchedSums {
    /// None yet, of this many.
    pub(crate) fn new(n: usize) -> Self {
        Self {
            amounts: vec![0.0; n],
            touched: Vec::new(),
        }
    }

    /// Adds to a sum, if there is one with this number.
    pub(crate) fn add(&mut self, sum: usize, amount: f64) {
        if let Some(before) = self.amounts.get_mut(sum) {
            if *before <= 0.0 {
                self.touched.push(sum);
            }
            *before += amount;
        }
    }

    /// Takes out the sums that were added to.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = (usize, f64)> {
        let amounts = &mut self.amounts;
        self.touched
            .drain(..)
            .filter_map(|sum| Some((sum, std::mem::take(amounts.get_mut(sum)?))))
    }
}
