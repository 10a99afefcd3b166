//! A value with its standard error.

/// The value and its standard error, in the same unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figure {
    /// The value.
    pub value: f64,
    /// Its standard error.
    pub std_error: f64,
}

impl Figure {
    /// The value with this variance.
    pub fn new(value: f64, variance: f64) -> Self {
        Self {
            value,
            std_error: variance.max(0.0).sqrt(),
        }
    }

    /// Variance over square of the value; 0 if the value is.
    pub fn relative_variance(self) -> f64 {
        if 0.0 < self.value {
            (self.std_error / self.value).powi(2)
        } else {
            0.0
        }
    }

    /// The sum of two independent figures.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            value: self.value + other.value,
            std_error: self.std_error.hypot(other.std_error),
        }
    }

    /// The quotient of two independent figures, by the delta method: relative variances add up. `None` if there is nothing
    /// to divide by.
    pub fn over(self, other: Self) -> Option<Self> {
        (0.0 < other.value).then(|| {
            let value = self.value / other.value;
            // Of nothing, the error is that of the numerator alone.
            let own = self.std_error / other.value;
            Self::new(value, own * own + value * value * other.relative_variance())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_errors_of_a_quotient_add_up_in_squares() {
        let figure = |value, std_error| Figure { value, std_error };
        let quotient = figure(8.0, 0.8).over(figure(4.0, 0.3)).unwrap();
        assert_eq!(quotient.value, 2.0);
        assert!((quotient.std_error - 2.0 * (0.01f64 + 0.005_625).sqrt()).abs() < 1e-12);
        let nothing = figure(0.0, 1.0).over(figure(4.0, 0.3)).unwrap();
        assert_eq!((nothing.value, nothing.std_error), (0.0, 0.25));
        assert_eq!(figure(8.0, 0.8).over(figure(0.0, 0.0)), None);
    }
}
