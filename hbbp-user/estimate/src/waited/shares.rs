//! Shares of samples by what is expected.
//!
//! The time of a division is known less well than that of an addition. Where there are more or fewer samples than expected, each way
//! takes its part of the difference, in proportion to its time and the variance of that time. This is a calibration estimator
//! (Deville and Särndal, Journal of the American Statistical Association 87, 1992, equation 2.3).

use super::code::Place;

/// What is expected of a way.
pub(super) struct Expected {
    pub(super) way: Place,
    /// Samples.
    pub(super) time: f64,
    /// Of the logarithm of the time.
    pub(super) variance: f64,
}

/// The shares of ways, whose samples are as many as there were.
pub(super) fn calibrated(ways: &[Expected], samples: f64) -> Vec<(Place, f64)> {
    let all: f64 = ways.iter().map(|way| way.time).sum();
    let variable: f64 = ways.iter().map(|way| way.time * way.variance).sum();
    if all <= 0.0 || variable <= 0.0 {
        return Vec::new();
    }
    let factor = (samples - all) / variable;
    let amount = |way: &Expected| way.time * (1.0 + way.variance * factor).max(0.0);
    shares(ways.iter().map(|way| (way.way, amount(way))).collect())
}

/// Weights as shares of their sum, without those that have none.
pub(super) fn shares(mut weights: Vec<(Place, f64)>) -> Vec<(Place, f64)> {
    weights.retain(|(_, weight)| 0.0 < *weight);
    let all: f64 = weights.iter().map(|(_, weight)| weight).sum();
    weights.iter_mut().for_each(|(_, weight)| *weight /= all);
    weights
}
